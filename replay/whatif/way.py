"""A container's way down in a new run, with what the record shows of it.

    recorded                    after the stop signal of the new run
    exited after its signal     exits the same time after it; another signal, or another hook before it: a bet
    killed                      nothing is known beyond the time that it had: a bet
    exited in its hook          exits the same time after the hook's start; a signal before that: a bet
    exited by itself            exits at that time, whatever is done; a signal before that: a bet
    still there at the end      as one that was killed then
    never asked to stop         a bet from the signal on

A *bet* is where the record has only a bound. The new run is made twice: once the container ends just after
the bound (``hopeful``), once never by itself. SIGKILL ends it as fast as it did in the record; one that was
not killed there is a bet again: at once, or never.
"""

from __future__ import annotations

from typing import NamedTuple

from events.facts import ContainerExited
from events.model import Container
from replay.account.words import span
from replay.virtual.loop import Entry
from replay.whatif.evidence import Evidence
from replay.whatif.seen import ContainerSeen, Whose
from replay.whatif.stage import Stage

#: Just after a bound.
MOMENT_NS = 1


class Common(NamedTuple):
    """What all containers of a run share. ``end_ns``: until when the record knows anything.

    ``first_kills``: pods with a container that is killed and was not in the record.
    """

    stage: Stage
    evidence: Evidence
    hopeful: bool
    end_ns: int
    first_kills: dict[str, None]


class Way:
    """``spec``: by the new run's plan. ``hook_ran`` None: none was run; else whether it ran to its end."""

    def __init__(self, whose: Whose, seen: ContainerSeen, common: Common) -> None:
        self.seen = seen
        self.spec: Container | None = None
        self.hook_ran: bool | None = None
        self._uid, self._name = whose
        self._common = common
        self._own: Entry | None = None
        #: When it ends by itself; while no daemon runs that is heard of only later.
        self._own_ns = 0
        self._bet = ""
        self._signalled_ns: int | None = None
        self._killed = self._gone = False
        if seen.how == "by-itself" and seen.exited is not None:
            self._ends_at(seen.exited.at_ns, recorded=True)

    def planned(self, spec: Container) -> None:
        """From here on somebody looks at it: what ended before that now, and did not then, is found gone."""
        self.spec = spec
        then, exited = self.seen.planned, self.seen.exited
        if then is not None and exited is not None and self._gone and then.seq < exited.seq:
            self._exit(self._now_ns, recorded=True)

    def hooked(self) -> None:
        """Its hook begins, a real one: a sleep asks nothing of it."""
        hook, exited = self.seen.hook, self.seen.exited
        if self.seen.how == "in-hook" and hook is not None and exited is not None:
            self._ends_at(self._now_ns + exited.at_ns - hook.began.mono_ns, recorded=True)

    def signalled(self) -> None:
        """The first stop signal; a repeated one changes nothing."""
        if self._signalled_ns is None:
            self._signalled_ns = self._now_ns
            {"stopped": self._stopped, "killed": self._outlives, "stays": self._outlives}.get(
                self.seen.how, self._hurried
            )()

    def killed(self) -> None:
        """SIGKILL: whatever it would have done by itself later it does not do."""
        if self._killed:
            return
        self._killed = True
        seen = self.seen
        if self._has_ended() or self._ends_first():
            return
        self._common.stage.agenda.drop(self._own)
        self._judge_kill()
        if seen.how == "killed" and seen.exited is not None and seen.killed is not None:
            self._exit(self._now_ns + seen.exited.at_ns - seen.killed.mono_ns, recorded=True)
        elif seen.how != "stays" or seen.killed is None:
            self._first_killed()

    def gone(self) -> None:
        """It was seen to exit: if that was a bet, the record does not say so."""
        if self._bet and not self._killed:
            self._weaken(self._bet)
        first, gone, self._gone = self.seen.exited, self._gone, True
        if first is None or gone:
            return
        for told in self.seen.exited_again:
            self._common.stage.tell(self._now_ns + told.at_ns - first.at_ns, told.event, told)

    def _has_ended(self) -> bool:
        """Its end is on its way: nobody ran to see it."""
        return self._own is not None and self._own_ns < self._now_ns

    def _ends_first(self) -> bool:
        """It was ordered to be killed in the record too, and ended by itself before that came to it."""
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
        if self._is_other_stop():
            why = f"{self._name} stopped {span(took_ns)} after its signal, and its way there is another now"
            self._common.evidence.weaken(self._uid, "assumed", why)
            if not self._common.hopeful:
                return
        self._ends_at(self._now_ns + took_ns, recorded=True)

    def _is_other_stop(self) -> bool:
        """Another signal, or a hook that was run then and not now, or now and not then.

        That a hook that was cut now has its time is a bet of the hook's own.
        """
        seen = self.seen
        ran = seen.hook.ran_out if seen.hook is not None else None
        other_hook = self.hook_ran != ran and not (ran is False and self.hook_ran)
        signals = [spec.stop_signal for spec in (seen.spec, self.spec) if spec is not None]
        return other_hook or len(dict.fromkeys(signals)) > 1

    def _outlives(self) -> None:
        """It had so much time in the record, and was still there."""
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
        """From its stop signal to SIGKILL, or to the end of the record; None: it never had one."""
        seen = self.seen
        if seen.signalled is None:
            return None
        end_ns = seen.killed.mono_ns if seen.killed is not None else self._common.end_ns
        return max(0, end_ns - seen.signalled.mono_ns)

    def _hurried(self) -> None:
        """It is asked to stop before it did, in the record, without being asked."""
        if self._own is None:
            self._unknown()
            return
        self._weaken(f"{self._name} ended without a stop signal in the record, and has one before that now")
        if self._common.hopeful:
            self._common.stage.agenda.drop(self._own)
            self._ends_at(self._now_ns, recorded=True)

    def _unknown(self) -> None:
        self._common.evidence.weaken(self._uid, "assumed", f"the record does not show how {self._name} stops")
        if self._common.hopeful:
            self._ends_at(self._now_ns)

    def _judge_kill(self) -> None:
        had_ns = self._had_ns()
        judged = self.seen.how in ("killed", "stays") and not self.seen.refused
        if not judged or had_ns is None or self._signalled_ns is None:
            return
        if self._now_ns - self._signalled_ns > had_ns:
            self._weaken(f"{self._name} needed more than {span(had_ns)} after its stop signal")

    def _first_killed(self) -> None:
        """SIGKILL that the record does not have."""
        why = f"the record does not show how long SIGKILL takes for {self._name}"
        self._common.evidence.weaken(self._uid, "assumed", why)
        self._common.first_kills[self._uid] = None
        if self._common.hopeful:
            self._exit(self._now_ns, signal="SIGKILL")

    # --- shared -------------------------------------------------------------------------------

    @property
    def _now_ns(self) -> int:
        return self._common.stage.now_ns

    def _weaken(self, why: str) -> None:
        self._common.evidence.weaken(self._uid, "bound", why)

    def _ends_at(self, at_ns: int, *, recorded: bool = False) -> None:
        """By itself."""
        self._own, self._own_ns = self._exit(at_ns, recorded=recorded), at_ns

    def _exit(self, at_ns: int, *, recorded: bool = False, signal: str = "") -> Entry:
        told = self.seen.exited if recorded else None
        if told is not None:
            return self._common.stage.tell(at_ns, told.event, told)
        return self._common.stage.tell(
            at_ns, ContainerExited(uid=self._uid, container=self._name, signal=signal)
        )
