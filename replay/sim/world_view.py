"""One boot, from outside (the world log) and from inside (the records), for the invariants.

Both simulators make these views: an invariant holds for the real daemon under the mock clock and for the loop
in virtual time. All is indexed once, so that a thousand pods take a moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ebbtide.actors.system import LOOK_NS
from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import Event, Record
from ebbtide.events.decisions import KillContainer, PodEnded, PodPlanned, PodStopBegan
from ebbtide.events.values import Settings
from ebbtide.replay.sim.sim_node import Happening, SimulatedContainer

EventT = TypeVar("EventT", bound=Event)

#: What an effect may take on its way: a step, its barrier, the edge's own latency, the way back.
SLACK_NS = 300 * MS


class Served(NamedTuple):
    """When a daemon was at work: from its readiness to its end."""

    life: int
    from_ns: int
    to_ns: int


class Boot(NamedTuple):
    """One boot that is over, of any simulator."""

    number: int
    #: What happened in it, in world time.
    seen: Sequence[Happening]
    #: What its daemons decided, as far as the next one knew of it; for the last one everything.
    records: Sequence[Record]
    #: What a reader finds in the journal after the boot.
    journal: Sequence[Record]
    boxes: Sequence[SimulatedContainer]
    #: World time minus the monotonic clock.
    offset_ns: int
    #: Every configuration that may be in force, the last one among them.
    settings: tuple[Settings, ...]
    #: logind's property, the cluster's view of the node, and whether its API server answers.
    preparing: bool
    shown_ready: bool
    api_answers: bool
    #: Extra time of an order because of the runtime.
    slow_ns: int = 0
    #: The daemon's mode on a Kubernetes node; whether the kubelet ignores stop orders or has a lock.
    mode: str = ""
    kubelet_stays: bool = False
    kubelet_lock: bool = False
    #: UIDs of pods without a process on the node.
    hidden: Mapping[str, None] = {}


#: Between a look and its report a daemon does not know later restarts.
AGAIN_SEEN_NS = 600 * MS


class BootView:
    """One boot, indexed."""

    #: From a daemon's readiness until it knows what happened before.
    CATCH_UP_NS = 50 * MS
    #: Exits are reported one after the other, each some milliseconds late.
    REPORT_NS = 30 * MS

    def __init__(self, boot: Boot) -> None:
        self.boot, self.number, self.seen, self.records = boot, boot.number, boot.seen, boot.records
        self.slack_ns = SLACK_NS + boot.slow_ns
        self._by_what: dict[tuple[str, ...], list[Happening]] = {}
        self._by_box: dict[tuple[str, str], list[Happening]] = {}
        self._by_type: dict[type[Event], list[tuple[Record, Any]]] = {}
        for seen in boot.seen:
            self._by_what.setdefault((seen.what,), []).append(seen)
            self._by_box.setdefault((seen.uid, seen.container), []).append(seen)
        self._episodes: dict[int, list[Record]] = {}
        for record in boot.records:
            self._by_type.setdefault(type(record.event), []).append((record, record.event))
            if record.episode:
                self._episodes.setdefault(record.episode, []).append(record)
        self.ended_ns = self.of("down")[0].at_ns
        self.stopping_ns = self.of("stopping", "down")[0].at_ns
        self.served: list[Served] = []
        ready: dict[int, int] = {}
        for seen in self.of("ready", "crash", "left"):
            if seen.what == "ready":
                ready[seen.life] = seen.at_ns
            elif seen.life in ready:
                self.served.append(Served(seen.life, ready.pop(seen.life), seen.at_ns))
        self.served += [Served(life, since_ns, self.ended_ns) for life, since_ns in ready.items()]
        self._looking = list(self._looks())
        self._boxes: dict[str, list[SimulatedContainer]] = {}
        self._exit_ns: dict[tuple[str, str, int], int] = {}
        for box in boot.boxes:
            exits = self.of_box(box, "exit", "dropped")
            self._boxes.setdefault(box.uid, []).append(box)
            self._exit_ns[box.uid, box.name, box.attempt] = exits[0].at_ns if exits else self.ended_ns + 1
        self._stop_begins = self._by_uid(PodStopBegan)
        self._ends = self._by_uid(PodEnded)
        self._kills = self._by_uid(KillContainer)
        self._plans: dict[str, list[tuple[Record, PodPlanned]]] = {}
        for record, event in self.events(PodPlanned):
            self._plans.setdefault(event.pod.uid, []).append((record, event))
        #: The journal left the disk in this boot: the next boot may know less.
        self.fled = any(what[0].startswith("journal-") for what in self._by_what)
        #: The journal had no place or was unreadable: even this boot's daemons know less.
        self.hurt = bool(self.of("journal-lost", "error"))

    def _looks(self) -> Iterator[tuple[int, int]]:
        """When a daemon ran and the runtime answered."""
        turns = self.of("runtime-hangs", "runtime-wakes")
        times_ns = [seen.at_ns for seen in turns]
        if not turns or turns[0].what == "runtime-hangs":
            times_ns.insert(0, 0)
        times_ns.append(self.ended_ns)
        for served in self.served:
            for from_ns, to_ns in zip(times_ns[::2], times_ns[1::2], strict=False):
                yield max(from_ns, served.from_ns), min(to_ns, served.to_ns)

    def _by_uid(self, kind: type[EventT]) -> dict[str, list[tuple[int, Any]]]:
        found: dict[str, list[tuple[int, Any]]] = {}
        for record, event in self.events(kind):
            found.setdefault(event.uid, []).append((self.at_ns(record), event))  # type: ignore[attr-defined]
        return found

    # --- what happened -------------------------------------------------------------------------

    def of(self, *whats: str) -> list[Happening]:
        """Happenings of these kinds, in order."""
        if whats not in self._by_what:
            if len(whats) == 1:
                return []
            self._by_what[whats] = [seen for seen in self.seen if seen.what in whats]
        return self._by_what[whats]

    def events(self, kind: type[EventT]) -> Sequence[tuple[Record, EventT]]:
        return self._by_type.get(kind, ())

    def at_ns(self, record: Record) -> int:
        """A record's time in world time."""
        return self.boot.offset_ns + record.mono_ns

    def mono_at_ns(self, mono_ns: int) -> int:
        """A monotonic time of this boot in world time."""
        return self.boot.offset_ns + mono_ns

    def forgotten(self, uid: str) -> bool:
        """Whether a daemon changed this pod on a hung disk and died: later daemons do not know it."""
        died = [seen.life for seen in self.of("crash")]
        return any(
            seen.late and seen.life in died
            for box in self.boxes(uid)
            for seen in self.of_box(box, "hook", "signal", "kill")
        )

    def after_look_ns(self, at_ns: int) -> int:
        """When a due action is done: a daemon looks first after its start."""
        looks = (each.from_ns for each in self.served if each.from_ns <= at_ns < each.from_ns + LOOK_NS)
        return max([at_ns, *(from_ns + LOOK_NS for from_ns in looks)])

    def served_through(self, from_ns: int, to_ns: int) -> bool:
        """Whether one daemon ran all the time."""
        return any(each.from_ns <= from_ns and to_ns <= each.to_ns for each in self.served)

    # --- pods --------------------------------------------------------------------------------------

    def boxes(self, uid: str | None = None) -> Sequence[SimulatedContainer]:
        """All containers, or one pod's."""
        return self.boot.boxes if uid is None else self._boxes.get(uid, ())

    def of_box(self, box: SimulatedContainer, *whats: str) -> list[Happening]:
        """Happenings of this container, not of others with its name."""
        found, attempt = [], -1
        for seen in self._by_box.get((box.uid, box.name), ()):
            attempt += seen.what == "start"
            if max(attempt, 0) == box.attempt and seen.what in whats:
                found.append(seen)
        return found

    def exit_ns(self, box: SimulatedContainer) -> int:
        """When it was gone; after the boot's end if never."""
        return self._exit_ns[box.uid, box.name, box.attempt]

    def started_ns(self, box: SimulatedContainer) -> int:
        """When it began to run; after the boot's end if never."""
        return next((seen.at_ns for seen in self.of_box(box, "start")), self.ended_ns + 1)

    def known_ns(self, box: SimulatedContainer) -> int:
        """From when on a daemon can know that it runs. A restarted one is seen by the next look at an
        answering runtime; after the boot's end if there is none.
        """
        since_ns = self.started_ns(box)
        if not box.attempt:
            return since_ns
        for from_ns, to_ns in self._looking:
            known_ns = max(from_ns, since_ns) + AGAIN_SEEN_NS
            if known_ns <= to_ns:
                return known_ns
        return self.ended_ns + 1

    def exit_signal(self, box: SimulatedContainer) -> str:
        return next((seen.detail for seen in self.of_box(box, "exit")), "")

    def gone_was_known_ns(self, box: SimulatedContainer) -> int:
        """When a daemon can know its end, at the latest after that daemon's start."""
        exit_ns = self.exit_ns(box)
        starts = [each.from_ns for each in self.served if each.to_ns > exit_ns]
        return max(exit_ns + self.REPORT_NS, min(starts, default=self.ended_ns) + self.CATCH_UP_NS)

    def stop_begins(self, uid: str) -> Sequence[tuple[int, PodStopBegan]]:
        """Each `PodStopBegan` of a pod, with its time."""
        return self._stop_begins.get(uid, ())

    def ends(self, uid: str) -> Sequence[tuple[int, PodEnded]]:
        """Each `PodEnded` of a pod, with its time."""
        return self._ends.get(uid, ())

    def fate(self, uid: str, from_ns: int, to_ns: int) -> str:
        """Its last recorded outcome in this time; empty: none."""
        outcomes = [end.outcome for at_ns, end in self.ends(uid) if from_ns <= at_ns <= to_ns]
        return outcomes[-1] if outcomes else ""

    def plans(self, uid: str) -> Sequence[tuple[Record, PodPlanned]]:
        """Each `PodPlanned` of a pod."""
        return self._plans.get(uid, ())

    def by_kubelet(self, uid: str) -> str:
        """How the kubelet was to end the pod; empty: Ebbtide ends it."""
        plans = self.plans(uid)
        return plans[-1][1].means if plans and plans[-1][1].means in ("api", "observe") else ""

    def out_of_reach(self, box: SimulatedContainer, from_ns: int, to_ns: int) -> bool:
        """Whether only a hung runtime could have reached it at some time in between."""
        if box.uid not in self.boot.hidden:
            return False
        hung_ns = None
        for seen in self.of("runtime-hangs", "runtime-wakes"):
            if seen.what == "runtime-hangs":
                hung_ns = seen.at_ns
            elif hung_ns is not None:
                if hung_ns <= to_ns and from_ns <= seen.at_ns + self.REPORT_NS:
                    return True
                hung_ns = None
        return hung_ns is not None and hung_ns <= to_ns

    def kill_was_ordered(self, uid: str) -> bool:
        return uid in self._kills

    # --- episodes ----------------------------------------------------------------------------------

    def episodes(self) -> dict[int, list[Record]]:
        """The records of each shutdown of this boot."""
        return self._episodes


#: An invariant yields one sentence for each breach.
BreachSentences = Iterator[str]


def container_label(box: SimulatedContainer) -> str:
    return f"{box.uid}/{box.name}"
