"""Worlds in which a person follows the advice: what `outage status` says to do about an open outage.

After ten minutes of misfortunes no new ones come. Each minute the person reads the newest outage's cause and
does what it says: makes sure of the machine and declares it off, or brings the node back; withdraws a pause;
starts a machine that stays away; closes what waits for nothing that will come. A deleted Node's pods and
volumes end as Kubernetes' collector and its six-minute timer end them.
"""

from __future__ import annotations

from ebbtide.events import outage_events as o
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import outage_records
from ebbtide.events.record.outage_causes import outage_cause
from ebbtide.events.record.outage_record import OPEN, OutageRecord
from ebbtide.replay.sim.scenario import Draws
from ebbtide.replay.sim.sim_outage import END_MS, MS, TIMER_MS, written
from ebbtide.replay.sim.simulate import MemorySource
from tests.outage_world.crossed import CrossedWorld

LOOK_MS = 60_000
#: After so many looks in vain: what comes last in the advice. Close it, or bring the node back.
PATIENCE = 5
ENDS_MS = END_MS + 30 * LOOK_MS


class FollowedWorld(CrossedWorld):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.chances = self.draws.fork("followed")
        self.calm = self.paused = False
        self.looks: dict[str, int] = {}
        self.steps: list[str] = []
        #: An outage was open when the person began.
        self.began_open = False

    def run(self) -> FollowedWorld:
        if self.chances.chance(1, 4):
            self.after(self.chances.below(END_MS), self._pause)
        super().run()
        self.calm = True
        newest = self.newest()
        self.began_open = newest is not None and newest.outcome == OPEN
        self.after(1, self._follow)
        self.loop.run(ENDS_MS * MS)
        return self

    @property
    def leads_out(self) -> bool:
        newest = self.newest()
        return newest is None or newest.outcome != OPEN

    def newest(self) -> OutageRecord | None:
        journal = written(self.store.records, Draws(self.seed).fork("ids"), "0")
        return next(reversed([*outage_records(History([MemorySource(journal.files())]))]), None)

    # --- misfortunes

    def _misfortune(self) -> None:
        if not self.calm:
            super()._misfortune()

    def _hand(self) -> None:
        if not self.calm:
            super()._hand()

    def _delete_by_hand(self) -> None:
        if not self.calm:
            super()._delete_by_hand()

    def _pause(self) -> None:
        self.paused = True
        self.note("a person paused the controller")
        self._tell(o.PauseRead(by="bob"))

    def settings(self) -> o.OutageSettings:
        made = super().settings()
        return o.OutageSettings(
            power_off_seconds=made.power_off_seconds, bound=made.bound, paused="bob" if self.paused else ""
        )

    def _delete(self) -> None:
        before = self.deleted
        super()._delete()
        if self.deleted and not before:
            self.after(50_000, self._collected)

    def _collected(self) -> None:
        if self.pod != "gone":
            self.pod = "gone"
            self._tell(o.LostPodGone(uid="p1"))
        if self.attached:
            self.after(TIMER_MS, self._freed)
        elif not self.elsewhere:
            self.after(9_000, self._moved)

    def _freed(self) -> None:
        self.attached = False
        if self.timed_out < 0 and self.ready != "True":
            self.timed_out = self.now
        self._tell(o.AttachmentGone(name="va"))
        self.after(9_000, self._moved)

    # --- the person

    def _follow(self) -> None:
        if self.loop.system.episode and (newest := self.newest()) is not None and newest.outcome == OPEN:
            self._do(newest)
        self.after(LOOK_MS, self._follow)

    def _do(self, record: OutageRecord) -> None:
        cause = outage_cause(record)
        code = cause.code if cause is not None else ""
        self.looks[code] = self.looks.get(code, 0) + 1
        self.steps.append(code)
        match code:
            case "paused":
                self.paused = False
                self._tell(o.PauseRead())
            case "not-proved" | "taken-away" | "power-off-given-up" if self._may_declare(code):
                self.said = {
                    "boot_id": f"b{self.boot}",
                    "mark": f"l{self.lease}",
                    "valid_seconds": 600,
                    "at": str(self.now),
                }
                self._tell(self.person_says(self.now))
            case "hanging" | "unrecovered" if self.looks[code] < PATIENCE:
                pass
            case "hanging":
                self._tell(o.CloseRead(by="ann", why="it will not come", at=str(self.now)))
                self._restart()
            case "proof-wrong" | "six-minute-detach" if self.machine.on and not self.deleted:
                # Switched off, its data checked, and started again.
                self.machine.on = self.machine.writes = False
                self._restart()
            case _:
                self._restart()

    def _may_declare(self, code: str) -> bool:
        return not self.machine.on and not self.deleted and self.looks[code] < PATIENCE

    def _restart(self) -> None:
        """The node is brought back."""
        if not self.deleted:
            self.bmc_lies = self.bmc_stuck = False
            self._mended()
