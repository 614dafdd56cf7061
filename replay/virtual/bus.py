"""The modelled way to logind: arms, releases, raises the limit, listens.

Facts, and their order, as the real edge gives them: subscribe, lock, read; the signal before the property;
our copy of the lock after the service manager's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from events.base import NS_PER_SECOND, Order
from events.decisions import Arm, Disarm, ReleaseLock, RemoveDropIn, WriteDropIn
from events.facts import BusLost, DropInsRead, LogindRead, PrepareForShutdown, PreparingRead
from replay.virtual.draws import Draws
from replay.virtual.effects import Carry, Effects, Work
from replay.virtual.kubelet import KUBELET
from replay.virtual.logind import (
    STORE,
    Disconnected,
    Going,
    InProgress,
    Logind,
    OwnerChanged,
    Said,
    Unreachable,
)
from replay.virtual.loop import Agenda
from replay.virtual.trail import Trail

#: The file that sets logind's limit where it is not ours to move.
OTHERS_PATH = "/etc/systemd/logind.conf.d/zz-site.conf"


class Bus:
    """One process's connection. ``late_grant_ns``: how long logind takes to obey a drop-in."""

    def __init__(
        self, logind: Logind, agenda: Agenda, draws: Draws, trail: Trail, life: int, late_grant_ns: int
    ) -> None:
        self.effects: Effects
        self._logind, self._agenda, self._draws = logind, agenda, draws
        self._trail, self._life, self._late_grant_ns = trail, life, late_grant_ns
        self.alive = True
        self._preparing, self._owner, self._connected = False, "", False
        if STORE in logind.holders:
            logind.duplicate(life)
        self.table: dict[type[Order], Carry] = {
            Arm: self._arm,
            Disarm: self._give_back,
            ReleaseLock: self._give_back,
            WriteDropIn: self._write_drop_in,
            RemoveDropIn: self._remove_drop_in,
        }

    def die(self) -> None:
        """The kernel closes what this process had open; the service manager's copy stays."""
        self.alive = False
        self._logind.subscribers.pop(self._life, None)
        self._logind.close(self._life)

    def _soon_ns(self, low_us: int, high_us: int) -> int:
        return self._draws.between(low_us, high_us) * 1000

    def _then(self, work: Work, low_us: int, high_us: int, do: Callable[[Work], object]) -> None:
        self.effects.then(work, self._soon_ns(low_us, high_us), partial(do, work))

    # --- listening -----------------------------------------------------------------------------

    def _hear(self, said: Said) -> None:
        if isinstance(said, Going):
            self._agenda.later(self._soon_ns(100, 2000), partial(self._signalled, said))
        elif isinstance(said, Disconnected):
            self._connected = False
            self._agenda.after(0, BusLost(error="the connection to the bus broke"))
        elif said == OwnerChanged(""):
            self._agenda.after(0, BusLost(error="logind left the bus"))
        else:
            self._agenda.later(self._soon_ns(300, 3000), self._look)

    def _signalled(self, said: Going) -> None:
        """As below systemd 255: the limit is asked for after the signal, and may have been raised by then."""
        if not self.alive:
            return
        self._preparing, self._owner = said.active, said.owner
        self._agenda.after(
            0,
            PrepareForShutdown(
                active=said.active,
                kind=said.kind,
                grant_ns=self._logind.grant_ns,
                lock_held=self._life in self._logind.holders,
                owner=said.owner,
                kubelet_lock=self._kubelet_lock,
            ),
        )

    @property
    def _kubelet_lock(self) -> bool:
        return KUBELET in self._logind.holders

    def _look(self) -> None:
        found = (self._logind.preparing, self._logind.owner)
        if self.alive and self._connected and self._logind.up and found != (self._preparing, self._owner):
            self._preparing, self._owner = found
            self._agenda.after(0, PreparingRead(preparing=found[0], owner=found[1]))

    # --- effects -------------------------------------------------------------------------------

    def _arm(self, work: Work) -> None:
        self._then(work, 300, 5000, self._connect)

    def _connect(self, work: Work) -> None:
        """Subscribe, lock, read, in this order."""
        if not self._logind.up:
            self.effects.end(work, "failed", "logind left the bus")
            return
        self._logind.subscribers[self._life] = self._hear
        self._connected = True
        wanted = cast(Arm, work.order).lock and self._life not in self._logind.holders
        self._then(work, 200, 3000, partial(self._lock, wanted))

    def _lock(self, wanted: bool, work: Work) -> None:
        refused = ""
        try:
            if wanted:
                self._logind.inhibit(self._life)
                self._logind.duplicate(STORE)
        except (InProgress, Unreachable) as error:
            refused = str(error)
        self._then(work, 200, 3000, partial(self._armed, refused))

    def _armed(self, refused: str, work: Work) -> None:
        self._read()
        if refused:
            self.effects.end(work, "failed", refused)
        else:
            self._then(work, 100, 1000, self.effects.end)

    def _read(self) -> None:
        """Properties, then files."""
        logind = self._logind
        self._preparing, self._owner = logind.preparing, logind.owner
        kind = logind.kind if logind.preparing else "unknown"
        self._agenda.after(
            0,
            LogindRead(
                owner=logind.owner,
                grant_ns=logind.grant_ns,
                preparing=logind.preparing,
                kind=kind,
                kubelet_lock=self._kubelet_lock,
            ),
        )
        others_ns = logind.others_ns or 0
        self._agenda.after(
            0,
            DropInsRead(
                others_ns=others_ns,
                others_path=OTHERS_PATH if others_ns else "",
                ours_ns=logind.ours_ns,
                overridden_by="" if logind.obeys_drop_in else OTHERS_PATH,
            ),
        )

    def _give_back(self, work: Work) -> None:
        self._then(work, 100, 3000, self._close)

    def _close(self, work: Work) -> None:
        """The store's copy first, then ours: closing one of them releases nothing."""
        self._logind.close(STORE)
        self._trail.note("release", detail=type(work.order).__name__, life=self._life)
        self._logind.close(self._life)
        self.effects.end(work)

    def _write_drop_in(self, work: Work) -> None:
        seconds = cast(WriteDropIn, work.order).seconds
        self._then(work, 300, 3000, partial(self._change, seconds * NS_PER_SECOND))

    def _remove_drop_in(self, work: Work) -> None:
        self._then(work, 300, 3000, partial(self._change, None))

    def _change(self, ours_ns: int | None, work: Work) -> None:
        logind = self._logind
        if not logind.up or logind.preparing:
            self.effects.end(work, "failed", "preparing" if logind.up else "logind left the bus")
            return
        logind.ours_ns = ours_ns
        detail = "removed" if ours_ns is None else f"{ours_ns // NS_PER_SECOND}"
        self._trail.note("drop-in", detail=detail, life=self._life)
        slow_ns = self._soon_ns(1000, 50_000) + (self._late_grant_ns if ours_ns is not None else 0)
        self._agenda.later(slow_ns, logind.reload)
        self.effects.then(work, slow_ns + self._soon_ns(200, 3000), partial(self._changed, ours_ns, work))

    def _changed(self, ours_ns: int | None, work: Work) -> None:
        self._read()
        reached = ours_ns is None or self._logind.grant_ns >= ours_ns
        if reached:
            self.effects.end(work)
        else:
            self.effects.end(work, "failed", "another file is read after ours")
