"""The scripts' commands: a verb creates a fact from its words, or acts on the bench."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, cast, get_args

from msgspec.structs import replace

from ebbtide.actors.outage import refusal
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Fact
from ebbtide.events.decisions import Arm, AwaitStatuses, CheckMounts, PodEnded, TakeInventory, WaveStarted
from ebbtide.events.outage_events import BrakeLimit, RequestPermit
from ebbtide.events.segment import SHUTDOWN_LOGIC
from ebbtide.events.values import Period, ProcessReport, Settings, ShutdownKind
from ebbtide.replay.sim.sim_outage import COUNTED
from tests.scripts import show
from tests.scripts.bench import MANUAL, Bench, Saboteur
from tests.scripts.outage_verbs import OUTAGE_FACTS, OUTAGE_VERBS
from tests.scripts.parse import Command, ScriptError, duration_ns, parse, pod

Output = list[str] | None
Verb = Callable[[Bench, Command], Output]

_TRUTH = {"yes": True, "no": False, "unknown": None}
_UP = {"up": True, "down": False, "unknown": None}

#: The edges' facts soon after a start.
HEALTHY = (
    f.KubeletRead(unit="kubelet.service", active=True),
    f.RuntimeRead(reachable=True),
    f.ApiRead(reachable=True),
)


def run(bench: Bench, command: Command) -> list[str]:
    """Run a command; its output or records."""
    output: Output = None
    bench.shown = []
    if command.verb in VERBS:
        output = VERBS[command.verb](bench, command)
    elif command.verb in FACTS:
        facts = FACTS[command.verb](command)
        for fact in (facts,) if isinstance(facts, Fact) else facts:
            bench.feed(fact)
    else:
        known = ", ".join((*VERBS, *FACTS))
        raise ScriptError(f"line {command.line}: no verb {command.verb!r}; there are {known}")
    return [show.line(record) for record in bench.shown] if output is None else output


def benches(script: str, logic: str = SHUTDOWN_LOGIC) -> Iterator[Bench]:
    """The benches before each ``fresh``, and at the script's end."""
    bench = Bench(logic)
    for block in parse(script):
        for command in block.commands:
            if command.verb == "fresh":
                yield bench
                bench = Bench(logic)
            else:
                run(bench, command)
    yield bench


def _duration(command: Command, name: str, default: str = "0s") -> int:
    return duration_ns(command.options.get(name, default))


def _truth(command: Command, name: str, default: str) -> Any:
    return _TRUTH[command.options.get(name, default)]


def _kind(command: Command) -> ShutdownKind:
    return cast("ShutdownKind", command.words[0] if command.words else command.options.get("kind", "unknown"))


# --- facts: what an edge or a person reports


def settings(command: Command) -> Settings:
    given = command.options
    periods = [each.split(":") for each in given.get("periods", "").split(",") if each]
    gates = [each.split(":") for each in given.get("gates", "").split(",") if each]
    return Settings(
        shutdown_grace_period_ns=_duration(command, "total"),
        shutdown_grace_period_critical_pods_ns=_duration(command, "critical"),
        by_pod_priority=tuple(Period(priority=int(at), seconds=int(long)) for at, long in periods),
        gates={name: value == "on" for name, value in gates},
        budget="elastic" if given.get("budget") == "elastic" else "strict",
        reserve_seconds=_duration(command, "reserve", "5s") // NS_PER_SECOND,
        raise_grant=bool(_truth(command, "raise", "yes")),
        status_flush_seconds=_duration(command, "flush", "2s") // NS_PER_SECOND,
        trace_flush_ns=_duration(command, "traces", "0s"),
        means=dict(each.split(":") for each in given.get("means", "").split(",") if each),
        # Interned, as in the configuration's reader: a default is omitted by identity.
        unready=cast("Any", sys.intern(given.get("unready", "poweroff"))),
        left_pods=cast("Any", sys.intern(given.get("left", "keep"))),
    )


def _started(command: Command) -> f.DaemonStarted:
    return f.DaemonStarted(
        version="0",
        pid=1,
        mode=command.options.get("mode", "process"),
        node="n",
        boot_id=command.options.get("boot", "b1"),
        userspace_id=command.options.get("userspace", "u1"),
        preparing=_truth(command, "preparing", "no"),
        lock_inherited=bool(_truth(command, "lock", "no")),
        kind=_kind(command),
        grant_ns=_duration(command, "grant"),
        failed_starts=int(command.options.get("failed", "0")),
    )


def _logind_read(command: Command) -> f.LogindRead:
    return f.LogindRead(
        owner=":1.1",
        grant_ns=_duration(command, "grant", "40s"),
        preparing=bool(_truth(command, "preparing", "no")),
        kind=_kind(command),
        kubelet_lock=bool(_truth(command, "kubelet-lock", "no")),
    )


def _signal(command: Command) -> f.PrepareForShutdown:
    return f.PrepareForShutdown(
        active=True,
        kind=_kind(command),
        grant_ns=_duration(command, "grant", "40s"),
        lock_held=bool(_truth(command, "lock", "yes")),
        kubelet_lock=bool(_truth(command, "kubelet-lock", "no")),
    )


def _drop_ins(command: Command) -> f.DropInsRead:
    return f.DropInsRead(
        others_ns=_duration(command, "others"),
        ours_ns=_duration(command, "ours") if "ours" in command.options else None,
        overridden_by=command.options.get("overridden", ""),
    )


def _exits(command: Command) -> Iterator[f.ContainerExited]:
    """``exit web-0 db-0/proxy code=0``: each in turn. ``code= gone=yes``: unseen. ``ran=no``. ``code=255
    lost=yes``: by the runtime.
    """
    signal = command.options.get("signal", "")
    never_ran = command.options.get("ran", "yes") == "no"
    code = command.options.get("code", "" if signal or never_ran else "0")
    gone = command.options.get("gone", "no") == "yes"
    for word in command.words:
        uid, _, container = word.partition("/")
        yield f.ContainerExited(
            uid=uid,
            container=container or "main",
            exit_code=int(code) if code else None,
            signal=signal,
            gone=gone,
            never_ran=never_ran,
            lost=command.options.get("lost", "no") == "yes",
        )


def _autopsy(command: Command) -> f.AutopsyTaken:
    uid, _, container = command.words[0].partition("/")
    ignored = tuple(each for each in command.options.get("ignores", "").split(",") if each)
    first = ProcessReport(pid=7, parent_pid=1, command="app", state="S", signals_ignored=ignored)
    seen = () if "gone" in command.words else (first,)
    return f.AutopsyTaken(uid=uid, container=container or "main", processes=seen)


#: Verbs that are a fact, or some.
FACTS: dict[str, Callable[[Command], Fact | Iterable[Fact]]] = {
    **OUTAGE_FACTS,
    "kubelet": lambda command: f.KubeletRead(
        unit="kubelet.service",
        active=_UP[command.words[0]],
        healthy=_TRUTH[command.options.get("healthy", "unknown")],
    ),
    "runtime": lambda command: f.RuntimeRead(reachable=command.words[0] == "up"),
    "api": lambda command: f.ApiRead(
        reachable=command.words[0] == "up", taint="untainted" not in command.words
    ),
    "joins": lambda command: (f.PodJoined(pod=pod(line)) for line in command.body),
    "unmounted": lambda command: (f.VolumesUnmounted(uid=uid) for uid in command.words),
    "settings": lambda command: f.SettingsLoaded(settings=settings(command)),
    "last-boot": lambda command: f.LastBootRead(
        boot_id=command.words[0],
        alive_wall_ns=_duration(command, "alive", "0s"),
        **{name: value for name, value in command.options.items() if name in ("crash", "wtmp", "journal")},
        **dict.fromkeys(command.words[1:], True),
    ),
    "stop": lambda command: f.StopRequested(
        system_stopping="system" in command.words, stop_time_ns=_duration(command, "time", "90s")
    ),
    "logind": _logind_read,
    "signal": _signal,
    "cancel": lambda command: f.PrepareForShutdown(active=False),
    "preparing": lambda command: f.PreparingRead(preparing=bool(_TRUTH[command.words[0]])),
    "bus-lost": lambda command: f.BusLost(error=command.words[0]),
    "drop-ins": _drop_ins,
    "exit": _exits,
    "appears": lambda command: (f.PodAppeared(pod=pod(line)) for line in command.body),
    "autopsy": _autopsy,
    "hurry": lambda command: f.HurryRequested(pod=command.words[0], asked_by=0),
    "release": lambda command: f.ReleaseRequested(asked_by=0),
}


# --- the daemon, the node and the clock


def _start(bench: Bench, command: Command) -> Output:
    bench.daemon_runs = True
    bench.feed(_started(command))
    return None


def _die(bench: Bench, command: Command) -> Output:
    """SIGKILL the daemon: until a start no order is answered. ``clock``: another boot's."""
    bench.daemon_runs = False
    bench.system = bench.restored()
    if "clock" in command.options:
        bench.now_ns = show.BASE_NS + _duration(command, "clock")
    return []


def _away(bench: Bench, command: Command) -> Output:
    """Time without a daemon: no ticks."""
    bench.now_ns += duration_ns(command.words[0])
    return []


def _node(bench: Bench, command: Command) -> Output:
    """An armed node: start, settings, logind read, arming done."""
    mode = command.options.get("mode", "process")
    _start(bench, Command(command.line, "start", [], {"mode": mode}))
    if mode != "process":
        for fact in HEALTHY:
            bench.feed(fact)
    bench.feed(f.SettingsLoaded(settings=settings(command)))
    _armed(bench, command)
    return [f"armed, {len(bench.records)} records"]


def _armed(bench: Bench, command: Command) -> Output:
    """A successful arming's facts: the read, then the outcome."""
    bench.feed(_logind_read(command))
    bench.feed(f.OrderEnded(key=bench.open_key(Arm), result="done"))
    return None


def _fresh(bench: Bench, command: Command) -> Output:
    """A new machine and clock for the next scenario."""
    bench.__init__(bench.system.logic)  # type: ignore[misc]  # the one way to begin anew that cannot forget a field
    return []


def _shutdown(bench: Bench, command: Command) -> Output:
    """An armed node with a begun shutdown; shows only the waves. Options: settings and grant."""
    if not bench.records:
        _node(bench, command)
    bench.feed(_signal(command))
    _inventory(bench, Command(command.line, "inventory", [], {}, command.body))
    bench.shown = [record for record in bench.shown if isinstance(record.event, WaveStarted)]
    return None


def _after(bench: Bench, command: Command) -> Output:
    bench.advance(bench.now_ns + duration_ns(command.words[0]))
    return None


# --- orders, and looking


def _inventory(bench: Bench, command: Command) -> Output:
    """The edge's listing for the newest open `TakeInventory`."""
    key = command.options.get("key") or bench.open_key(TakeInventory)
    part, parts = map(int, command.options.get("part", "1/1").split("/"))
    pods, source = tuple(map(pod, command.body)), command.options.get("source", "test")
    bench.feed(
        f.InventoryTaken(key=key, as_of_ns=bench.now_ns, source=source, part=part, parts=parts, pods=pods)
    )
    if part == parts and key in bench.orders and "unanswered" not in command.words:
        bench.feed(f.OrderEnded(key=key, result="done"), hide_if_alone=True)
    return None


def _end(bench: Bench, command: Command) -> Output:
    """The verb is the result. A permit has its count first: ``failed permit recovering=1 zone=1/2``."""
    keys = [key for key in bench.orders if fnmatchcase(key, f"*{command.words[0]}*")]
    if not keys:
        raise ScriptError(
            f"line {command.line}: no open order is like {command.words[0]!r}: {list(bench.orders)}"
        )
    for key in keys:
        reason = command.options.get("reason", "")
        given = {name: value.partition("/") for name, value in command.options.items() if name != "reason"}
        if isinstance(bench.orders[key], RequestPermit) and (given or command.verb == "done"):
            counts: dict[str, Any] = {
                name: _TRUTH[count] if count in _TRUTH else int(count)
                for name, (count, _, most) in given.items()
                if not most
            }
            parts = [
                (cast("Any", name), int(out), int(most)) for name, (out, _, most) in given.items() if most
            ]
            limits = tuple(BrakeLimit(part=part, out=out, most=most) for part, out, most in parts)
            counted = replace(COUNTED, key=key, limits=limits, **counts)
            bench.feed(counted)
            reason = refusal(counted) if command.verb == "failed" else ""
        bench.feed(f.OrderEnded(key=key, result=cast("f.Result", command.verb), reason=reason))
    return None


def _mounts(bench: Bench, command: Command) -> Output:
    """``mounts web/data``: answer the open `CheckMounts`."""
    key = bench.open_key(CheckMounts)
    mounted = tuple((uid, volume) for uid, _, volume in (word.partition("/") for word in command.words))
    bench.feed(f.MountsRead(key=key, mounted=mounted))
    bench.feed(f.OrderEnded(key=key, result="done"))
    return None


def _statuses(bench: Bench, command: Command) -> Output:
    """``statuses missing=web,db``: the awaited statuses that the API server lacks. With ``key``, a slow
    delivery reports.
    """
    key = command.options.get("key") or bench.open_key(AwaitStatuses)
    missing = tuple(each for each in command.options.get("missing", "").split(",") if each)
    bench.feed(f.StatusesSeen(key=key, missing=missing))
    if "key" not in command.options:
        bench.feed(f.OrderEnded(key=key, result="timed-out" if missing else "done"))
    return None


def _manual(bench: Bench, command: Command) -> Output:
    """Answer these orders by hand (again: those of `MANUAL`)."""
    bench.manual = (*MANUAL, *command.words)
    return []


def _automatic(bench: Bench, command: Command) -> Output:
    bench.manual = tuple(each for each in bench.manual if each not in command.words)
    return []


def _fail(bench: Bench, command: Command) -> Output:
    """``fail HookActor PodStopBegan and=FallbackActor/ActorFailed``: two in the same step. ``fail HookActor
    Tick stuck``: it has no effect.
    """
    failing = [command.words]
    if "and" in command.options:
        failing.append(command.options["and"].split("/"))
    bench.saboteurs = tuple(Saboteur(*words) for words in failing)
    return []


def _state(bench: Bench, command: Command) -> Output:
    actor, _, subject = command.words[0].partition(":")
    slot = bench.system.slots.get((actor, subject))
    if slot is None:
        return ["none"]
    wanted = command.words[1:]
    lines = [each for each in show.state(slot.state) if not wanted or each.partition(":")[0] in wanted]
    return ["failed", *lines] if slot.failed else lines or ["as at the beginning"]


def _open(bench: Bench, command: Command) -> Output:
    return list(bench.orders) or ["none"]


def _outcomes(bench: Bench, command: Command) -> Output:
    """Each pod's outcome in recording order."""
    ended = [record.event for record in bench.records if isinstance(record.event, PodEnded)]
    return [f"{event.uid:<10} {event.outcome:<9} {event.reason}" for event in ended] or ["none"]


VERBS: dict[str, Verb] = {
    **OUTAGE_VERBS,
    "mounts": _mounts,
    "statuses": _statuses,
    **dict.fromkeys(get_args(f.Result), _end),
    "start": _start,
    "die": _die,
    "away": _away,
    "node": _node,
    "fresh": _fresh,
    "shutdown": _shutdown,
    "armed": _armed,
    "inventory": _inventory,
    "after": _after,
    "manual": _manual,
    "automatic": _automatic,
    "fail": _fail,
    "state": _state,
    "open": _open,
    "outcomes": _outcomes,
}
