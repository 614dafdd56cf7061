"""Summaries of shutdowns: outcome, times, counts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ebbtide.events import decisions as d
from ebbtide.events.base import Event, Stamp, shutdown_trace_id
from ebbtide.events.facts import InventoryTaken, LastBootRead, PrepareForShutdown, Tick
from ebbtide.events.record.episodes import Episode, episodes
from ebbtide.events.record.fold import BootRecord
from ebbtide.events.values import Pod
from tests.events.making import WALL_NS, stamp
from tests.journals import IDENTITY, Journal, step

PODS = tuple(Pod(uid=f"u{at}", namespace="default", name=f"web-{at}") for at in range(3))
BEGAN = d.ShutdownBegan(
    kind="reboot", grant_ns=1, requested_ns=1, budget_ns=1, deadline_ns=1, release_by_ns=1, lock_held=True
)
PLANNED = tuple(d.PodPlanned(wave=0, grace_seconds=1, pod=pod) for pod in PODS)
INVENTORY = InventoryTaken(key="k", as_of_ns=0, source="cri", pods=PODS)
RELEASE = d.ReleaseLock(key="LogindActor/ReleaseLock//0")


class Story(Journal):
    """Steps as a journal; each is a fact with its decisions."""

    def __init__(self) -> None:
        super().__init__()
        self.segment()

    def segment(self, boot_id: str = "boot-1") -> Story:
        self.chain.identity = IDENTITY._replace(boot_id=boot_id)
        return self.begin(stamp(self.chain.end.seq))

    def step(self, events: Sequence[Event], of: Sequence[int] | int) -> Story:
        first = self.chain.end.seq + 1
        mono_ns, wall_ns = stamp(first)
        return self.add(*step(*events, first_seq=first, at=Stamp(mono_ns, wall_ns + 7), episode=of))

    def signal(self) -> Story:
        first = self.chain.end.seq + 1
        return self.step([PrepareForShutdown(active=True, kind="reboot"), BEGAN], first)

    def episodes(self, boot_id: str | None = None) -> list[Episode]:
        return list(episodes(self.history(), boot_id=boot_id))

    def hash_of(self, seq: int) -> bytes:
        return next(raw.hash for raw in self.history().raw() if raw.seq == seq)


def ended(pod: Pod, outcome: str) -> d.PodEnded:
    return d.PodEnded(uid=pod.uid, wave=0, outcome=outcome, reason="")  # type: ignore[arg-type]


def counts(episode: Episode) -> dict[str, int]:
    return {name: count for name, count in episode.pods.items() if count}


def test_a_released_shutdown_is_complete() -> None:
    """ID, trace, kind, times on one clock, each pod once."""
    story = Story().step([Tick()], 0).signal().step([INVENTORY, *PLANNED], 2)
    story.step([Tick(), ended(PODS[0], "graceful"), ended(PODS[1], "killed"), ended(PODS[2], "graceful")], 2)
    story.step([Tick(), RELEASE], 2)
    (episode,) = story.episodes()
    assert episode.id == "00010203-2"
    assert episode.trace_id == shutdown_trace_id(story.hash_of(2))
    assert (episode.kind, episode.outcome, episode.first_seq, episode.last_seq) == (
        "reboot",
        "complete",
        2,
        13,
    )
    assert episode.started_wall_ns == WALL_NS + 2_000_000 + 7
    assert episode.ended_wall_ns == episode.started_wall_ns + 10_000_000
    assert counts(episode) == {"graceful": 2, "killed": 1}
    assert list(episode.pods) == ["graceful", "killed", "failed", "spared", "rejected", "unknown"]


@pytest.mark.parametrize(
    ("boot_id", "outcome"), [(None, "running"), ("boot-1", "running"), ("boot-2", "truncated")]
)
def test_an_open_shutdown_runs_until_its_boot_is_over(boot_id: str | None, outcome: str) -> None:
    """Its pods are not known to have ended."""
    (episode,) = Story().signal().step([INVENTORY, *PLANNED], 1).episodes(boot_id)
    assert (episode.outcome, episode.ended_wall_ns) == (outcome, None)
    assert counts(episode) == {"unknown": 3}


@pytest.mark.parametrize("outcome", ["cancelled", "truncated", "never-begun"])
def test_a_closed_shutdown_says_how_it_ended(outcome: str) -> None:
    """Only a cancelled one has an end: the others were cut short."""
    story = Story().signal().step([Tick(), d.EpisodeClosed(outcome=outcome)], 1)  # type: ignore[arg-type]
    (episode,) = story.episodes()
    assert episode.outcome == outcome
    assert (episode.ended_wall_ns is not None) == (outcome == "cancelled")


def test_a_release_after_which_the_machine_stayed_is_not_complete() -> None:
    """The final unit may fail; the shutdown is then withdrawn."""
    story = Story().signal().step([Tick(), RELEASE], 1)
    story.step(
        [Tick(), d.ShutdownWithdrawn(reason="did-not-go-down"), d.EpisodeClosed(outcome="cancelled")], 1
    )
    (episode,) = story.episodes()
    assert episode.outcome == "cancelled"


def test_a_cancel_that_the_next_boot_closes_has_that_boots_time() -> None:
    """Another boot's monotonic clock is meaningless."""
    story = Story().signal().segment("boot-2").step([Tick(), d.EpisodeClosed(outcome="cancelled")], 1)
    (episode,) = story.episodes()
    assert episode.ended_wall_ns == WALL_NS + 3_000_000 + 7


def test_late_and_rejected_pods_belong_to_the_inventory() -> None:
    """A refresh alone adds no pod; a late pod is planned, a rejected one has its own record."""
    late = Pod(uid="late", namespace="default", name="late")
    story = Story().signal().step([INVENTORY, *PLANNED], 1)
    story.step([InventoryTaken(key="r", as_of_ns=1, source="call", pods=(*PODS, late))], 1)
    story.step([Tick(), d.PodPlanned(wave=0, grace_seconds=1, pod=late, late=True)], 1)
    story.step([Tick(), d.PodRejected(uid="new", label="default/new", reason="", message="")], 1)
    (episode,) = story.episodes()
    assert counts(episode) == {"unknown": 4, "rejected": 1}


def test_a_second_signal_in_the_step_that_closes_the_first_begins_its_own() -> None:
    """Its first record belongs to the closed episode, and gives its trace ID."""
    story = Story().signal()
    story.step([PrepareForShutdown(active=True), d.EpisodeClosed(outcome="cancelled"), BEGAN], [1, 1, 3])
    first, second = story.episodes()
    assert (first.outcome, second.outcome) == ("cancelled", "running")
    assert second.id == "00010203-3"
    assert second.trace_id == shutdown_trace_id(story.hash_of(3))


def test_a_boots_end_and_its_shutdown() -> None:
    """It belongs to that boot's last shutdown, if recorded, even after another one began."""

    def told(story: Story, boot: str, episode: int = 0, **fields: object) -> d.LastBootEnded:
        said = d.LastBootEnded(boot_id=boot, ending="cut-short", **fields)  # type: ignore[arg-type]
        story.step([LastBootRead(boot_id=boot), said], episode)
        return said

    story = Story().signal()
    shutdown = story.chain.end.seq - 1
    story.segment("boot-2")
    cut = told(story, "boot-1", wave=0, recorded=True)
    story.segment("boot-3")
    none = told(story, "boot-2")
    story.signal()
    again = story.chain.end.seq - 1
    story.segment("boot-4").signal()
    late = told(story, "boot-3", story.chain.end.seq - 1, recorded=True)
    gone = told(story, "boot-0", recorded=True)
    boots: list[BootRecord] = []
    found = list(episodes(story.history(), boots=boots))
    ids = {each.first_seq: each.id for each in found}
    assert boots == [(cut, ids[shutdown]), (none, ""), (late, ids[again]), (gone, "")]
