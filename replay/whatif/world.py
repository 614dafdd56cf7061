"""The recorded edges: simulate's node with recorded times, and recorded answers for every order.

A model of logind, the runtime or the API server would not repeat a real node's record. So an order gets the
recorded outcome, with its facts, at the recorded delay. Orders are matched by key, or by key without its
ordinal. A fact from outside comes at its recorded time until the new run's release. A fact after the recorded
release comes as long after the new one.

An order that was open at the record's end ends just after that, or after the slowest time of its kind. If it
hung longer than any other of its kind, it hangs for ever in the worst case. An order without a recorded twin
is done after the slowest time of its kind, and is reported (`replay.whatif.whatif_run`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, cast

from msgspec.structs import replace

from ebbtide.actors.actor import NEVER_NS
from ebbtide.actors.policy.grace_periods import FLOOR_NS
from ebbtide.events import decisions
from ebbtide.events.base import NS_PER_SECOND, Fact, Order, Record
from ebbtide.events.facts import ContainerExited, OrderEnded, Result
from ebbtide.events.units import span
from ebbtide.events.values import Container
from ebbtide.replay.sim.loop import RANKS, TICKS, Agenda, Entry
from ebbtide.replay.sim.scenario import ContainerPlan, HookPlan
from ebbtide.replay.sim.sim_node import SimulatedContainer, SimulatedPods, WorldLog
from ebbtide.replay.whatif.record import (
    Answer,
    ChangedFact,
    Downtime,
    RecordedBehaviour,
    RecordedContainer,
    RecordedHook,
    RecordedShutdown,
    kubelet_kills_ns,
    kubelet_sleeps_ns,
    up_to_next,
)

#: Just after a bound.
MOMENT_NS = 1

#: They change no result, so they need no recorded twin.
HARMLESS = (decisions.SendSignal, decisions.KillContainer, decisions.TakeAutopsy, decisions.CancelOrder)

# --- how well the record supports a new run

#: In the record; beyond a recorded limit ("it needed more than 20 s"); not in the record. A pod has the
#: weaker level of both runs.
Level = Literal["observed", "bound", "assumed"]

LEVELS: tuple[Level, ...] = ("observed", "bound", "assumed")


class Support(NamedTuple):
    """``why`` is empty when observed."""

    level: Level = "observed"
    why: str = ""


class Evidence:
    """A pod without an entry is observed."""

    def __init__(self) -> None:
        self._found: dict[str, Support] = {}

    def weaken(self, uid: str, level: Level, why: str) -> None:
        """The first reason of a level stays."""
        if LEVELS.index(level) > LEVELS.index(self.of(uid).level):
            self._found[uid] = Support(level, why)

    def of(self, uid: str) -> Support:
        return self._found.get(uid, Support())


def weakest(found: Iterable[Support]) -> Support:
    return max(found, key=lambda each: LEVELS.index(each.level), default=Support())


# --- when a fact of the new run is admitted

# Three rules make an unchanged run repeat the record: a fact at its recorded time keeps its place; a tick is
# as late as the recorded tick of its deadline; without a daemon no fact is admitted. The lanes of
# `replay.sim.loop` order facts at other times.

#: Lanes above every place in a record, and the last at an instant.
RANK_SPAN = 1 << 60
RANK_LAST = 9 * RANK_SPAN


class RunAgenda(Agenda):
    def __init__(self, shutdown: RecordedShutdown, downtimes: Sequence[Downtime]) -> None:
        super().__init__(shutdown.signal_ns)
        self._over = False
        self._shutdown, self._downtimes = shutdown, downtimes

    def admit(self, at_ns: int, fact: Fact, changed: ChangedFact | None = None) -> Entry:
        """``changed``: the recorded fact, whose place the new one takes at the same time."""
        at_ns = self._heard_ns(max(at_ns, self.now_ns))
        if changed is not None and at_ns == changed.mono_ns:
            return self.put(at_ns, fact, 2 * changed.seq)
        lane = (1 + RANKS[fact.lane]) * RANK_SPAN
        return self.put(at_ns, fact, lane + (2 * changed.seq if changed is not None else RANK_SPAN // 2))

    def end(self, at_ns: int) -> None:
        """No fact is admitted after this. If it is the record's end, all facts of that instant are."""
        lane = 2 * self._shutdown.last_fact_seq + 1 if at_ns == self._shutdown.last_ns else RANK_LAST
        self.put(at_ns, self._close, lane)

    def _close(self) -> None:
        self._over = True
        self.clear()

    def tick_due(self, deadline_ns: int) -> tuple[int, int]:
        if self._over:
            return NEVER_NS, TICKS
        late = self._shutdown.late.get(deadline_ns)
        return late or (self._heard_ns(deadline_ns), (1 + TICKS) * RANK_SPAN)

    def _heard_ns(self, at_ns: int) -> int:
        """A fact waits while no daemon runs."""
        ends = (down.end_ns for down in self._downtimes if down.begin_ns < at_ns < down.end_ns)
        return next(ends, at_ns)


# --- how long a container and its hook take


class RunContext(NamedTuple):
    """``end_ns``: the record's end. ``first_kills``: pods of containers that only the new run kills."""

    agenda: RunAgenda
    pods: SimulatedPods
    evidence: Evidence
    is_best: bool
    end_ns: int
    first_kills: dict[str, None]


class RecordedTimes:
    """A container's times in a new run (`replay.sim.sim_node.ContainerTimes`), from the record.

        recorded                    after the stop signal of the new run
        exited after its signal     exits the same time after it; other signal or hook before it: a bet
        killed                      a bet from its recorded time on
        exited in its hook          exits the same time after the hook's start; a signal before that: a bet
        exited by itself            exits at that time; a signal before that: a bet
        still there at the end      as if killed then
        never asked to stop         a bet from the signal on

    A *bet*: the record has only a bound. In the best case the container ends just after it, in the worst case
    never by itself. SIGKILL takes as long as in the record; if it did not kill the container there, it takes
    no time in the best case, and has no effect in the worst.

    ``spec``: in the new run's plan. ``hook_ran``: whether its hook ended by itself; None: no hook ran.
    """

    def __init__(self, uid: str, name: str, seen: RecordedContainer, common: RunContext) -> None:
        self.seen = seen
        self.spec: Container | None = None
        self.hook_ran: bool | None = None
        self._uid, self._name, self._common = uid, name, common
        #: When it ends by itself.
        self._end_ns: int | None = None
        self._bet = ""
        #: Of its pod's delete.
        self._grace_ns: int | None = None
        #: It exits as in the record, also after a SIGKILL.
        self._as_recorded = seen.how not in ("killed", "stays")

    def after_start_ns(self) -> int | None:
        seen = self.seen
        return self._ends_at(seen.exited.at_ns) if seen.how == "by-itself" and seen.exited else None

    def after_hook_ns(self) -> int | None:
        """A sleep does not reach the container."""
        hook, exited = self.seen.hook, self.seen.exited
        if self.seen.how == "in-hook" and hook is not None and exited is not None:
            return self._ends_at(self._now_ns + exited.at_ns - hook.began.mono_ns)
        return None

    def deleted(self, taken_ns: int, grace_ns: int) -> None:
        """The kubelet stops it, unless another component did in the record."""
        seen, pods = self.seen, self._common.pods
        if seen.signalled is not None and not seen.by_kubelet:
            if seen.grace_ns != grace_ns:
                self._weaken("assumed", f"the kubelet did not stop {self._name} in the record")
            return
        box, agenda = pods.boxes[self._uid, self._name], self._common.agenda
        self._grace_ns = grace_ns
        sleeps_ns = kubelet_sleeps_ns(self.spec, grace_ns)
        kills_ns = sleeps_ns + kubelet_kills_ns(self.spec, grace_ns)
        if self._kubelet_hook and seen.how != "killed":
            kills_ns = grace_ns + FLOOR_NS
        agenda.later(taken_ns + sleeps_ns, lambda: pods.signal(box, 0, False))
        agenda.later(taken_ns + kills_ns, lambda: pods.kill(box, 0, False))

    def after_signal_ns(self) -> int | None:
        if self.seen.how == "stopped":
            return self._after_recorded_signal_ns()
        if self.seen.how in ("killed", "stays"):
            had_ns = self.seen.had_ns(self._common.end_ns)
            if self.seen.refused:
                self._weaken("bound", f"the runtime refuses to stop {self._name}, as it did in the record")
                return None
            if had_ns is not None:
                self._bet = f"{self._name} needed more than {span(had_ns)} after its stop signal"
                return self._best_ns(had_ns + MOMENT_NS)
        elif self._end_ns is not None:
            self._weaken(
                "bound",
                f"{self._name} ended without a stop signal in the record, and has one before that now",
            )
            return self._best_ns(0)
        self._weaken("assumed", f"the record does not show how {self._name} stops")
        return self._best_ns(0)

    def _after_recorded_signal_ns(self) -> int | None:
        seen = self.seen
        assert seen.exited is not None
        assert seen.signalled is not None
        took_ns = seen.exited.at_ns - seen.signalled.mono_ns
        if seen.gone_after_ns is not None and self._now_ns != seen.signalled.mono_ns:
            self._weaken(
                "bound", f"{self._name} ended while no daemon ran, up to {span(took_ns)} after its signal"
            )
            took_ns = seen.gone_after_ns if self._common.is_best else took_ns
        if self._grace_ns is not None and seen.grace_ns is not None:
            then, now = seen.spec, self.spec
            if then is not None and now is not None and then.hook != now.hook:
                self._weaken("assumed", f"the kubelet runs another hook of {self._name} than in the record")
                return self._best_ns(0)
            longer_ns = self._grace_ns - seen.grace_ns
            if self._kubelet_hook and longer_ns and took_ns > min(seen.grace_ns, self._grace_ns):
                # The kubelet cut the hook at its grace, or does it now.
                self._weaken("bound", f"the record does not show how long the hook of {self._name} takes")
                if took_ns <= seen.grace_ns:
                    return self._best_ns(self._grace_ns)
                took_ns += longer_ns if longer_ns < 0 or not self._common.is_best else 0
        # If a hook was cut in the record and ends now, the hook is the bet, not the stop.
        ran = seen.hook.ran_out if seen.hook is not None else None
        other_hook = self.hook_ran != ran and not (ran is False and self.hook_ran)
        signals = [spec.stop_signal for spec in (seen.spec, self.spec) if spec is not None]
        if other_hook or len(dict.fromkeys(signals)) > 1:
            why = f"{self._name} stopped {span(took_ns)} after its signal, and its way there is another now"
            self._weaken("assumed", why)
            if not self._common.is_best:
                return None
        return self._ends_at(self._now_ns + took_ns)

    def after_kill_ns(self) -> int | None:
        seen, box = self.seen, self._common.pods.boxes[self._uid, self._name]
        killed_ns = None
        if seen.exited is not None and seen.killed is not None and seen.killed.seq < seen.exited.seq:
            killed_ns = seen.exited.at_ns - seen.killed.mono_ns
        if seen.how == "stopped" and killed_ns is not None and self._end_ns is not None:
            # SIGKILL came in the record too, and the container ended by itself before it took effect.
            left_ns = self._end_ns - self._now_ns
            if left_ns <= killed_ns:
                return left_ns
        had_ns = seen.had_ns(self._common.end_ns)
        since_ns = self._now_ns if box.signalled_ns is None else box.signalled_ns
        due_ns = kubelet_kills_ns(seen.spec, seen.grace_ns or 0)
        if seen.by_kubelet and seen.killed is None and self._now_ns - since_ns >= due_ns:
            # The record shows it alive after the kubelet's SIGKILL was due.
            if seen.how == "stopped" and self._end_ns is not None:
                return self._end_ns - self._now_ns
            if seen.how == "stays":
                return self._best_ns(since_ns + (had_ns or 0) - self._now_ns + MOMENT_NS)
        shown = seen.how in ("killed", "stays") and not seen.refused
        if shown and had_ns is not None and self._now_ns - since_ns > had_ns:
            self._weaken("bound", f"{self._name} needed more than {span(had_ns)} after its stop signal")
        self._as_recorded = seen.how == "killed"
        if seen.how == "killed" and killed_ns is not None:
            if self._kubelet_hook and self._grace_ns != seen.grace_ns and killed_ns >= FLOOR_NS:
                # Its hook took all its grace. With more time the hook, and then the container, may end.
                self._weaken("bound", f"the record does not show how long the hook of {self._name} takes")
                killed_ns -= FLOOR_NS if self._common.is_best else 0
            return killed_ns
        if seen.how == "stays" and seen.killed is not None:
            return None
        self._weaken("bound", f"the record does not show how long SIGKILL takes for {self._name}")
        self._common.first_kills[self._uid] = None
        return 0 if self._common.is_best else None

    def exited(self, box: SimulatedContainer) -> None:
        seen, agenda = self.seen, self._common.agenda
        if self._bet and not box.killed:
            self._weaken("bound", self._bet)
        if self._as_recorded and seen.exited is not None:
            agenda.admit(agenda.now_ns, seen.exited.event, seen.exited)
        else:
            exited = ContainerExited(uid=self._uid, container=self._name, signal=box.exit_signal)
            agenda.admit(agenda.now_ns, exited)
        if seen.exited is not None:
            for again in seen.exited_again:
                agenda.admit(self._now_ns + again.at_ns - seen.exited.at_ns, again.event, again)

    def planned(self, spec: Container) -> None:
        """A container that ends before its first plan, and after it in the record, is found gone."""
        then, exited = self.seen.planned, self.seen.exited
        gone = self._common.pods.boxes[self._uid, self._name].phase == "exited"
        if gone and self.spec is None and then is not None and exited is not None and then.seq < exited.seq:
            self._common.agenda.admit(self._now_ns, exited.event, exited)
        self.spec = spec

    @property
    def _kubelet_hook(self) -> bool:
        """The kubelet runs a hook, and the record does not show it."""
        hook = self.spec.hook if self.spec is not None else None
        return hook is not None and hook.kind in ("exec", "httpGet")

    @property
    def _now_ns(self) -> int:
        return self._common.agenda.now_ns

    def _weaken(self, level: Level, why: str) -> None:
        self._common.evidence.weaken(self._uid, level, why)

    def _best_ns(self, after_ns: int) -> int | None:
        return after_ns if self._common.is_best else None

    def _ends_at(self, at_ns: int) -> int:
        self._end_ns = at_ns
        return max(0, at_ns - self._now_ns)


class HookRun:
    """A hook that ended by itself takes as long as in the record. A hook that was cut after 10 s ends just
    after that in the best case, and never by itself in the worst. An unknown or changed hook ends at once in
    the best case, and never in the worst.
    """

    def __init__(
        self,
        order: decisions.RunHook,
        box: SimulatedContainer,
        times: RecordedTimes,
        common: RunContext,
        recorded: RecordedBehaviour,
    ) -> None:
        self._order, self._box, self._times, self._common = order, box, times, common
        self._began_ns = common.agenda.now_ns
        self._bet = False
        times.hook_ran = False
        then, now = times.seen.spec, times.spec
        seen = recorded.hooks.get(order.key, times.seen.hook)
        self._seen = seen if then is None or now is None or then.hook == now.hook else None
        self._outcome: ChangedFact | None = None
        takes_ns = self._takes_ns(recorded.downtimes)
        self._process = common.pods.run_hook(box, order.key, 0, False, HookPlan(takes_ns))
        self._process.followers.append(self._ended)

    def _takes_ns(self, downtimes: Sequence[Downtime]) -> int | None:
        """None: until it is cut. Without ``_outcome`` it succeeds."""
        known = self._seen
        if known is None:
            why = f"the record does not show how long the hook of {self._order.container} takes"
            self._common.evidence.weaken(self._order.uid, "assumed", why)
            return 0 if self._common.is_best else None
        self._outcome = known.ended
        longer = self._common.is_best and self._order.timeout_ns > known.timeout_ns
        if known.ended is not None:
            ran_ns = known.ended.at_ns - known.began.mono_ns
            if known.ran_out or (known.cut is None and known.result == "unknown" and known.alive_ns is None):
                # No restart: a runtime that did not answer lost its outcome.
                return ran_ns
            if known.cut is None and known.result == "timed-out" and not longer:
                # Its edge ends it at its timeout, as late as in the record.
                return self._order.timeout_ns + ran_ns - known.timeout_ns
            # The record's restart lost its outcome; so does the new one if this hook runs then.
            again = any(self._began_ns <= down.begin_ns for down in downtimes)
            if known.cut is None and known.result == "unknown" and again:
                return known.ended.at_ns - self._began_ns
        self._outcome, self._bet = None, True
        return known.at_least_ns(self._common.end_ns) + MOMENT_NS if self._common.is_best else None

    def _ended(self) -> None:
        if self._process.succeeded is None:
            return  # cut
        now_ns = self._common.agenda.now_ns
        outcome = OrderEnded(key=self._order.key, result="done", elapsed_ns=now_ns - self._began_ns)
        if self._outcome is not None:
            outcome = cast(OrderEnded, keyed(self._outcome.event, self._order.key))
        self._times.hook_ran = outcome.result in ("done", "failed")
        if self._bet and self._seen is not None:
            self._weaken(self._seen)
        self._common.agenda.admit(now_ns, outcome, self._outcome)

    def cut(self, cancel: decisions.CancelOrder) -> None:
        if self._process.ended:
            return
        self._common.pods.stop_hook(self._box, self._process)
        known, now_ns = self._seen, self._common.agenda.now_ns
        over_ns = 0 if known is None else known.at_least_ns(self._common.end_ns)
        if known is not None and not known.ran_out and now_ns - self._began_ns > over_ns:
            self._weaken(known)
        result: Result = "timed-out" if cancel.timed_out else "cancelled"
        if known is None or known.cut is None:
            self._common.agenda.admit(now_ns, OrderEnded(key=self._order.key, result=result))
        elif known.ended is not None:
            event = cast(OrderEnded, keyed(known.ended.event, self._order.key))
            same = known.cut_timed_out == cancel.timed_out
            self._common.agenda.admit(
                now_ns + known.ended.at_ns - known.cut.mono_ns,
                event if same else replace(event, result=result),
                known.ended if same else None,
            )

    def _weaken(self, known: RecordedHook) -> None:
        ran = span(known.at_least_ns(self._common.end_ns))
        why = f"the hook of {self._order.container} needed more than {ran}"
        self._common.evidence.weaken(self._order.uid, "bound", why)


def keyed(fact: Fact, key: str) -> Fact:
    return fact if getattr(fact, "key", key) == key else replace(fact, key=key)


# --- every order is answered


class RecordedWorld:
    """``invented``: outcomes that are not in the record, by type of order. ``missed``: facts from outside
    that come after the new release. ``first_kills``: as in `RunContext`.
    """

    def __init__(
        self, shutdown: RecordedShutdown, seen: RecordedBehaviour, agenda: RunAgenda, *, is_best: bool
    ) -> None:
        self.evidence = Evidence()
        self.invented: dict[str, int] = {}
        self.missed = 0
        self.first_kills: dict[str, None] = {}
        self._shutdown, self._seen, self._agenda, self._is_best = shutdown, seen, agenda, is_best
        self._pods = SimulatedPods(WorldLog(lambda: agenda.now_ns), agenda)
        self._pods.watchers.append(lambda box: self._times[box.uid, box.name].exited(box))
        self._common = RunContext(
            agenda, self._pods, self.evidence, is_best, shutdown.last_ns, self.first_kills
        )
        self._times: dict[tuple[str, str], RecordedTimes] = {}
        self._hooks: dict[str, HookRun] = {}
        self._released = False
        #: The type of each order without a recorded outcome, until its outcome is admitted.
        self._invented: dict[str, str] = {}
        self._given: dict[str, None] = {}
        #: Recorded orders by family. Each is used once.
        families: dict[str, list[str]] = {}
        for key in seen.answers:
            families.setdefault(_family(key), []).append(key)
        self._twins = {family: iter(keys) for family, keys in families.items()}
        self._outside = [agenda.admit(each.at_ns, each.event, each) for each in seen.outside]
        for uid, name in seen.containers:
            self._container(uid, name)

    def answer(self, records: Sequence[Record]) -> None:
        for record in up_to_next(records, self._shutdown.first_seq):
            event = record.event
            match event:
                case decisions.PodPlanned():
                    for spec in event.pod.containers:
                        self._container(event.pod.uid, spec.name)
                        self._times[event.pod.uid, spec.name].planned(spec)
                case decisions.RunHook():
                    self._run_hook(event)
                case decisions.CancelOrder() if event.target in self._hooks:
                    self._hooks[event.target].cut(event)
                case decisions.SendSignal():
                    self._pods.signal(self._container(event.uid, event.container), 0, False)
                case decisions.KillContainer():
                    self._pods.kill(self._container(event.uid, event.container), 0, False)
                case decisions.ReleaseLock() if not self._released:
                    self._release()
                case OrderEnded() if event.key in self._invented:
                    name = self._invented.pop(event.key)
                    self.invented[name] = self.invented.get(name, 0) + 1
            if isinstance(event, Order):
                self._answer(event)

    def _answer(self, order: Order) -> None:
        twin = self._twin(order.key)
        answers = self._seen.answers.get(twin, ())
        if not answers:
            # How long it was open in the record.
            asked = self._seen.orders.get(twin)
            self._invent(order, 0 if asked is None else self._shutdown.last_ns - asked[0].mono_ns + MOMENT_NS)
        if isinstance(order, decisions.DeletePod):
            # The kubelet learns of it after the API server.
            taken_ns = 0
            for each in answers:
                if isinstance(each.changed.event, OrderEnded) and each.changed.event.result == "done":
                    taken_ns = each.delay_ns
            for (uid, _), times in self._times.items():
                if uid == order.uid:
                    times.deleted(taken_ns, order.grace_seconds * NS_PER_SECOND)
        for answer in answers:
            # A hook's outcome comes from its `HookRun`.
            if not (order.key in self._hooks and isinstance(answer.changed.event, OrderEnded)):
                self._play(order, answer)

    def _container(self, uid: str, name: str) -> SimulatedContainer:
        if (uid, name) not in self._times:
            seen = self._seen.containers.get((uid, name), RecordedContainer())
            times = self._times[uid, name] = RecordedTimes(uid, name, seen, self._common)
            box = self._pods.boxes[uid, name] = SimulatedContainer(uid, name, ContainerPlan(), times=times)
            self._pods.start(box, 0)
        return self._pods.boxes[uid, name]

    def _run_hook(self, order: decisions.RunHook) -> None:
        box = self._container(order.uid, order.container)
        times = self._times[order.uid, order.container]
        self._hooks[order.key] = HookRun(order, box, times, self._common, self._seen)
        self._pods.exit_after(box, times.after_hook_ns())

    def _twin(self, key: str) -> str:
        """The recorded order with this key, or the next unused one of its family: one order less changes the
        ordinals of the actor's later orders.
        """
        self._given[key] = None
        if key in self._seen.answers:
            return key
        twins = self._twins.get(_family(key), iter(()))
        found = next((each for each in twins if each not in self._given), key)
        self._given[found] = None
        return found

    def _play(self, order: Order, answer: Answer) -> None:
        now_ns, fact = self._agenda.now_ns, keyed(answer.changed.event, order.key)
        if not answer.restart:
            self._agenda.admit(now_ns + answer.delay_ns, fact, answer.changed)
            return
        restarts = (down for down in self._seen.downtimes if down.seq == answer.restart)
        down = next((down for down in restarts if now_ns <= down.begin_ns), None)
        if down is not None:
            self._agenda.admit(down.end_ns + answer.delay_ns, fact, answer.changed)
        else:
            self._invent(order, 0)

    def _invent(self, order: Order, open_ns: int) -> None:
        name = type(order).__name__
        slowest_ns = self._seen.slowest_ns.get(name, 0)
        hangs = open_ns > slowest_ns + MOMENT_NS and not self._is_best
        if order.key in self._hooks or hangs:
            return
        if not isinstance(order, HARMLESS):
            self._invented[order.key] = name
        delay_ns = max(slowest_ns, open_ns)
        at_ns = self._agenda.now_ns + delay_ns
        for answer in self._seen.listing if isinstance(order, decisions.TakeInventory) else ():
            self._agenda.admit(at_ns, keyed(answer.changed.event, order.key))
        self._agenda.admit(at_ns, OrderEnded(key=order.key, result="done", elapsed_ns=delay_ns))

    def _release(self) -> None:
        self._released = True
        now_ns, seen = self._agenda.now_ns, self._seen
        for entry in self._outside:
            self.missed += entry.what is not None and entry.at_ns > now_ns
            self._agenda.drop(entry)
        for answer in seen.after_release:
            self._agenda.admit(now_ns + answer.delay_ns, answer.changed.event, answer.changed)
        tail_ns = self._shutdown.last_ns - seen.released.mono_ns if seen.released is not None else 0
        self._agenda.end(now_ns + max([tail_ns, *(answer.delay_ns for answer in seen.after_release)]))


def _family(key: str) -> str:
    """The key without its ordinal."""
    return key.rpartition("/")[0]
