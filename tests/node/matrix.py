"""Every fault of every part at every time of a shutdown in every mode, judged alike, beside the kubelet's own
shutdown.

A cell is a whole life: recording pods, the fault, the power-off, and the next boot. `LEFT_OUT` lists
impossible cells, `FORGIVEN` impossible demands, each with its reason.

Exit codes: 0 all requested cells hold, 1 a cell is broken or missing, 2 no node available, 3 out of time.

python -m tests.node.matrix                            # all that the results do not have yet; hours
python -m tests.node.matrix --only '*:containerd:*' --means cri --seconds 600
python -m tests.node.matrix --only cri:containerd:hung:wave-1 --again     # one cell
python -m tests.node.matrix --table                    # what the results come to
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import trio

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import Record, parse_order_key
from tests.beds.rootfs import Unavailable, cache_folder, leaves
from tests.node.bare import ask
from tests.node.bed import Bed, Unready
from tests.node.bringing_up import mend_infrastructure, node_bed
from tests.node.client import POLL_SECONDS, Object, Refused
from tests.node.contenders import OFF
from tests.node.ebbtide import NAME as DAEMON
from tests.node.ebbtide import Daemon
from tests.node.faults import FAULTS, HUNG, HUNG_5_S, KILLED, WAYS, Target, disk_of, mounted, outer_pid
from tests.node.going import calm, make_classes
from tests.node.pods import PODS
from tests.node.shutdowns import FINAL, NS, fill
from tests.node.witness import TICK_NS, Witness
from tests.proc import each_process

KUBELET = "kubelet"
MODES = ("api", "cri", "auto")
MEANS = (*MODES, KUBELET)
PARTS = tuple(FAULTS)
BEFORE, AT, WAVE_1, WAVE_2, BETWEEN = "before", "at", "wave-1", "wave-2", "between"
TIMES = (WAVE_1, AT, BEFORE, WAVE_2, BETWEEN)
#: For a power-off `auto` would equal `api`, so it gets the reboots.
KINDS = dict.fromkeys(MEANS, "poweroff") | {"auto": "reboot"}
SILENT = "no program can request a shutdown"
#: Without one of these the API server is unreachable.
TO_API = ("api-server", "etcd", "network")
NO_EXEC = "only the container runtime runs an exec hook, and it is away"
PERHAPS = "the kubelet may have begun the hook, and no hook runs twice"
BEGINNING = "the daemon died, or was stopped, when the hook began: it may have run, and no hook runs twice"
STOOD_STILL = "the pod's grace was over when the stopped daemon continued, before it sent the delete"
SENT = "the API server may have accepted an unanswered delete, and then the kubelet may have run the hook"
UNTOLD = "the API server gets no end before the kubelet of the next boot has started the pod again"
OF_WHICH_KIND = "the daemon cannot read the kind: after a reboot pods return, without a final status"
UNSEEN = "the kubelet ends pods and removes their containers while no daemon runs"
#: (means, part, way, time), `*` for any: why this cell cannot exist.
LEFT_OUT = {
    ("*", "logind", HUNG, BEFORE): SILENT,
    ("*", "bus", HUNG, BEFORE): SILENT,
    (KUBELET, "daemon", "*", "*"): "it is the kubelet itself: the row of that part",
    (KUBELET, "disk", "*", "*"): "it has no journal",
}
#: (rule, means, part, way, time), `*` for any: why the rule cannot hold or be checked. Applies to the pods of
#: `reached`; for an interrupted hook, to the pods of that wave.
FORGIVEN: dict[tuple[str, str, str, str, str], str] = {
    ("known", "api", "daemon", KILLED, "*"): UNSEEN,
    ("known", "api", "daemon", HUNG, "*"): UNSEEN,
    **{("hook", "*", "containerd", way, "*"): NO_EXEC for way in (KILLED, HUNG_5_S, HUNG)},
    **{
        ("hook", means, "daemon", way, time): BEGINNING
        for means in ("cri", "auto")
        for way in (KILLED, HUNG_5_S, HUNG)
        for time in (AT, WAVE_2)
    },
    ("hook", "api", "daemon", HUNG_5_S, BETWEEN): STOOD_STILL,
    **{("hook", "api", "kubelet", way, "*"): PERHAPS for way in (KILLED, HUNG_5_S, HUNG)},
    **{("hook", "api", part, way, "*"): SENT for part in TO_API for way in (KILLED, HUNG_5_S, HUNG)},
    **{("after_boot", "*", part, way, "*"): UNTOLD for part in TO_API for way in (KILLED, HUNG)},
    ("after_boot", "cri", "bus", HUNG, AT): OF_WHICH_KIND,
    # It is there again after the release only.
    **{("after_boot", "*", part, HUNG_5_S, time): UNTOLD for part in TO_API for time in (BETWEEN, WAVE_2)},
}


class Cell(NamedTuple):
    """``means``: one of our modes, or the kubelet."""

    means: str
    part: str
    way: str
    time: str

    @property
    def name(self) -> str:
        return ":".join(self)


def all_cells() -> list[Cell]:
    """Mid-shutdown faults in the modes that end pods come first; `auto` has its own rows."""
    every = [
        Cell(means, part, way, time)
        for several in (("api", "cri", KUBELET), ("auto",))
        for time in TIMES
        for means in several
        for part in PARTS
        for way in WAYS
    ]
    return [cell for cell in every if not why_not(cell)]


def why_not(cell: Cell) -> str:
    """Empty where it can be made."""
    return next((reason for pattern, reason in LEFT_OUT.items() if _fits(pattern, cell)), "")


def _fits(pattern: Sequence[str], names: Sequence[str]) -> bool:
    return all(wanted in ("*", got) for wanted, got in zip(pattern, names, strict=True))


# --- the pods


class Planned(NamedTuple):
    """``ends_after``: seconds after its stop signal; 0: only SIGKILL ends it."""

    priority: str
    ends_after: float
    grace_seconds: int
    hook: bool = False


#: Class to priority in wave order, with seconds each.
WAVES = {"low": 1000, "middle": 2000, "high": 3000}
WAVE_SECONDS = 5
RESERVE_SECONDS = 2
#: The first wave outlasts the fault; the second has a pod that needs SIGKILL.
POD_SET = {
    "low-hook": Planned("low", 0.2, 4, hook=True),
    "low-slow": Planned("low", 2.0, 4),
    "middle-hook": Planned("middle", 0.2, 4, hook=True),
    "middle-deaf": Planned("middle", 0, 3),
    "high-hook": Planned("high", 0.2, 4, hook=True),
    "high-slow": Planned("high", 1.0, 4),
}
NAMES = tuple(POD_SET)
LIMIT_NS = (WAVE_SECONDS * len(WAVES) + RESERVE_SECONDS) * NS


def wave(name: str) -> list[str]:
    return [pod for pod, planned in POD_SET.items() if planned.priority == name]


def reached(time: str) -> list[str]:
    """Pods whose end may be unrecorded at a fault of this time: `between` and the second wave follow the
    last pod's own note at once.
    """
    first = [planned.ends_after for planned in POD_SET.values() if planned.priority == "low"]
    return [
        name
        for name, planned in POD_SET.items()
        if time != WAVE_2 or planned.priority != "low" or planned.ends_after == max(first)
    ]


#: The wave whose hooks start at that time.
BEGIN = {AT: "low", BETWEEN: "middle", WAVE_2: "middle"}


def manifests(witness: Witness) -> list[Object]:
    return [
        witness.pod(
            name,
            slow=not planned.ends_after,
            ends_after=planned.ends_after,
            hook=planned.hook,
            priorityClassName=planned.priority,
            terminationGracePeriodSeconds=planned.grace_seconds,
        )
        for name, planned in POD_SET.items()
    ]


# --- what was seen

NOTES = ("began", "hook", "signal", "ended")
Notes = dict[str, dict[str, list[int]]]


class Seen(NamedTuple):
    """A cell's evidence in monotonic nanoseconds. ``asked_ns``: the final request; ``began_ns``: the start of
    logind's timer; ``released_ns``: the last lock copy closed; ``over_ns``: logind went on (None: unseen).
    ``alive``: pods with a process at the release.

    ``after``: each pod in the API after the next boot settled: ``gone``, its phase, or ``Running, no
    process``. ``replay``: empty if identical.
    """

    cell: Cell
    asked_ns: int
    began_ns: int
    released_ns: int | None
    over_ns: int | None
    alive: frozenset[str]
    notes: Notes
    records: Sequence[Record]
    after: dict[str, str]
    replay: str = ""
    called_off: bool = False
    struck_ns: int = 0

    def events(self, kind: type[Any]) -> list[Any]:
        return [each.event for each in self.records if isinstance(each.event, kind)]


#: Between two looks at the lock, and logind's delay in noticing a closed one.
LOOK_SECONDS, HEARD_NS = 0.02, NS // 4
#: The longest delay of a shell's note after its signal on a busy machine.
LATE_NOTE_NS = NS // 2
#: A pod's minimal time after its stop signal, as in the kubelet.
FLOOR_NS = 2 * NS


Row = dict[str, Any]


def breaches(seen: Seen) -> list[str]:
    """Broken rules, one line each. The kubelet's own shutdown has no rules."""
    return row(seen, 0)["broken"]


def judge(made: Row) -> list[str]:
    """Judge a stored row again where it has the fields; keep the other verdicts."""
    if made["means"] == KUBELET or "not_made" in made:
        return []
    rules = [rule for rule, fields in BY_ROW.items() if all(each in made for each in fields)]
    anew = {rule.__name__ for rule in rules}
    found = [line for line in made["broken"] if line.split(":")[0] not in anew]
    return found + [f"{rule.__name__}: {line}" for rule in rules for line in rule(made)]


def not_judged(made: Row) -> list[str]:
    """Rules whose fields the stored row lacks."""
    if made["means"] == KUBELET or "not_made" in made or "raised" in made:
        return []
    return [rule.__name__ for rule, fields in BY_ROW.items() if not all(each in made for each in fields)]


def _asked(rule: str, made: Row) -> list[str]:
    """The pods that the rule covers there."""
    names = (rule, *(made[each] for each in Cell._fields))
    reasons = [reason for pattern, reason in FORGIVEN.items() if _fits(pattern, names)]
    excused = reached(made["time"])
    if BEGINNING in reasons or STOOD_STILL in reasons:
        excused = [name for name in NAMES if POD_SET[name].priority == BEGIN[made["time"]]]
    return [name for name in NAMES if not (reasons and name in excused)]


def signal(made: Row) -> Iterator[str]:
    """Each pod gets its stop signal before logind goes on."""
    for name in _asked("signal", made):
        if name in made["without_sigterm"]:
            yield f"{name} got no stop signal"


def hook(made: Row) -> Iterator[str]:
    for name in _asked("hook", made):
        if name in made["without_hook"]:
            yield f"{name} did not run its hook"


def known(made: Row) -> Iterator[str]:
    """No fate on record is `unknown`."""
    for name in _asked("known", made):
        if name in made["unknown"]:
            yield f"{name} has an unknown fate"


def cut_off(made: Row) -> Iterator[str]:
    """No pod has a process at the release: each shutdown has enough time."""
    for name in made["cut_off"]:
        yield f"{name} still ran at the release"


def after_boot(made: Row) -> Iterator[str]:
    """After the next boot the API is true and matches the record: a power-off leaves pods gone or final, a
    reboot leaves them Running.
    """
    after, told, asked = made["after"], made["fates"], _asked("after_boot", made)
    if not after:
        yield "the API server gave no answer"
    for name, state in sorted(after.items()):
        if state not in SETTLED:
            yield f"{name} is {state} for ever"
        elif told.get(name, ["unknown"])[-1] in ENDED and name in asked:
            if KINDS[made["means"]] == "reboot" and state != "Running":
                yield f"{name} is {state}, and comes back after a reboot"
            elif KINDS[made["means"]] == "poweroff" and state == "Running":
                yield f"{name} is {told[name][-1]} on record, and Running in the API"


#: A pod's possible final states, and the outcomes of ended pods.
SETTLED = ("gone", *FINAL, "Running")
ENDED = ("graceful", "killed")
#: Rules that need only these fields of a row.
BY_ROW: dict[Callable[[Row], Iterator[str]], tuple[str, ...]] = {
    signal: ("without_sigterm",),
    hook: ("without_hook",),
    known: ("unknown",),
    cut_off: ("cut_off",),
    after_boot: ("after", "fates"),
}


def lock(seen: Seen) -> Iterator[str]:
    """Held until the last pod has gone, and released before logind's timer."""
    if seen.released_ns is None:
        yield "it was never released"
        return
    late_ns = seen.released_ns - seen.began_ns - LIMIT_NS
    if late_ns > 0:
        yield f"released {late_ns / NS:.2f} s after logind's limit"
    if seen.over_ns is not None and seen.over_ns < seen.released_ns - HEARD_NS:
        yield f"logind went on {(seen.released_ns - seen.over_ns) / NS:.2f} s before the release"
    unfinished = {uid for event in seen.events(d.PodsEnded) for uid in event.unfinished}
    names = planned(seen)
    for name in sorted(seen.alive - {names.get(uid, "") for uid in unfinished}):
        yield f"released while {name} still ran, which nobody says"


def order(seen: Seen) -> Iterator[str]:
    """A wave starts after the previous wave's pods have gone, or its time is over."""
    started = {
        each.event.priority: each.mono_ns + each.event.period_ns
        for each in seen.records
        if isinstance(each.event, d.WaveStarted) and each.mono_ns >= seen.asked_ns
    }
    names = list(WAVES)
    for first, second in itertools.pairwise(names):
        begun = min(_told(seen, second), default=None)
        ends = [end for name in wave(first) if (end := _end(seen, name)) is not None]
        over_ns = started.get(WAVES[first])
        if begun is None or not ends:
            continue
        last_ns = max(ends) if over_ns is None else min(max(ends), over_ns)
        if begun < last_ns - TICK_NS:
            yield f"wave {second} began {(last_ns - begun) / NS:.2f} s before {first} was over"


def _told(seen: Seen, priority: str) -> list[int]:
    """The signal times of its pods in the final shutdown."""
    found = [at for name in wave(priority) for what in ("hook", "signal") for at in seen.notes[name][what]]
    return [at for at in found if at >= seen.asked_ns]


def _end(seen: Seen, name: str) -> int | None:
    """By its own note, or the earliest SIGKILL. For a restarted pod its first life: a restart joins the
    running wave.
    """
    notes = seen.notes[name]
    again = min((at for at in notes["began"] if at >= seen.asked_ns), default=None)
    first = {
        what: [at for at in notes[what] if at >= seen.asked_ns and (again is None or at <= again)]
        for what in ("ended", "signal")
    }
    if ended := first["ended"]:
        return ended[-1]
    signals = first["signal"]
    return signals[-1] + FLOOR_NS - LATE_NOTE_NS if signals else None


def once(seen: Seen) -> Iterator[str]:
    """At most one stop signal and one hook per life of a pod. A pod taken from the kubelet may get both
    signals, because the first is unobservable; a dead daemon's unrecorded stop is repeated.
    """
    names = planned(seen)
    lost = Counter(
        names.get(key.subject)
        for each in seen.events(f.OrderEnded)
        if each.result == "unknown" and (key := parse_order_key(each.key)).what == "stop"
    )
    deleted = {names.get(each.uid) for each in seen.events(d.DeletePod)}
    taken = {names.get(each.uid) for each in seen.events(d.SendSignal)} & deleted
    for name, notes in seen.notes.items():
        lives = len(notes["began"])
        for what, most in (("signal", lives + (name in taken) + lost[name]), ("hook", lives)):
            if len(notes[what]) > most:
                yield f"{name} got {len(notes[what])} of {what} in {lives} lives"


def fates(seen: Seen) -> Iterator[str]:
    """The records match the pods' notes; `unknown` is no contradiction and has its own rule (`known`)."""
    names = planned(seen)
    for uid in sorted({each.uid for each in seen.events(d.PodEnded)} - names.keys()):
        yield f"a fate is on record of {uid}, which no plan has"
    for name, outcomes in sorted(outcomes_of(seen).items()):
        ended, lives = len(seen.notes[name]["ended"]), len(seen.notes[name]["began"])
        told = Counter(outcomes)
        if told["graceful"] > ended:
            yield f"{name} is graceful on record, and did not end by itself"
        if told["killed"] > lives - ended:
            yield f"{name} is killed on record, and ended by itself"
        if name in seen.alive and outcomes[-1] in ("graceful", "killed"):
            yield f"{name} is {outcomes[-1]} on record, and ran on at the release"
        if told["failed"]:
            yield f"{name} failed on record, and no pod here fails"
    for name in sorted(set(NAMES) - outcomes_of(seen).keys() - seen.alive):
        yield f"{name} has ended, and no fate is on record"


def replay(seen: Seen) -> Iterator[str]:
    if seen.replay:
        yield seen.replay


#: Of a pod that had ended in a cancelled shutdown: the next one only writes its final status.
NONE_RAN = "none of its containers was running"


def outcomes_of(seen: Seen) -> dict[str, list[str]]:
    """Each pod's outcomes in order."""
    names = planned(seen)
    found: dict[str, list[str]] = {}
    for each in seen.events(d.PodEnded):
        if each.uid in names and each.reason != NONE_RAN:
            found.setdefault(names[each.uid], []).append(each.outcome)
    return found


def planned(seen: Seen) -> dict[str, str]:
    return {each.pod.uid: each.pod.name for each in seen.events(d.PodPlanned)}


def unsignalled(seen: Seen) -> list[str]:
    """Pods without a stop signal before logind went on."""
    until = seen.over_ns or seen.released_ns or 0
    return [name for name in NAMES if not any(at <= until + TICK_NS for at in seen.notes[name]["signal"])]


def row(seen: Seen, seconds: float) -> Row:
    """The results line: verdict and evidence. Seconds count from the request."""
    released_ns = seen.released_ns or seen.over_ns
    told = outcomes_of(seen)
    extra = [
        name
        for name in NAMES
        for w in ("signal", "hook")
        if len(seen.notes[name][w]) > len(seen.notes[name]["began"])
    ]

    def since(mono_ns: int | None) -> float | None:
        return None if mono_ns is None else round((mono_ns - seen.asked_ns) / NS, 2)

    made = {
        "cell": seen.cell.name,
        **seen.cell._asdict(),
        "broken": [
            f"{rule.__name__}: {line}" for rule in (lock, order, once, fates, replay) for line in rule(seen)
        ],
        "without_sigterm": unsignalled(seen),
        "without_hook": [
            name for name, each in POD_SET.items() if each.hook and not seen.notes[name]["hook"]
        ],
        "cut_off": sorted(seen.alive),
        "in_time": released_ns is not None and released_ns - seen.began_ns <= LIMIT_NS,
        "release_seconds": None if released_ns is None else round((released_ns - seen.began_ns) / NS, 2),
        "unknown": sorted(name for name, outcomes in told.items() if "unknown" in outcomes),
        "twice": sorted(set(extra)),
        "fates": dict(sorted(told.items())),
        "after": dict(sorted(seen.after.items())),
        "called_off": seen.called_off,
        "handed_over": [each.reason for each in seen.events(d.HandedOver)],
        "struck_seconds": since(seen.struck_ns),
        "released_seconds": since(seen.released_ns),
        "over_seconds": since(seen.over_ns),
        "notes": {
            name: {what: [since(at) for at in times] for what, times in each.items() if times}
            for name, each in seen.notes.items()
        },
        "seconds": round(seconds, 1),
    }
    return made | {"broken": judge(made)}


def raised(cell: Cell, error: Exception, seconds: float) -> Row:
    """The daemon failed in this cell: broken."""
    lines = [f"daemon: {type(each).__name__}: {str(each)[:MESSAGE_CHARACTERS]}" for each in leaves(error)]
    return _empty(cell, seconds) | {"broken": lines, "raised": True}


def not_made(cell: Cell, error: Exception, seconds: float) -> Row:
    """The bed could not run this cell."""
    return _empty(cell, seconds) | {
        "not_made": "; ".join(
            f"{type(each).__name__}: {str(each)[:MESSAGE_CHARACTERS]}" for each in leaves(error)
        )
    }


def _empty(cell: Cell, seconds: float) -> Row:
    return {"cell": cell.name, **cell._asdict(), "broken": [], "seconds": round(seconds, 1)}


# --- one cell

#: Preparations end this long before the request.
BEFORE_SECONDS = 2.0
MOMENT_SECONDS_MAX = 20.0
#: After logind's limit: its timer and a busy machine's delay.
OVER_SECONDS_MAX = LIMIT_NS / NS + 8
#: From the fault's end until logind, without locks, goes on.
GO_ON_SECONDS_MAX = 4.0
SETTLED_SECONDS_MAX = 40.0
ARMED_AGAIN_SECONDS_MAX = 15.0
BOOT_ID = "/proc/sys/kernel/random/boot_id"
WAVE_PERIODS = [{"priority": each, "shutdownGracePeriodSeconds": WAVE_SECONDS} for each in WAVES.values()]
GRACEFUL = {
    "shutdownGracePeriod": "0s",
    "shutdownGracePeriodCriticalPods": "0s",
    "shutdownGracePeriodByPodPriority": WAVE_PERIODS,
}


class Missed(Exception):
    """The bed failed; the cell is no evidence about the contender."""


#: Errors of the bed; the last two come from its helper processes. Any other error is the daemon's.
OF_BED = (Missed, Unavailable, Unready, Refused, RuntimeError, trio.TooSlowError)
MESSAGE_CHARACTERS = 2000


def is_of_bed(error: Exception) -> bool:
    return all(isinstance(each, OF_BED) for each in leaves(error))


@contextlib.contextmanager
def bed_only() -> Iterator[None]:
    """A block without the daemon. Any error raises Missed."""
    try:
        yield
    except Exception as error:
        raise Missed("; ".join(f"{type(each).__name__}: {each}" for each in leaves(error))) from error


class Run:
    def __init__(self, bed: Bed, cell: Cell, folder: Path) -> None:
        self.bed, self.cell, self.folder = bed, cell, folder
        self.member = next(iter(bed.members.values()))
        self.witness = Witness(bed)
        self.daemon: Daemon | None = None
        self.remount: Callable[[], None] | None = None
        self.asked_ns = self.began_ns = self.struck_ns = 0
        self.released_ns: int | None = None
        self.alive: frozenset[str] = frozenset()
        self.called_off = False
        self._stack = contextlib.ExitStack()

    @property
    def settings(self) -> dict[str, Any]:
        return GRACEFUL if self.cell.means == KUBELET else OFF

    async def run(self) -> Seen:
        """Raises one of OF_BED; any other error is the daemon's failure."""
        with self._stack:
            await self.prepare()
            try:
                seen = await self.down()
                return await self.boot(seen)
            finally:
                if self.daemon is not None:
                    await self.daemon.stop()

    async def prepare(self) -> None:
        with bed_only():
            await calm(self.bed)
            await self.bed.runs_nothing(self.member)
            new_boot(self.bed)
            if self.cell.means == KUBELET:
                await self.bed.start_over(**self.settings)
            await fill(self.bed, manifests(self.witness))
            if self.cell.means == KUBELET:
                await self.bed.locks(1)
        if self.cell.means == KUBELET:
            return
        journal = self.folder / "journal"
        self.daemon = Daemon(self.bed, journal, self.cell.means, self.member)
        self.daemon.keep_lock = True
        if self.cell.part == "disk":
            self.remount = self._stack.enter_context(mounted(self.bed))
            self.daemon.journal = disk_of(self.bed) / "journal"
            journal = self.bed.place(self.daemon.journal)
        second = self.folder / "second"
        self.daemon.locations = (journal, second)
        self.daemon.configure(
            reserve=f"{RESERVE_SECONDS}s",
            shutdownGracePeriodByPodPriority=WAVE_PERIODS,
            journalFallbacks=[str(second)],
        )
        await self.daemon.start_ready()

    async def down(self) -> Seen:
        """Run fault and shutdown until the fault is over and logind went on."""
        before = len(await self.bed.logind.starts())
        target = Target(self.bed, self.member, self.daemon, disk_of(self.bed))
        fault = FAULTS[self.cell.part][self.cell.way](target)
        async with contextlib.AsyncExitStack() as struck:
            if self.cell.time == BEFORE:
                self.struck_ns = time.monotonic_ns()
                with bed_only():
                    await struck.enter_async_context(fault)
                await trio.sleep(BEFORE_SECONDS)
            await self.ask()
            if self.cell.time != BEFORE:
                await self.moment()
                self.struck_ns = time.monotonic_ns()
                with bed_only():
                    await struck.enter_async_context(fault)
            over_ns = await self.over(before)
        with trio.move_on_after(0 if self.called_off and over_ns else GO_ON_SECONDS_MAX):
            while over_ns is None and (starts := await self.bed.logind.starts()) is not None:
                over_ns = starts[-1][1] if len(starts) > before else None
                await trio.sleep(LOOK_SECONDS)
        notes = {name: {what: self.witness.times(name, what) for what in NOTES} for name in NAMES}
        return Seen(
            self.cell, self.asked_ns, self.began_ns, self.released_ns, over_ns, self.alive, notes,
            (), {}, called_off=self.called_off, struck_ns=self.struck_ns,
        )  # fmt: skip

    async def ask(self) -> None:
        """Request the shutdown; logind's timer starts with its acceptance."""
        with bed_only(), trio.fail_after(MOMENT_SECONDS_MAX):
            self.asked_ns = await self.bed.logind.power_off(KINDS[self.cell.means])
        silent = self.cell.time == BEFORE and self.cell.part in ("logind", "bus")
        self.began_ns = time.monotonic_ns() if silent else self.asked_ns

    async def moment(self) -> None:
        """Wait for the fault's time. A calm shutdown reaches it: otherwise raises AssertionError, or
        Missed for the kubelet.
        """
        holds: dict[str, Callable[[], bool]] = {
            AT: lambda: True,
            WAVE_1: lambda: self.told("low"),
            BETWEEN: lambda: all(self.witness.times(name, "ended") for name in wave("low")),
            WAVE_2: lambda: self.told("middle"),
        }
        with trio.move_on_after(MOMENT_SECONDS_MAX):
            while not holds[self.cell.time]():
                await trio.sleep(0.005)
            return
        raise (Missed if self.cell.means == KUBELET else AssertionError)(f"{self.cell.time} never came")

    def told(self, priority: str) -> bool:
        return any(self.witness.times(name, what) for name in wave(priority) for what in ("hook", "signal"))

    async def over(self, before: int) -> int | None:
        """Wait for the closed lock or for logind; returns when. A shutdown that a restarted logind forgot
        is requested again once the node is protected.
        """
        pids = await self.holders()
        restarts = self.cell.way == KILLED and self.cell.part in ("logind", "bus")
        with trio.move_on_after(OVER_SECONDS_MAX + (ARMED_AGAIN_SECONDS_MAX if restarts else 0)):
            while True:
                if self.cell.part == "daemon":
                    # Another one may be there by now.
                    pids = await self.holders()
                # In this order: a lock that is still held was held when logind went on.
                starts = await self.bed.logind.starts()
                held = any(map(holds_lock, pids))
                if restarts and not self.called_off and self.is_called_off():
                    await self.ask_again()
                elif not held or len(starts) > before:
                    now_ns = time.monotonic_ns()
                    self.alive = running_pods(self.bed)
                    self.released_ns = None if held else now_ns
                    over_ns: int | None = starts[-1][1] if len(starts) > before else None
                    return over_ns
                await trio.sleep(LOOK_SECONDS)
        self.alive = running_pods(self.bed)
        return None

    def is_called_off(self) -> bool:
        return self.daemon is not None and bool(self.daemon.events(d.ShutdownWithdrawn))

    async def ask_again(self) -> None:
        assert self.daemon is not None
        armed = self.daemon
        self.called_off = True

        def again() -> bool:
            kinds = [
                type(each.event)
                for each in armed.records()
                if isinstance(each.event, d.ShutdownWithdrawn | d.Armed)
            ]
            return bool(kinds) and kinds[-1] is d.Armed

        await armed.until(again, "it is not armed again")
        await self.ask()

    async def holders(self) -> list[int]:
        """Possible holders of the lock: the daemon and its parent, or the kubelet."""
        name = f"kubelet-{self.member.name}" if self.daemon is None else DAEMON
        inner = (await self.bed.inside.do("pids")).get(name)
        if inner is None:
            return []
        here = outer_pid(self.bed, inner)
        children = Path(f"/proc/{here}/task/{here}/children").read_text().split()
        return [here, *map(int, children)]

    async def boot(self, seen: Seen) -> Seen:
        """Power off and on: only the disk and the API server remember."""
        bed, member = self.bed, self.member
        if self.daemon is not None:
            await self.daemon.stop()
        with bed_only():
            if self.remount is not None:
                self.remount()
            await bed.stop(f"kubelet-{member.name}")
            await mend_infrastructure(bed)
            await ask(member, "wipe")
            await bed.logind.reset()
            new_boot(bed)
            self.witness.forget()
            await bed.start_kubelet(member, **self.settings)
        if self.daemon is not None:
            await self.daemon.start()
        with bed_only():
            await bed.node_ready(member)
        after = await self.settled()
        problem, records = "", list[Record]()
        if self.daemon is not None:
            await self.daemon.stop()
            # Including the next boot's records about the last one.
            records = self.daemon.records()
            try:
                await self.daemon.verify()
            except AssertionError as error:
                problem = str(error)[:500]
            if self.remount is not None:
                shutil.copytree(self.daemon.locations[0], self.folder / "journal")
        return seen._replace(records=records, after=after, replay=problem)

    async def settled(self) -> dict[str, str]:
        """Each pod's state once it is true, or after the deadline."""
        found: dict[str, str] = {}
        with trio.move_on_after(SETTLED_SECONDS_MAX):
            while True:
                with contextlib.suppress(OSError, Refused):
                    listed = (await self.bed.api.get(PODS))["items"]
                    runs = running_pods(self.bed)
                    found = dict.fromkeys(NAMES, "gone") | {
                        each["metadata"]["name"]: state_of(each, runs) for each in listed
                    }
                    if all(state in SETTLED for state in found.values()):
                        break
                await trio.sleep(POLL_SECONDS)
        return found


def state_of(made: Object, runs: frozenset[str]) -> str:
    phase = str(made["status"]["phase"])
    if "deletionTimestamp" in made["metadata"]:
        return f"{phase}, terminating"
    return f"{phase}, no process" if phase == "Running" and made["metadata"]["name"] not in runs else phase


def holds_lock(pid: int) -> bool:
    """Does the process hold a copy of a logind lock?"""
    place = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for each in os.listdir(place):
            with contextlib.suppress(OSError):
                if os.readlink(f"{place}/{each}").endswith(".ref"):
                    return True
    return False


def running_pods(bed: Bed) -> frozenset[str]:
    """Pods with a process, by its command line."""
    found = set()
    for words in each_process("cmdline", bed.place(Path("/proc"))).values():
        found |= {name for name in NAMES if f"/notes/{name}.began".encode() in words}
    return frozenset(found)


def new_boot(bed: Bed) -> None:
    """Set a new boot ID for the whole node."""
    file = bed.place(bed.folder / "state" / "boot-id")
    if not file.exists():
        file.write_text("")
        bed.mount_over(bed.folder / "state" / "boot-id", Path(BOOT_ID))
    file.write_text(f"{uuid.uuid4()}\n")


# --- the command

RESULTS = "matrix.jsonl"
TRIES = 2


class Results:
    """One JSON line per cell; the last one counts. Broken cells' journals are beside it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.kept = file.with_suffix("")
        self.rows: dict[str, Row] = {}
        if file.exists():
            for line in file.read_text().splitlines():
                self.add(json.loads(line))

    def add(self, made: Row) -> None:
        if "not_made" not in made or not self.has(made["cell"]):
            self.rows[made["cell"]] = made

    def has(self, name: str) -> bool:
        return name in self.rows and "not_made" not in self.rows[name]

    def broken(self) -> dict[str, list[str]]:
        return {name: lines for name, each in self.rows.items() if (lines := judge(each))}

    def not_made(self) -> list[str]:
        return [name for name in self.rows if not self.has(name)]

    def write(self, made: Row) -> None:
        self.add(made)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as file:
            file.write(json.dumps(made) + "\n")

    def keep(self, cell: Cell, locations: Iterable[Path]) -> str:
        """Store the journal and its evidence; returns the folder."""
        folder = self.kept / cell.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for number, location in enumerate(each for each in locations if each.is_dir()):
            shutil.copytree(location, folder / str(number), ignore=shutil.ignore_patterns("*.sock"))
        return str(folder)


def command(cell: Cell) -> str:
    return f"python -m tests.node.matrix --only {cell.name} --again"


async def run_cell(bed: Bed, cell: Cell, results: Results | None = None) -> Row:
    """Run a cell; keep a broken one's journal. Raises one of OF_BED."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ebbtide-cell.") as folder:
        run = Run(bed, cell, Path(folder))
        try:
            made = row(await run.run(), time.monotonic() - began)
        except Exception as error:
            if is_of_bed(error) or cell.means == KUBELET:
                raise
            made = raised(cell, error, time.monotonic() - began)
        if made["broken"] and results is not None and run.daemon is not None:
            made["journal"] = results.keep(cell, [run.folder / "journal", run.folder / "second"])
            (Path(made["journal"]) / "daemon.log").write_text(bed.log(DAEMON))
    return made


class Tally(NamedTuple):
    """One command's cells. ``left``: skipped for lack of time."""

    broken: int = 0
    not_made: int = 0
    left: int = 0

    @property
    def exit_code(self) -> int:
        return 1 if self.broken or self.not_made else 3 if self.left else 0


async def run_all(cells: Sequence[Cell], results: Results, seconds: float) -> Tally:
    """A node unfit for the next cell is rebuilt; cells that the bed failed are retried once."""
    until = time.monotonic() + seconds
    left, tally, tries = list(cells), Tally(), Counter[str]()
    began, done = time.monotonic(), 0
    while left and time.monotonic() < until:
        async with node_bed(**OFF) as bed:
            await make_classes(bed)
            while left and time.monotonic() < until:
                cell, cell_began = left.pop(0), time.monotonic()
                (bed.folder / "log" / f"{DAEMON}.log").write_text("")
                try:
                    made = await run_cell(bed, cell, results)
                except Exception as error:
                    made = not_made(cell, error, time.monotonic() - cell_began)
                    print(f"  {cell.name}: not made: {made['not_made']}", flush=True)
                    tries[cell.name] += 1
                    if tries[cell.name] < TRIES:
                        left.append(cell)
                    else:
                        results.write(made)
                        tally = tally._replace(not_made=tally.not_made + 1)
                    break
                results.write(made)
                done += 1
                tally = tally._replace(broken=tally.broken + bool(made["broken"]))
                rest = (time.monotonic() - began) / done * len(left)
                print(f"{say(made)}; {len(left)} left, {rest / 60:.0f} min", flush=True)
                for line in made["broken"]:
                    print(f"    {line}", flush=True)
                if made["broken"]:
                    print(f"    {command(cell)}\n    {made.get('journal', '')}", flush=True)
                if "raised" in made:
                    break
    return tally._replace(left=len(left))


def say(made: Row) -> str:
    verdict = "BROKEN" if made["broken"] else "measured" if made["means"] == KUBELET else "holds"
    if "raised" in made:
        return f"{made['cell']}: {verdict} ({made['seconds']:.0f} s)"
    extra = [
        f"{len(made[key])} {key.replace('_', ' ')}"
        for key in ("without_sigterm", "without_hook", "unknown", "cut_off", "twice")
        if made[key]
    ]
    extra += ["called off"] * made["called_off"] + ["late"] * (not made["in_time"])
    words = ", ".join([f"released after {made['release_seconds']} s", *extra])
    return f"{made['cell']}: {verdict}, {words} ({made['seconds']:.0f} s)"


HEADS = (
    *("part", "way", "cells", "broken", "not made", "pods without SIGTERM: api, cri, auto", "the kubelet's"),
    *("cut off", "the kubelet's", "inside the time", "the kubelet's"),
)


def table(results: Results) -> str:
    """By part and way over all times: cells run of possible ones, broken by today's rules, not made, and
    pods without SIGTERM beside the kubelet's. Then the broken and unjudged ones.
    """
    lines = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    every, broken = all_cells(), results.broken()
    for part, way in itertools.product(PARTS, WAYS):
        found = [each for each in results.rows.values() if (each["part"], each["way"]) == (part, way)]
        if not found:
            continue
        made = [each for each in found if "not_made" not in each]
        ours = [each for each in made if each["means"] != KUBELET]
        theirs = [each for each in made if each["means"] == KUBELET]
        total = sum((each.part, each.way) == (part, way) and each.means != KUBELET for each in every)
        by_mode = ", ".join(_share([each for each in ours if each["means"] == mode]) for mode in MODES)
        cells = [part, way, f"{len(ours)} of {total}", sum(each["cell"] in broken for each in ours)]
        cells += [len(found) - len(made), by_mode, _share(theirs)]
        cells += [_share(ours, "cut_off"), _share(theirs, "cut_off"), _inside(ours), _inside(theirs)]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    for name, breached in broken.items():
        lines.append(f"broken: {name}: {'; '.join(breached)}")
    lines += [f"not made: {name}: {results.rows[name]['not_made']}" for name in results.not_made()]
    partly = Counter(rule for each in results.rows.values() for rule in not_judged(each))
    lines += [f"stored without what the rule `{rule}` needs: {count} cells" for rule, count in partly.items()]
    return "\n".join(lines)


def _share(rows: Sequence[Row], field: str = "without_sigterm") -> str:
    """The share of pods that ran to their end."""
    ran = [each for each in rows if field in each]
    return f"{sum(len(each[field]) for each in ran)} of {len(ran) * len(NAMES)}" if ran else "–"


def _inside(rows: Sequence[Row]) -> str:
    return f"{sum(each.get('in_time', False) for each in rows)} of {len(rows)}" if rows else "–"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", default="*", metavar="PATTERN", help="cells of this name, * for any part of it"
    )
    parser.add_argument("--means", action="append", choices=MEANS, help="default: all")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no cell after so long")
    parser.add_argument("--again", action="store_true", help="also those that the results have")
    parser.add_argument("--broken", action="store_true", help="those alone that the results have as broken")
    parser.add_argument(
        "--results", type=Path, default=cache_folder() / RESULTS, help="one JSON line a cell (%(default)s)"
    )
    parser.add_argument("--list", action="store_true", help="the cells, and those that are left out")
    parser.add_argument("--table", action="store_true", help="what the results come to")
    asked = parser.parse_args()
    results = Results(asked.results)
    cells = [
        cell
        for cell in all_cells()
        if fnmatch.fnmatchcase(cell.name, asked.only) and cell.means in (asked.means or MEANS)
    ]
    if asked.table:
        print(table(results))
        return 0
    if asked.list:
        print("\n".join(cell.name for cell in cells))
        print(
            "\n".join(f"{':'.join(pattern)}: {reason}" for pattern, reason in (LEFT_OUT | FORGIVEN).items()),
            file=sys.stderr,
        )
        return 0
    if asked.broken:
        broken = results.broken()
        cells = [cell for cell in cells if cell.name in broken]
    elif not asked.again:
        cells = [cell for cell in cells if not results.has(cell.name)]
    try:
        tally = trio.run(run_all, cells, results, asked.seconds)
    except Unavailable as error:
        print(f"no node can be had here: {error}", file=sys.stderr)
        return 2
    made = sum(map(results.has, results.rows))
    print(
        f"{made} of {len(all_cells())} cells run, {len(results.broken())} broken,"
        f" {len(results.not_made())} not made, {tally.left} of those asked for left"
    )
    return tally.exit_code


if __name__ == "__main__":
    sys.exit(main())
