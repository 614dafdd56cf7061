"""What a starting daemon does about the shutdown that its journal ends with, and how that boot ended.

Every combination of the five things that a start knows (`FoundAtStart`) has exactly one row; a test proves
it. A soft reboot keeps the boot id and changes the userspace.

An episode survives its daemon, never its userspace. Complete means that the release was ordered durably.
*Unknown* counts as "no change": an open shutdown goes on, and no new one begins.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from ebbtide.events.facts import LastBootRead
from ebbtide.events.values import BootEnding, BootEndReason

LastEpisode = Literal["none", "open", "released", "closed"]
ResumeAction = Literal[
    # No shutdown is on, and none is left over.
    "fresh",
    # A shutdown is on, and its begin is not on record.
    "begin",
    # Our shutdown is still on, and the downtime counts.
    "resume",
    # Our shutdown was cancelled while no daemon ran.
    "cancelled-while-away",
    # The machine went down before the release; with "begin" another shutdown is on already.
    "close-truncated",
    "close-truncated-and-begin",
    # The machine went down after the release.
    "close-complete",
    "close-complete-and-begin",
    # Released, but the machine stayed up.
    "did-not-go-down",
    # The release was ordered, but the lock came back.
    "release-again",
    # Released, and still going down.
    "wait",
]

#: Matches every value of its column.
ANY = "*"


class FoundAtStart(NamedTuple):
    """``preparing``: logind's ``PreparingForShutdown``; None when it could not be read. ``lock_inherited``:
    the service manager handed the lock back.
    """

    last: LastEpisode
    preparing: bool | None
    same_boot: bool
    same_userspace: bool
    lock_inherited: bool


class ResumeRow(NamedTuple):
    """A cell is a value, several joined by ``|``, or `ANY`."""

    last: str
    preparing: str
    boot: str
    userspace: str
    lock: str
    action: ResumeAction


RESUME_TABLE: tuple[ResumeRow, ...] = (
    #   last           preparing      boot     userspace  lock           action
    ResumeRow("none|closed", "yes", ANY, ANY, ANY, "begin"),
    ResumeRow("none|closed", "no|unknown", ANY, ANY, ANY, "fresh"),
    ResumeRow("open", "yes|unknown", "same", "same", ANY, "resume"),
    ResumeRow("open", "no", "same", "same", ANY, "cancelled-while-away"),
    ResumeRow("open", "yes", "same", "other", ANY, "close-truncated-and-begin"),
    ResumeRow("open", "no|unknown", "same", "other", ANY, "close-truncated"),
    ResumeRow("open", "yes", "other", ANY, ANY, "close-truncated-and-begin"),
    ResumeRow("open", "no|unknown", "other", ANY, ANY, "close-truncated"),
    ResumeRow("released", "no", "same", "same", ANY, "did-not-go-down"),
    ResumeRow("released", "yes|unknown", "same", "same", "inherited", "release-again"),
    ResumeRow("released", "yes|unknown", "same", "same", "absent", "wait"),
    ResumeRow("released", "yes", "same", "other", ANY, "close-complete-and-begin"),
    ResumeRow("released", "no|unknown", "same", "other", ANY, "close-complete"),
    ResumeRow("released", "yes", "other", ANY, ANY, "close-complete-and-begin"),
    ResumeRow("released", "no|unknown", "other", ANY, ANY, "close-complete"),
)

_PREPARING = {True: "yes", False: "no", None: "unknown"}


def matching_rows(found: FoundAtStart) -> tuple[ResumeRow, ...]:
    """One, or the table is wrong."""
    words = (
        found.last,
        _PREPARING[found.preparing],
        "same" if found.same_boot else "other",
        "same" if found.same_userspace else "other",
        "inherited" if found.lock_inherited else "absent",
    )
    return tuple(row for row in RESUME_TABLE if all(map(_fits, row[: len(words)], words)))


def resume_action(found: FoundAtStart) -> ResumeAction:
    """``found.last`` "none" ignores the boot columns."""
    (row,) = matching_rows(found)
    return row.action


def _fits(cell: str, word: str) -> bool:
    return cell == ANY or word in cell.split("|")


# --- how the last boot ended

# Only the machine's records show how it went down. A missing record is no proof.


class EndedBoot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``enabled`` and ``armed`` None: unknown. ``overtime``: its shutdown began with our own stop. ``left``:
    the daemon had been stopped before it.
    """

    boot_id: str
    last: LastEpisode
    wave: int = -1
    overtime: bool = False
    enabled: bool | None = None
    armed: bool | None = None
    left: bool = False


class BootEnd(NamedTuple):
    ending: BootEnding
    why: BootEndReason


def boot_end(ended: EndedBoot, read: LastBootRead) -> BootEnd:
    in_order = "shutdown" in (read.wtmp, read.journal)
    by_software = (
        in_order or read.journal == "stopped" or read.crash in ("shutdown", "emergency") or read.kexec
    )
    crashed = _crashed(read, by_software=by_software)
    if ended.last == "released":
        # The pods had ended.
        return BootEnd("graceful", crashed or ("bypassed" if ended.overtime else ""))
    if ended.last == "open":
        ending: BootEnding = "cut-short" if ended.wave >= 0 else "never-begun"
        if crashed:
            return BootEnd(ending, crashed)
        if ended.overtime:
            return BootEnd(ending, "bypassed")
        if in_order:
            return BootEnd(ending, "time-over")
        return BootEnd(ending, "bypassed" if by_software else "unrecorded")
    if crashed:
        return BootEnd("abrupt", crashed)
    unprotected = _unprotected(ended)
    if by_software:
        known = ended.armed is not None
        return BootEnd("never-begun", unprotected or ("bypassed" if known else ""))
    if "no-shutdown" in (read.wtmp, read.journal):
        return BootEnd("abrupt", "unrecorded")
    return BootEnd("unknown", unprotected)


def _crashed(read: LastBootRead, *, by_software: bool) -> BootEndReason:
    """An oops may be days older than the end, and is no cause of an orderly one."""
    if read.crash == "panic" or (not by_software and (read.crash == "oops" or read.kernel_emergency)):
        return "panic"
    return "watchdog" if read.watchdog and not by_software else ""


def _unprotected(ended: EndedBoot) -> BootEndReason:
    """Why no shutdown could have begun."""
    # In this order: a daemon that is switched off is not armed either.
    if ended.enabled is False:
        return "not-configured"
    if ended.left:
        return "not-running"
    return "not-armed" if ended.armed is False else ""
