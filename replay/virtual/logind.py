"""logind, as far as a delay lock can tell it apart from the real one.

A lock is held by a daemon's life, by the service manager's descriptor store, or by both, and stays open
until the last of them closes. The delay runs from the signal, with the limit in force at that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from events.model import ShutdownKind
from replay.virtual.trail import MS, NS_PER_SECOND, Timer, Trail

#: The service manager's descriptor store as a lock's holder; a daemon's life is a positive number.
STORE = 0

#: logind's own default of InhibitDelayMaxSec.
DEFAULT_NS = 5 * NS_PER_SECOND


class Going(NamedTuple):
    """``PrepareForShutdown``, as it goes over the bus."""

    active: bool
    kind: ShutdownKind
    owner: str


class OwnerChanged(NamedTuple):
    """logind's name on the bus; empty: nobody has it."""

    owner: str


class Disconnected(NamedTuple):
    """The connection to the bus broke."""


Said = Going | OwnerChanged | Disconnected


class InProgress(Exception):
    """OperationInProgress: no lock while preparing."""


class Unreachable(Exception):
    """logind, or the bus, does not answer."""


class Logind:
    """One boot's logind. ``act`` starts the final unit: from there on the machine is going."""

    def __init__(
        self,
        trail: Trail,
        timer: Timer,
        act: Callable[[ShutdownKind], None],
        others_ns: int | None,
        *,
        obeys_drop_in: bool = True,
    ) -> None:
        self._trail = trail
        self._timer = timer
        self._act = act
        self.others_ns = others_ns
        self.ours_ns: int | None = None
        #: Whether our drop-in is read last.
        self.obeys_drop_in = obeys_drop_in
        self.grant_ns = self._configured_ns()
        self.up = True
        self.owner = ":1.1"
        self._restarts = 1
        self.preparing = False
        self.kind: ShutdownKind = "unknown"
        self.acting = False
        self.holders: dict[int, None] = {}
        self.subscribers: dict[int, Callable[[Said], None]] = {}
        self._stop_delay: Callable[[], object] = lambda: None
        #: When the delay that runs is over, in world time.
        self.limit_at_ns = 0

    # --- what a client asks ----------------------------------------------------------------------

    def check(self) -> None:
        """Raises Unreachable."""
        if not self.up:
            raise Unreachable("logind left the bus")

    def inhibit(self, holder: int) -> None:
        """Take the lock. Raises InProgress, Unreachable."""
        self.check()
        if self.preparing:
            raise InProgress("OperationInProgress")
        self.holders[holder] = None
        self._trail.note("lock", life=holder)

    def duplicate(self, holder: int) -> None:
        """Another descriptor for the same lock; no question to logind."""
        if self.holders:
            self.holders[holder] = None

    def close(self, holder: int) -> None:
        """One descriptor less. logind acts when the last one goes."""
        if holder not in self.holders:
            return
        del self.holders[holder]
        if not self.holders:
            self._trail.note("unlock", life=holder)
            if self.preparing and self.up and not self.acting:
                self._go("the last lock is closed")

    def reload(self) -> None:
        """SIGHUP: the property moves, a running timer does not."""
        self.grant_ns = self._configured_ns()

    def _configured_ns(self) -> int:
        if self.ours_ns is not None and self.obeys_drop_in:
            return self.ours_ns
        return DEFAULT_NS if self.others_ns is None else self.others_ns

    # --- what people and systemd do ----------------------------------------------------------------

    def shutdown(self, kind: ShutdownKind) -> None:
        """``systemctl poweroff`` and its kin; while one is under way another is refused."""
        if not self.up or self.preparing or self.acting:
            return
        self.preparing, self.kind = True, kind
        self._trail.note("shutdown", detail=f"{kind} grant {self.grant_ns // MS} ms")
        self._say(Going(True, kind, self.owner))
        if self.holders and self.grant_ns > 0:
            self.limit_at_ns = self._trail.now_ns() + self.grant_ns
            self._stop_delay = self._timer.later(self.grant_ns, self._delay_over)
        else:
            self._go("no lock is held")

    def _delay_over(self) -> None:
        if self.preparing and not self.acting:
            self._trail.note("limit", detail=",".join(map(str, sorted(self.holders))))
            self._go("the limit is reached")

    def _go(self, why: str) -> None:
        self.acting = True
        self._stop_delay()
        self._trail.note("final", detail=why)
        self._act(self.kind)

    def withdraw(self, why: str) -> None:
        """A cancel, or a final unit that failed."""
        if not self.preparing or not self.up:
            return
        self.preparing = self.acting = False
        self._stop_delay()
        self._trail.note("withdraw", detail=why)
        self._say(Going(False, "unknown", self.owner))

    def restart(self, gap_ns: int, again: bool) -> None:
        """logind dies and comes back: locks survive (they are FIFOs), a delay does not.

        ``again``: the shutdown is asked for once more at once, as a scheduled one is.
        """
        if self.acting or not self.up:
            return
        was, kind = self.preparing, self.kind
        self.up, self.preparing, self.owner = False, False, ""
        self._stop_delay()
        self._trail.note("logind-gone")
        self._say(OwnerChanged(""))
        self._timer.later(gap_ns, lambda: self._come_back(was, kind, again))

    def _come_back(self, was: bool, kind: ShutdownKind, again: bool) -> None:
        self._restarts += 1
        self.up, self.owner = True, f":1.{self._restarts}"
        self._trail.note("logind-back", detail="again" if was and again else "")
        self.reload()
        self._say(OwnerChanged(self.owner))
        if was and again:
            self.shutdown(kind)
        elif was:
            self._trail.note("withdraw", detail="logind forgot it")

    def disconnect(self) -> None:
        """The bus breaks every connection; logind itself does not notice."""
        self._trail.note("bus-lost")
        self._say(Disconnected())
        self.subscribers.clear()

    def _say(self, said: Said) -> None:
        for subscriber in list(self.subscribers.values()):
            subscriber(said)
