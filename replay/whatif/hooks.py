"""Hooks in a new run: the recorded outcome at the recorded delay, or a bet where there is only a bound.

A hook that ran to its own end takes that long again. One that was cut after 10 s needed more than 10 s: in
the hopeful run it ends just after that, in the other only when it is cut again. Of a hook that the record
does not have, or has otherwise, nothing is known: at once in the hopeful run, never in the other.
"""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace

from events.decisions import CancelOrder, RunHook
from events.facts import OrderEnded, Result
from replay.account.words import span
from replay.virtual.loop import Entry
from replay.whatif.seen import Downtime, HookSeen
from replay.whatif.way import MOMENT_NS, Common, Way


class HookRun:
    """One hook of the new run, from its order to its outcome."""

    def __init__(self, order: RunHook, way: Way, common: Common, downtimes: list[Downtime]) -> None:
        self._order = order
        self._way = way
        self._common = common
        self._began_ns = common.stage.now_ns
        self._bet = False
        self._over = False
        way.hook_ran = False
        way.hooked()
        self._seen = way.seen.hook if _is_same(way) else None
        self._end: Entry | None = self._begin(downtimes)

    def cut(self, cancel: CancelOrder) -> None:
        """Cancelled by the pod's actor: its outcome says so, as soon as it did in the record."""
        if self._over:
            return
        self._over = True
        self._common.stage.agenda.drop(self._end)
        known = self._seen
        ran_ns = self._common.stage.now_ns - self._began_ns
        if known is not None and not known.ran_out and ran_ns > self._known_ns(known):
            self._weaken(known)
        result: Result = "timed-out" if cancel.timed_out else "cancelled"
        if known is None or known.cut is None:
            self._tell(0, OrderEnded(key=self._order.key, result=result))
        elif known.ended is not None:
            event = cast(OrderEnded, known.ended.event)
            same = known.cut_timed_out == cancel.timed_out
            self._tell(
                known.ended.at_ns - known.cut.mono_ns, event if same else replace(event, result=result)
            )

    def ended(self, event: OrderEnded) -> None:
        """Its outcome came."""
        if self._over:
            return
        self._over = True
        self._way.hook_ran = event.result in ("done", "failed")
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
            return self._tell(known.ended.at_ns - known.began.mono_ns, cast(OrderEnded, known.ended.event))
        if known.ended is not None and known.bounded:
            return self._bounded(known)
        down = self._lost_in(known, downtimes)
        if down is not None and known.ended is not None:
            return self._common.stage.tell(known.ended.at_ns, known.ended.event, known.ended)
        return self._bet_on(known)

    def _bounded(self, known: HookSeen) -> Entry | None:
        """Its edge ends it when its time is over, as much later, or sooner, than that as in the record."""
        assert known.ended is not None
        ran_ns = known.ended.at_ns - known.began.mono_ns
        if self._common.hopeful and self._order.timeout_ns > known.timeout_ns:
            return self._bet_on(known)
        slack_ns = ran_ns - known.timeout_ns
        return self._tell(self._order.timeout_ns + slack_ns, cast(OrderEnded, known.ended.event))

    def _lost_in(self, known: HookSeen, downtimes: list[Downtime]) -> Downtime | None:
        """The restart that lost its outcome, if it comes while this one runs."""
        if not known.lost:
            return None
        return next((down for down in downtimes if self._began_ns <= down.begin_ns), None)

    def _bet_on(self, known: HookSeen) -> Entry | None:
        if not self._common.hopeful:
            return None
        self._bet = True
        return self._done(self._known_ns(known) + MOMENT_NS)

    def _known_ns(self, known: HookSeen) -> int:
        """So long it ran, and had not ended."""
        ended_ns = known.ended.at_ns if known.ended is not None else None
        ends = (known.alive_ns, known.cut.mono_ns if known.cut is not None else None, ended_ns)
        until_ns = next((each for each in ends if each is not None), self._common.end_ns)
        return max(0, until_ns - known.began.mono_ns)

    # --- shared -------------------------------------------------------------------------------

    def _weaken(self, known: HookSeen) -> None:
        why = f"the hook of {self._order.container} needed more than {span(self._known_ns(known))}"
        self._common.evidence.weaken(self._order.uid, "bound", why)

    def _done(self, delay_ns: int) -> Entry:
        return self._tell(delay_ns, OrderEnded(key=self._order.key, result="done", elapsed_ns=delay_ns))

    def _tell(self, delay_ns: int, event: OrderEnded) -> Entry:
        """A recorded outcome keeps its place where it keeps its time; its key is this order's."""
        told = self._seen.ended if self._seen is not None and self._seen.ended is not None else None
        recorded = told if told is not None and event is told.event else None
        fact = event if event.key == self._order.key else replace(event, key=self._order.key)
        return self._common.stage.tell(self._common.stage.now_ns + delay_ns, fact, recorded)


def _is_same(way: Way) -> bool:
    """Whether the record's hook is the one that is run now."""
    then, now = way.seen.spec, way.spec
    return then is None or now is None or then.hook == now.hook
