"""The world of a new run: it answers every order as the record's order was answered.

Orders are matched by their key, without its ordinal where that has no twin. An outcome comes at its recorded
delay after the order. A fact from outside comes at its recorded time until the new run's release; a fact
after the recorded release comes as long after the new one.

An order that was open at the record's end ends just after that, or after the slowest time of its kind. One
that hung longer than any other of its kind is a bet: in the grim run it hangs for ever. An order without a
recorded twin is done after the slowest time of its kind, and counted; `replay.whatif.whatif_run` reports it.

A restart stays: no daemon hears a fact between the last record of the old process and the start of the new
one. Drop the start (``--drop-event``) to run without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, cast

from msgspec.structs import replace

from ebbtide.actors.actor import NEVER_NS
from ebbtide.events import decisions
from ebbtide.events.base import Event, Fact, Order, Record
from ebbtide.events.facts import ContainerExited, DaemonStarted, InventoryTaken, OrderEnded, Result
from ebbtide.events.units import span
from ebbtide.events.values import Container
from ebbtide.replay.sim.loop import RANKS, REST, TICKS, Agenda, Entry
from ebbtide.replay.whatif.record import (
    Answer,
    ChangedFact,
    ContainerKey,
    Downtime,
    RecordedBehaviour,
    RecordedContainer,
    RecordedHook,
    RecordedShutdown,
    up_to_next,
)

#: These orders change no result, so they need no recorded twin.
HARMLESS_ORDERS = (
    decisions.SendSignal,
    decisions.KillContainer,
    decisions.TakeAutopsy,
    decisions.CancelOrder,
)


class RecordedWorld:
    """``invented``: outcomes that are not in the record, by type of order. ``missed``: facts too late.
    ``first_kills``: pods that are killed only in the new run.
    """

    def __init__(
        self, shutdown: RecordedShutdown, seen: RecordedBehaviour, run_agenda: RunAgenda, *, hopeful: bool
    ) -> None:
        self.evidence = Evidence()
        self.invented: dict[str, int] = {}
        self._invented: dict[str, str] = {}
        self.missed = 0
        self.first_kills: dict[str, None] = {}
        self._shutdown, self._seen, self._run_agenda = shutdown, seen, run_agenda
        self._common = RunContext(run_agenda, self.evidence, hopeful, shutdown.last_ns, self.first_kills)
        self._hooks: dict[str, HookRun] = {}
        self._released = False
        self._given: dict[str, None] = {}
        #: Recorded orders by family. Each is used once.
        families: dict[str, list[str]] = {}
        for key in seen.answers:
            families.setdefault(_family(key), []).append(key)
        self._twins = {family: iter(keys) for family, keys in families.items()}
        self._outside: list[Entry] = [
            run_agenda.admit(changed.at_ns, changed.event, changed) for changed in seen.outside
        ]
        self._containers: dict[ContainerKey, ContainerRun] = {
            whose: ContainerRun(whose, container, self._common)
            for whose, container in seen.containers.items()
        }

    def answer(self, records: Sequence[Record]) -> None:
        for record in up_to_next(records, self._shutdown.first_seq):
            event = record.event
            self._note(event)
            if isinstance(event, Order):
                # A hook's outcome comes from its `HookRun`.
                twin = self._twin(event.key)
                answers = self._seen.answers.get(twin, ())
                if not answers and twin not in self._seen.silenced:
                    # The record shows it without an outcome for this long.
                    asked_ns = self._seen.asked_ns.get(twin)
                    open_ns = 0 if asked_ns is None else self._shutdown.last_ns - asked_ns + MOMENT_NS
                    self._invent(event, open_ns)
                for answer in answers:
                    if not (event.key in self._hooks and isinstance(answer.changed.event, OrderEnded)):
                        self._play(event, answer)

    def _twin(self, key: str) -> str:
        """The recorded order with this key, or the next unused one of its family.

        An actor's ordinals count all its orders: after one order less, the others have other ordinals.
        """
        self._given[key] = None
        if key in self._seen.answers:
            return key
        twins = self._twins.get(_family(key), iter(()))
        found = next((each for each in twins if each not in self._given), key)
        self._given[found] = None
        return found

    def _play(self, order: Order, answer: Answer) -> None:
        now_ns = self._run_agenda.now_ns
        if not answer.restart:
            self._run_agenda.admit(
                now_ns + answer.delay_ns, _keyed(answer.changed.event, order.key), answer.changed
            )
            return
        restarts = (down for down in self._seen.downtimes if down.seq == answer.restart)
        down = next((down for down in restarts if now_ns <= down.begin_ns), None)
        if down is not None:
            fact = _keyed(answer.changed.event, order.key)
            self._run_agenda.admit(down.end_ns + answer.delay_ns, fact, answer.changed)
        else:
            self._invent(order)

    def _invent(self, order: Order, open_ns: int = 0) -> None:
        name = type(order).__name__
        slowest_ns = self._seen.slowest_ns.get(name, 0)
        hangs = open_ns > slowest_ns + MOMENT_NS and not self._common.hopeful
        if order.key in self._hooks or hangs:
            return
        if not isinstance(order, HARMLESS_ORDERS):
            self._invented[order.key] = name
        delay_ns = max(slowest_ns, open_ns)
        at_ns = self._run_agenda.now_ns + delay_ns
        for answer in self._seen.listing if isinstance(order, decisions.TakeInventory) else ():
            assert isinstance(answer.changed.event, InventoryTaken)
            self._run_agenda.admit(at_ns, _keyed(answer.changed.event, order.key))
        self._run_agenda.admit(at_ns, OrderEnded(key=order.key, result="done", elapsed_ns=delay_ns))

    # --- notes --------------------------------------------------------------------------------

    def _container(self, uid: str, container: str) -> ContainerRun:
        whose = (uid, container)
        if whose not in self._containers:
            self._containers[whose] = ContainerRun(whose, RecordedContainer(), self._common)
        return self._containers[whose]

    def _note(self, event: Event) -> None:
        match event:
            case decisions.PodPlanned():
                for spec in event.pod.containers:
                    self._container(event.pod.uid, spec.name).planned(spec)
            case decisions.RunHook():
                container_run = self._container(event.uid, event.container)
                self._hooks[event.key] = HookRun(event, container_run, self._common, self._seen.downtimes)
            case decisions.CancelOrder() if event.target in self._hooks:
                self._hooks[event.target].cut(event)
            case OrderEnded():
                name = self._invented.get(event.key)
                if name is not None:
                    self.invented[name] = self.invented.get(name, 0) + 1
                if event.key in self._hooks:
                    self._hooks[event.key].ended(event)
            case decisions.SendSignal():
                self._container(event.uid, event.container).signalled()
            case decisions.KillContainer():
                self._container(event.uid, event.container).killed()
            case ContainerExited():
                self._container(event.uid, event.container).gone()
            case decisions.ReleaseLock() if not self._released:
                self._release()

    def _release(self) -> None:
        """The machine goes down: no fact comes from outside any more."""
        self._released = True
        now_ns, seen = self._run_agenda.now_ns, self._seen
        for entry in self._outside:
            self.missed += entry.what is not None and entry.at_ns > now_ns
            self._run_agenda.drop(entry)
        after = seen.after_release
        for answer in after:
            self._run_agenda.admit(now_ns + answer.delay_ns, answer.changed.event, answer.changed)
        tail_ns = self._shutdown.last_ns - seen.released.mono_ns if seen.released is not None else 0
        self._run_agenda.end(now_ns + max([tail_ns, *(answer.delay_ns for answer in after)]))


def _family(key: str) -> str:
    """The key without its ordinal."""
    return key.rpartition("/")[0]


def _keyed(fact: Fact, key: str) -> Fact:
    """The recorded answer with this order's key."""
    changed = getattr(fact, "key", key)
    return fact if changed == key else replace(fact, key=key)


# Hooks in a new run: the recorded outcome at the recorded delay, or a bet where there is only a bound.
#
# A hook that ended by itself takes as long again. One that was cut after 10 s needed more: it ends just after
# that in the hopeful run, and only when it is cut in the grim one. An unknown or changed hook ends at once in
# the hopeful run, and never in the grim one.


class HookRun:
    """One hook, from its order to its outcome."""

    def __init__(
        self,
        order: decisions.RunHook,
        container_run: ContainerRun,
        common: RunContext,
        downtimes: list[Downtime],
    ) -> None:
        self._order = order
        self._container = container_run
        self._common = common
        self._began_ns = common.run_agenda.now_ns
        self._bet = False
        self._over = False
        container_run.hook_ran = False
        container_run.hooked()
        # Whether the recorded hook is the same.
        then, now = container_run.seen.spec, container_run.spec
        is_same_hook = then is None or now is None or then.hook == now.hook
        self._seen = container_run.seen.hook if is_same_hook else None
        self._end: Entry | None = self._begin(downtimes)

    def cut(self, cancel: decisions.CancelOrder) -> None:
        """The pod's actor cancels it: its outcome comes as soon as in the record."""
        if self._over:
            return
        self._over = True
        self._common.run_agenda.drop(self._end)
        known = self._seen
        ran_ns = self._common.run_agenda.now_ns - self._began_ns
        if known is not None and not known.ran_out and ran_ns > self._known_ns(known):
            self._weaken(known)
        result: Result = "timed-out" if cancel.timed_out else "cancelled"
        if known is None or known.cut is None:
            self._put(0, OrderEnded(key=self._order.key, result=result))
        elif known.ended is not None:
            event = cast(OrderEnded, known.ended.event)
            same = known.cut_timed_out == cancel.timed_out
            self._put(known.ended.at_ns - known.cut.mono_ns, event if same else replace(event, result=result))

    def ended(self, event: OrderEnded) -> None:
        """Its outcome was admitted."""
        if self._over:
            return
        self._over = True
        self._container.hook_ran = event.result in ("done", "failed")
        if self._bet and self._seen is not None:
            self._weaken(self._seen)

    # --- its own end --------------------------------------------------------------------------

    def _begin(self, downtimes: list[Downtime]) -> Entry | None:
        known = self._seen
        if known is None:
            why = f"the record does not show how long the hook of {self._order.container} takes"
            self._common.evidence.weaken(self._order.uid, "assumed", why)
            return self._done(0) if self._common.hopeful else None
        if known.ended is not None and known.ran_out:
            return self._put(known.ended.at_ns - known.began.mono_ns, cast(OrderEnded, known.ended.event))
        if known.ended is not None and known.bounded:
            # Its edge ends it at its timeout, with the recorded deviation.
            assert known.ended is not None
            ran_ns = known.ended.at_ns - known.began.mono_ns
            if self._common.hopeful and self._order.timeout_ns > known.timeout_ns:
                return self._bet_on(known)
            slack_ns = ran_ns - known.timeout_ns
            return self._put(self._order.timeout_ns + slack_ns, cast(OrderEnded, known.ended.event))
        # The record's restart lost its outcome; so does the new one if this hook runs then.
        lost = known.lost and any(self._began_ns <= down.begin_ns for down in downtimes)
        if lost and known.ended is not None:
            return self._common.run_agenda.admit(known.ended.at_ns, known.ended.event, known.ended)
        return self._bet_on(known)

    def _bet_on(self, known: RecordedHook) -> Entry | None:
        if not self._common.hopeful:
            return None
        self._bet = True
        return self._done(self._known_ns(known) + MOMENT_NS)

    def _known_ns(self, known: RecordedHook) -> int:
        """How long it ran without ending."""
        ended_ns = known.ended.at_ns if known.ended is not None else None
        ends = (known.alive_ns, known.cut.mono_ns if known.cut is not None else None, ended_ns)
        until_ns = next((each for each in ends if each is not None), self._common.end_ns)
        return max(0, until_ns - known.began.mono_ns)

    # --- shared -------------------------------------------------------------------------------

    def _weaken(self, known: RecordedHook) -> None:
        why = f"the hook of {self._order.container} needed more than {span(self._known_ns(known))}"
        self._common.evidence.weaken(self._order.uid, "bound", why)

    def _done(self, delay_ns: int) -> Entry:
        return self._put(delay_ns, OrderEnded(key=self._order.key, result="done", elapsed_ns=delay_ns))

    def _put(self, delay_ns: int, event: OrderEnded) -> Entry:
        """A recorded outcome at its recorded time keeps its place."""
        changed = self._seen.ended if self._seen is not None and self._seen.ended is not None else None
        recorded = changed if changed is not None and event is changed.event else None
        fact = event if event.key == self._order.key else replace(event, key=self._order.key)
        return self._common.run_agenda.admit(self._common.run_agenda.now_ns + delay_ns, fact, recorded)


# A container's way down in a new run, with what the record shows of it.
#
#     recorded                    after the stop signal of the new run
#     exited after its signal     exits the same time after it; other signal or hook before it: a bet
#     killed                      nothing is known beyond the time that it had: a bet
#     exited in its hook          exits the same time after the hook's start; a signal before that: a bet
#     exited by itself            exits at that time, whatever is done; a signal before that: a bet
#     still there at the end      as one that was killed then
#     never asked to stop         a bet from the signal on
#
# A *bet*: the record has only a bound. In the hopeful run the container ends just after it, in the grim one
# never by itself. SIGKILL takes as long as in the record; for a container that was not killed there it is a
# bet again: at once, or never.


#: Just after a bound.
MOMENT_NS = 1


class RunContext(NamedTuple):
    """``end_ns``: the record's end. ``first_kills``: pods with a container that is killed only in the new
    run.
    """

    run_agenda: RunAgenda
    evidence: Evidence
    hopeful: bool
    end_ns: int
    first_kills: dict[str, None]


class ContainerRun:
    """``spec``: in the new run's plan. ``hook_ran``: whether its hook ended by itself; None: no hook ran."""

    def __init__(self, whose: ContainerKey, seen: RecordedContainer, common: RunContext) -> None:
        self.seen = seen
        self.spec: Container | None = None
        self.hook_ran: bool | None = None
        self._uid, self._name = whose
        self._common = common
        self._own: Entry | None = None
        #: When it ends by itself. Without a daemon it is reported later.
        self._own_ns = 0
        self._bet = ""
        self._signalled_ns: int | None = None
        self._killed = self._gone = False
        if seen.how == "by-itself" and seen.exited is not None:
            self._ends_at(seen.exited.at_ns, recorded=True)

    def planned(self, spec: Container) -> None:
        """A container that has ended before its plan, unlike in the record, is found gone."""
        self.spec = spec
        then, exited = self.seen.planned, self.seen.exited
        if then is not None and exited is not None and self._gone and then.seq < exited.seq:
            self._exit(self._now_ns, recorded=True)

    def hooked(self) -> None:
        """A real hook begins; a sleep does not reach the container."""
        hook, exited = self.seen.hook, self.seen.exited
        if self.seen.how == "in-hook" and hook is not None and exited is not None:
            self._ends_at(self._now_ns + exited.at_ns - hook.began.mono_ns, recorded=True)

    def signalled(self) -> None:
        """The first stop signal. Repeated ones change nothing."""
        if self._signalled_ns is None:
            self._signalled_ns = self._now_ns
            {"stopped": self._stopped, "killed": self._outlives, "stays": self._outlives}.get(
                self.seen.how, self._hurried
            )()

    def killed(self) -> None:
        """SIGKILL: it does not end by itself any more."""
        if self._killed:
            return
        self._killed = True
        seen = self.seen
        # Its exit is on its way, or unobserved.
        if (self._own is not None and self._own_ns < self._now_ns) or self._ends_first():
            return
        self._common.run_agenda.drop(self._own)
        had_ns = self._had_ns()
        shown = seen.how in ("killed", "stays") and not seen.refused
        since_ns = self._now_ns if self._signalled_ns is None else self._signalled_ns
        if shown and had_ns is not None and self._now_ns - since_ns > had_ns:
            # The record shows it alive for this long after its signal, and not longer.
            self._weaken(f"{self._name} needed more than {span(had_ns)} after its stop signal")
        if seen.how == "killed" and seen.exited is not None and seen.killed is not None:
            self._exit(self._now_ns + seen.exited.at_ns - seen.killed.mono_ns, recorded=True)
        elif seen.how != "stays" or seen.killed is None:
            # This SIGKILL is not in the record.
            why = f"the record does not show how long SIGKILL takes for {self._name}"
            self._common.evidence.weaken(self._uid, "assumed", why)
            self._common.first_kills[self._uid] = None
            if self._common.hopeful:
                self._exit(self._now_ns, signal="SIGKILL")

    def gone(self) -> None:
        """Its exit was admitted. A bet is no recorded exit."""
        if self._bet and not self._killed:
            self._weaken(self._bet)
        first, gone, self._gone = self.seen.exited, self._gone, True
        if first is None or gone:
            return
        for changed in self.seen.exited_again:
            self._common.run_agenda.admit(self._now_ns + changed.at_ns - first.at_ns, changed.event, changed)

    def _ends_first(self) -> bool:
        """It was to be killed in the record too, and ended by itself before."""
        seen, own = self.seen, self._own
        if seen.how != "stopped" or seen.killed is None or seen.exited is None or own is None:
            return False
        return seen.killed.seq < seen.exited.seq and (
            own.at_ns <= self._now_ns + seen.exited.at_ns - seen.killed.mono_ns
        )

    # --- after the signal ---------------------------------------------------------------------

    def _stopped(self) -> None:
        seen = self.seen
        assert seen.exited is not None
        assert seen.signalled is not None
        took_ns = seen.exited.at_ns - seen.signalled.mono_ns
        if seen.gone_after_ns is not None and self._now_ns != seen.signalled.mono_ns:
            self._weaken(f"{self._name} ended while no daemon ran, up to {span(took_ns)} after its signal")
            took_ns = seen.gone_after_ns if self._common.hopeful else took_ns
        # Another signal, or a hook only in one of the two runs. A cut hook that has its time now is the
        # hook's own bet.
        ran = seen.hook.ran_out if seen.hook is not None else None
        other_hook = self.hook_ran != ran and not (ran is False and self.hook_ran)
        signals = [spec.stop_signal for spec in (seen.spec, self.spec) if spec is not None]
        if other_hook or len(dict.fromkeys(signals)) > 1:
            why = f"{self._name} stopped {span(took_ns)} after its signal, and its way there is another now"
            self._common.evidence.weaken(self._uid, "assumed", why)
            if not self._common.hopeful:
                return
        self._ends_at(self._now_ns + took_ns, recorded=True)

    def _outlives(self) -> None:
        """It had this much time in the record and still ran."""
        had_ns = self._had_ns()
        if self.seen.refused:
            why = f"the runtime refuses to stop {self._name}, as it did in the record"
            self._common.evidence.weaken(self._uid, "assumed", why)
        elif had_ns is None:
            self._unknown()
        elif self._common.hopeful:
            self._bet = f"{self._name} needed more than {span(had_ns)} after its stop signal"
            self._ends_at(self._now_ns + had_ns + MOMENT_NS)

    def _had_ns(self) -> int | None:
        """From its stop signal to SIGKILL or to the record's end; None: no signal."""
        seen = self.seen
        if seen.signalled is None:
            return None
        end_ns = seen.killed.mono_ns if seen.killed is not None else self._common.end_ns
        return max(0, end_ns - seen.signalled.mono_ns)

    def _hurried(self) -> None:
        """It gets a signal before the time at which it ended without one."""
        if self._own is None:
            self._unknown()
            return
        self._weaken(f"{self._name} ended without a stop signal in the record, and has one before that now")
        if self._common.hopeful:
            self._common.run_agenda.drop(self._own)
            self._ends_at(self._now_ns, recorded=True)

    def _unknown(self) -> None:
        self._common.evidence.weaken(self._uid, "assumed", f"the record does not show how {self._name} stops")
        if self._common.hopeful:
            self._ends_at(self._now_ns)

    # --- shared -------------------------------------------------------------------------------

    @property
    def _now_ns(self) -> int:
        return self._common.run_agenda.now_ns

    def _weaken(self, why: str) -> None:
        self._common.evidence.weaken(self._uid, "bound", why)

    def _ends_at(self, at_ns: int, *, recorded: bool = False) -> None:
        """By itself."""
        self._own, self._own_ns = self._exit(at_ns, recorded=recorded), at_ns

    def _exit(self, at_ns: int, *, recorded: bool = False, signal: str = "") -> Entry:
        changed = self.seen.exited if recorded else None
        if changed is not None:
            return self._common.run_agenda.admit(at_ns, changed.event, changed)
        return self._common.run_agenda.admit(
            at_ns, ContainerExited(uid=self._uid, container=self._name, signal=signal)
        )


# Where a new run is performed: the agenda of facts to come, and when each may be heard.
#
# Three rules make a run without changes the record again: a fact at its recorded time keeps its place; a tick
# is as late as the recorded tick of its deadline; without a daemon no fact is admitted. Facts at another time
# are ordered by the lanes of `replay.sim.loop`.


#: Lanes above every place in a record.
RANK_SPAN = 1 << 60

#: After everything else at that instant.
RANK_LAST = 9 * RANK_SPAN


class RunAgenda(Agenda):
    """One run's agenda."""

    def __init__(self, shutdown: RecordedShutdown, seen: RecordedBehaviour) -> None:
        super().__init__(shutdown.signal_ns)
        self._over = False
        self._shutdown = shutdown
        self._downtimes = seen.downtimes
        # Without ticks that were late only because of a dropped restart.
        kept = [down.seq for down in seen.downtimes] + [answer.changed.seq for answer in seen.after_release]
        gone = [
            each.mono_ns
            for each in shutdown.facts
            if isinstance(each.event, DaemonStarted) and each.seq not in kept
        ]
        self._late = {
            deadline_ns: place
            for deadline_ns, place in shutdown.late.items()
            if not any(deadline_ns <= at_ns <= place[0] for at_ns in gone)
        }

    def admit(self, at_ns: int, fact: Fact, changed: ChangedFact | None = None) -> Entry:
        """``changed``: the recorded fact, whose place the new one takes if its time is the same."""
        at_ns = self._heard_ns(max(at_ns, self.now_ns))
        if changed is not None and at_ns == changed.mono_ns:
            return self.put(at_ns, fact, 2 * changed.seq)
        lane = (1 + RANKS.get(type(fact), REST)) * RANK_SPAN
        return self.put(at_ns, fact, lane + (2 * changed.seq if changed is not None else RANK_SPAN // 2))

    def end(self, at_ns: int) -> None:
        """No fact is admitted after this, but at the record's end all that it has at that instant."""
        lane = 2 * self._shutdown.last_fact_seq + 1 if at_ns == self._shutdown.last_ns else RANK_LAST
        self.put(at_ns, self._close, lane)

    def _close(self) -> None:
        self._over = True
        self.clear()

    def tick_due(self, deadline_ns: int) -> tuple[int, int]:
        if self._over:
            return NEVER_NS, TICKS
        late = self._late.get(deadline_ns)
        return late or (self._heard_ns(deadline_ns), (1 + TICKS) * RANK_SPAN)

    def _heard_ns(self, at_ns: int) -> int:
        """No fact is admitted between the last record of a process and the start of the next one."""
        ends = (down.end_ns for down in self._downtimes if down.begin_ns < at_ns < down.end_ns)
        return next(ends, at_ns)


# How well the record supports what a new run says of each pod.
#
# ``observed``: the record shows it. ``bound``: the run went beyond a recorded limit ("it needed more than 20
# s"). ``assumed``: it is not in the record. A pod has the weakest of what was used for it in either run.


Level = Literal["observed", "bound", "assumed"]

LEVELS: tuple[Level, ...] = ("observed", "bound", "assumed")


class Support(NamedTuple):
    """``why``: a sentence; empty when observed."""

    level: Level = "observed"
    why: str = ""


class Evidence:
    """By pod; a pod without an entry is observed."""

    def __init__(self) -> None:
        self._found: dict[str, Support] = {}

    def weaken(self, uid: str, level: Level, why: str) -> None:
        """The first reason of a level stays."""
        known = self.of(uid)
        if LEVELS.index(level) > LEVELS.index(known.level):
            self._found[uid] = Support(level, why)

    def of(self, uid: str) -> Support:
        return self._found.get(uid, Support())


def weakest(found: Iterable[Support]) -> Support:
    return max(found, key=lambda each: LEVELS.index(each.level), default=Support())
