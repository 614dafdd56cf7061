"""logind's rules, as the holder of a delay lock sees them. `simulate`, the tests' world and the demo use it.

A lock is a FIFO. A daemon's process and the service manager's descriptor store may hold it; it stays open
until the last of them closes, and survives a restart of logind. On a shutdown the signal comes first. Then
logind waits until the last lock is closed or the limit is over. While preparing, it gives no lock and refuses
a second shutdown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import DropInsRead, LogindRead, PrepareForShutdown
from ebbtide.events.values import ShutdownKind

#: The service manager's store as a lock's holder; a daemon's process is a positive number.
STORE = 0

#: logind's own InhibitDelayMaxSec.
DEFAULT_NS = 5 * NS_PER_SECOND


class Timer(Protocol):
    """In virtual time, or under Trio's clock."""

    @property
    def now_ns(self) -> int:
        """The monotonic clock."""

    def later(self, after_ns: int, do: Callable[[], object]) -> Callable[[], object]:
        """Call ``do`` after this time; the returned function cancels it."""


class Note(Protocol):
    """Takes each event (`replay.sim.sim_node.WorldLog.note`)."""

    def __call__(self, what: str, *, detail: str = "", life: int = 0) -> object: ...


class ShutdownSignal(NamedTuple):
    """``PrepareForShutdown`` on the bus."""

    active: bool
    kind: ShutdownKind
    owner: str


class OwnerChanged(NamedTuple):
    """logind's name on the bus; empty: none."""

    owner: str


class Disconnected(NamedTuple):
    """The connection to the bus broke."""


BusSignal = ShutdownSignal | OwnerChanged | Disconnected


class InProgress(Exception):
    """No lock while preparing."""


class Unreachable(Exception):
    """logind, or the bus, does not answer."""


class SimulatedLogind:
    """``act`` starts the final unit: the machine goes down."""

    def __init__(
        self,
        note: Note,
        timer: Timer,
        act: Callable[[ShutdownKind], object],
        others_ns: int | None,
        *,
        obeys_drop_in: bool = True,
    ) -> None:
        self._note = note
        self._timer = timer
        self._act = act
        self.others_ns = others_ns
        self.ours_ns: int | None = None
        self.obeys_drop_in = obeys_drop_in
        self.up = True
        self.owner = ":1.1"
        self._restarts = 1
        self.preparing = False
        self.kind: ShutdownKind = "unknown"
        self.acting = False
        self.holders: dict[int, None] = {}
        self.subscribers: dict[int, Callable[[BusSignal], object]] = {}
        self._stop_delay: Callable[[], object] = lambda: None
        self.grant_ns = 0
        self.reload()

    # --- a client's calls

    def check(self) -> None:
        """Raises Unreachable."""
        if not self.up:
            raise Unreachable("logind left the bus")

    def inhibit(self, holder: int) -> None:
        """Raises InProgress, Unreachable."""
        self.check()
        if self.preparing:
            raise InProgress("OperationInProgress")
        self.holders[holder] = None
        self._note("lock", life=holder)

    def duplicate(self, holder: int) -> None:
        if self.holders:
            self.holders[holder] = None

    def close(self, holder: int) -> None:
        """logind acts when the last descriptor goes."""
        if holder not in self.holders:
            return
        del self.holders[holder]
        if not self.holders:
            self._note("unlock", life=holder)
            if self.preparing and self.up and not self.acting:
                self._go("the last lock is closed")

    def client_died(self, holder: int) -> None:
        """The service manager's descriptor stays."""
        self.subscribers.pop(holder, None)
        self.close(holder)

    def set_drop_in(self, ours_ns: int | None) -> None:
        """`reload` makes logind read it. Raises InProgress (a shutdown keeps its limit), Unreachable."""
        self.check()
        if self.preparing:
            raise InProgress("preparing")
        self.ours_ns = ours_ns

    def reload(self) -> None:
        """SIGHUP: the property moves, a running timer does not."""
        if self.ours_ns is not None and self.obeys_drop_in:
            self.grant_ns = self.ours_ns
        else:
            self.grant_ns = DEFAULT_NS if self.others_ns is None else self.others_ns

    # --- its facts

    def signal_fact(
        self, signal: ShutdownSignal, holder: int, *, kubelet_lock: bool = False
    ) -> PrepareForShutdown:
        """As before systemd 255: the limit is read after the signal."""
        return PrepareForShutdown(
            active=signal.active,
            kind=signal.kind,
            grant_ns=self.grant_ns,
            lock_held=holder in self.holders,
            owner=signal.owner,
            kubelet_lock=kubelet_lock,
        )

    def facts(self, others_path: str = "", *, kubelet_lock: bool = False) -> tuple[LogindRead, DropInsRead]:
        """``others_path``: another file that sets the limit."""
        return (
            LogindRead(
                owner=self.owner,
                grant_ns=self.grant_ns,
                preparing=self.preparing,
                kind=self.kind if self.preparing else "unknown",
                kubelet_lock=kubelet_lock,
            ),
            DropInsRead(
                others_ns=self.others_ns or 0,
                others_path=others_path if self.others_ns else "",
                ours_ns=self.ours_ns,
                overridden_by="" if self.obeys_drop_in else others_path,
            ),
        )

    # --- people and systemd

    def shutdown(self, kind: ShutdownKind) -> None:
        """Refused while one is under way."""
        if not self.up or self.preparing or self.acting:
            return
        self.preparing, self.kind = True, kind
        self._note("shutdown", detail=f"{kind} grant {self.grant_ns // 1_000_000} ms")
        # Before it looks at the locks, as logind does.
        self._emit(ShutdownSignal(True, kind, self.owner))
        # A later drop-in moves the property, not this timer.
        if self.holders and self.grant_ns > 0:
            self._stop_delay = self._timer.later(self.grant_ns, self._delay_over)
        else:
            self._go("no lock is held")

    def _delay_over(self) -> None:
        if self.preparing and not self.acting:
            self._note("limit", detail=",".join(map(str, sorted(self.holders))))
            self._go("the limit is reached")

    def _go(self, why: str) -> None:
        self.acting = True
        self._stop_delay()
        self._note("final", detail=why)
        self._act(self.kind)

    def cancel(self) -> None:
        """Too late once the final unit has started."""
        if not self.acting:
            self.withdraw("cancelled")

    def withdraw(self, why: str) -> None:
        """Cancelled in the delay, or the final unit failed."""
        if not self.preparing or not self.up:
            return
        self.preparing = self.acting = False
        self._stop_delay()
        self._note("withdraw", detail=why)
        self._emit(ShutdownSignal(False, "unknown", self.owner))

    def restart(self, gap_ns: int, again: bool) -> None:
        """Locks survive, a delay does not. ``again``: a scheduled shutdown is requested again at once."""
        if self.acting or not self.up:
            return
        was, kind = self.preparing, self.kind
        self.up, self.preparing, self.owner = False, False, ""
        self._stop_delay()
        self._note("logind-gone")
        self._emit(OwnerChanged(""))

        def come_back() -> None:
            self._restarts += 1
            self.up, self.owner = True, f":1.{self._restarts}"
            self._note("logind-back", detail="again" if was and again else "")
            self.reload()
            self._emit(OwnerChanged(self.owner))
            if was and again:
                self.shutdown(kind)
            elif was:
                self._note("withdraw", detail="logind forgot it")

        self._timer.later(gap_ns, come_back)

    def disconnect(self) -> None:
        """Breaks every connection; logind does not notice."""
        self._note("bus-lost")
        self._emit(Disconnected())
        self.subscribers.clear()

    def _emit(self, signal: BusSignal) -> None:
        for subscriber in list(self.subscribers.values()):
            subscriber(signal)
