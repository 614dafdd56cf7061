"""The resume table, over every combination that a start can find."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import get_args

import pytest

from ebbtide.actors.policy import resume
from ebbtide.events.facts import LastBootRead
from ebbtide.events.values import BootEnding, BootEndReason, CrashRecord, JournalEnd, WtmpEnd

EVERY_COMBINATION = [
    resume.FoundAtStart(*found)
    for found in product(get_args(resume.LastEpisode), (True, False, None), *3 * [(True, False)])
]


@pytest.mark.parametrize("found", EVERY_COMBINATION, ids=lambda found: "-".join(map(str, found)))
def test_exactly_one_row_matches(found: resume.FoundAtStart) -> None:
    """Design, "What each shutdown does", point 8."""
    assert len(resume.matching_rows(found)) == 1


def test_every_row_and_every_action_is_in_use() -> None:
    met = {resume.matching_rows(found)[0] for found in EVERY_COMBINATION}
    assert met == set(resume.RESUME_TABLE)
    assert {row.action for row in resume.RESUME_TABLE} == set(get_args(resume.ResumeAction))


@pytest.mark.parametrize("found", EVERY_COMBINATION, ids=lambda found: "-".join(map(str, found)))
def test_the_actions_follow_the_three_rules(found: resume.FoundAtStart) -> None:
    """An episode ends with its userspace; only a release completes it; unknown stays unknown."""
    action = resume.resume_action(found)
    same = found.same_boot and found.same_userspace
    left_over = found.last in ("open", "released")
    assert action.startswith("close-") == (left_over and not same)
    assert not (action.startswith("close-complete") and found.last != "released")
    assert not (action.startswith("close-truncated") and found.last != "open")
    assert (action == "begin" or action.endswith("-and-begin")) <= (found.preparing is True)
    assert (action == "release-again") <= found.lock_inherited


@pytest.mark.parametrize(
    "last, preparing, boot, userspace, lock, action",
    [
        ("none", None, True, True, True, "fresh"),
        ("closed", True, True, True, False, "begin"),
        ("open", None, True, True, True, "resume"),
        ("open", False, True, True, True, "cancelled-while-away"),
        ("open", None, True, False, True, "close-truncated"),
        ("open", True, False, False, False, "close-truncated-and-begin"),
        ("released", False, True, False, False, "close-complete"),
        ("released", True, False, True, True, "close-complete-and-begin"),
        ("released", False, True, True, True, "did-not-go-down"),
        ("released", None, True, True, True, "release-again"),
        ("released", True, True, True, False, "wait"),
    ],
)
def test_one_example_of_each_action(
    last: resume.LastEpisode, preparing: bool | None, boot: bool, userspace: bool, lock: bool, action: str
) -> None:
    assert resume.resume_action(resume.FoundAtStart(last, preparing, boot, userspace, lock)) == action


# --- how the last boot ended


ANY, MAYBE = (True, False), (True, False, None)
ENDED = [
    resume.EndedBoot(
        boot_id="b1", last=last, wave=wave, overtime=overtime, enabled=enabled, armed=armed, left=left
    )
    for last, wave, overtime, enabled, armed, left in product(
        get_args(resume.LastEpisode), (-1, 2), ANY, MAYBE, MAYBE, ANY
    )
]
READ = [
    LastBootRead(
        boot_id="b1",
        crash=crash,
        wtmp=wtmp,
        journal=journal,
        kernel_emergency=emergency,
        watchdog=watchdog,
        kexec=kexec,
    )
    for crash, wtmp, journal, emergency, watchdog, kexec in product(
        get_args(CrashRecord), get_args(WtmpEnd), get_args(JournalEnd), ANY, ANY, ANY
    )
]
#: A healthy boot without a shutdown.
PROTECTED = resume.EndedBoot(boot_id="b1", last="none", enabled=True, armed=True)


def ends(read: LastBootRead) -> Iterator[tuple[resume.EndedBoot, BootEnding, BootEndReason]]:
    for ended in ENDED:
        yield ended, *resume.boot_end(ended, read)


def in_order(read: LastBootRead) -> bool:
    return "shutdown" in (read.wtmp, read.journal)


def by_software(read: LastBootRead) -> bool:
    forced = read.journal == "stopped" or read.crash in ("shutdown", "emergency") or read.kexec
    return in_order(read) or forced


def test_the_journal_says_how_far_it_came() -> None:
    """Only a release is graceful; an open shutdown was cut short or never began."""
    for read in READ[::7]:
        for ended, ending, _ in ends(read):
            if ended.last in ("open", "released"):
                begun = "cut-short" if ended.wave >= 0 else "never-begun"
                assert ending == ("graceful" if ended.last == "released" else begun)
            else:
                assert ending in ("never-begun", "abrupt", "unknown")


def test_who_says_nothing_proves_nothing() -> None:
    """Abrupt needs a source that would have recorded a shutdown, or a crash record. Software causes need a
    record, and the node's own reason needs the journal.
    """
    for read in READ:
        for ended, ending, why in ends(read):
            if ended.last not in ("none", "closed"):
                continue
            if ending == "abrupt":
                assert why in ("panic", "watchdog") or "no-shutdown" in (read.wtmp, read.journal)
            if ending == "never-begun":
                assert by_software(read)
            assert why != "not-configured" or ended.enabled is False
            assert why != "not-running" or ended.left
            assert why != "not-armed" or ended.armed is False
            assert why != "bypassed" or ended.armed


def test_what_is_old_is_not_why() -> None:
    """An orderly shutdown was not ended by an oops, a hang or the watchdog."""
    for read in READ:
        if by_software(read) and read.crash != "panic":
            assert {why for _, _, why in ends(read)}.isdisjoint({"panic", "watchdog"})


def test_a_panic_is_always_told() -> None:
    for read in READ:
        if read.crash == "panic":
            assert {why for _, _, why in ends(read)} == {"panic"}


def test_every_word_is_used() -> None:
    found = {(ending, why) for read in READ[::3] for _, ending, why in ends(read)}
    assert {ending for ending, _ in found} == set(get_args(BootEnding))
    assert {why for _, why in found} == set(get_args(BootEndReason))


@pytest.mark.parametrize(
    "read, said",
    [
        (LastBootRead(boot_id="b1", wtmp="shutdown"), ("never-begun", "bypassed")),
        (LastBootRead(boot_id="b1", journal="stopped"), ("never-begun", "bypassed")),
        (LastBootRead(boot_id="b1", crash="shutdown", wtmp="no-shutdown"), ("never-begun", "bypassed")),
        (LastBootRead(boot_id="b1", crash="emergency"), ("never-begun", "bypassed")),
        (LastBootRead(boot_id="b1", kexec=True), ("never-begun", "bypassed")),
        (LastBootRead(boot_id="b1", crash="panic", wtmp="no-shutdown"), ("abrupt", "panic")),
        (LastBootRead(boot_id="b1", crash="oops"), ("abrupt", "panic")),
        (LastBootRead(boot_id="b1", kernel_emergency=True), ("abrupt", "panic")),
        (LastBootRead(boot_id="b1", watchdog=True), ("abrupt", "watchdog")),
        (LastBootRead(boot_id="b1", wtmp="no-shutdown"), ("abrupt", "unrecorded")),
        (LastBootRead(boot_id="b1", journal="no-shutdown"), ("abrupt", "unrecorded")),
        (LastBootRead(boot_id="b1", crash="unread", wtmp="unread", journal="unread"), ("unknown", "")),
        (LastBootRead(boot_id="b1"), ("unknown", "")),
    ],
)
def test_an_armed_node_whose_shutdown_nobody_saw(read: LastBootRead, said: tuple[str, str]) -> None:
    assert resume.boot_end(PROTECTED, read) == said
