"""What a Kubernetes node's daemon has beyond the runtime: the API server, the kubelet's unit, and mounts.

One process's view of them. An API server that is lost answers nothing; calls have the bounds of the real
edges, and that it is gone is noticed a while later. One that refuses (429, 500) is there and takes nothing.
A delete that was sent and not answered may have been taken.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from events.base import NS_PER_SECOND, Order
from events.decisions import (
    AnnounceNode,
    AwaitStatuses,
    AwaitUnmounts,
    CheckMounts,
    DeletePod,
    DeliverStatuses,
    PostEvent,
    PublishCertificate,
    StartKubelet,
    StopKubelet,
    WithdrawPods,
)
from events.facts import ApiRead, KubeletRead, MountsRead, RuntimeRead, StatusesSeen, VolumesUnmounted
from replay.virtual.api import Shown
from replay.virtual.draws import Draws
from replay.virtual.effects import Carry, Effects, Work
from replay.virtual.kubelet import Kubelet
from replay.virtual.loop import Agenda
from replay.virtual.plan import Faults
from replay.virtual.pods import Pods
from replay.virtual.trail import MS, Trail

UNIT = "kubelet.service"

#: How long a call is tried, as at the real edges.
BOUNDS_NS: dict[type[Order], int] = {
    AnnounceNode: 60 * NS_PER_SECOND,
    PostEvent: 10 * NS_PER_SECOND,
    DeliverStatuses: 10 * NS_PER_SECOND,
    DeletePod: 1500 * MS,
    PublishCertificate: 2 * NS_PER_SECOND,
    WithdrawPods: NS_PER_SECOND,
}
POLL_NS = 100 * MS
#: Between the last answer and saying that there is none any more.
MISSED_MS = (1500, 6000)


class Api:
    """The API server itself, over all processes of a boot. ``heard`` are told when it is lost, or back."""

    def __init__(self, agenda: Agenda, trail: Trail, faults: Faults) -> None:
        self._agenda, self._trail, self.faults = agenda, trail, faults
        self.reachable = faults.api != "hangs"
        self.heard: list[Callable[[], object]] = []

    def turn(self, reachable: bool) -> None:
        self.reachable = reachable
        self._trail.note("api-back" if reachable else "api-lost")
        for listener in list(self.heard):
            listener()

    @property
    def takes(self) -> bool:
        return self.reachable and self.faults.api == "works"


class Cluster:
    """One process's edges. A runtime that refuses everything counts as away."""

    def __init__(
        self,
        api: Api,
        kubelet: Kubelet,
        pods: Pods,
        shown: Shown,
        agenda: Agenda,
        draws: Draws,
        trail: Trail,
        life: int,
    ) -> None:
        self.effects: Effects
        self._api, self._kubelet, self._pods, self._shown = api, kubelet, pods, shown
        self._agenda, self._draws, self._trail, self._life = agenda, draws, trail, life
        self.alive = True
        #: The last one wins.
        self._announcing: Work | None = None
        api.heard.append(self._api_turned)
        kubelet.changed.append(self._kubelet_changed)
        self.table: dict[type[Order], Carry] = {
            **dict.fromkeys(BOUNDS_NS, self._call),
            AwaitStatuses: self._await_statuses,
            AwaitUnmounts: self._await_unmounts,
            CheckMounts: self._check_mounts,
            StopKubelet: self._stop_kubelet,
            StartKubelet: self._start_kubelet,
        }

    # --- who answers ---------------------------------------------------------------------------

    def look(self) -> None:
        """At the start: who is there."""
        self._later(1, 20, self._say_kubelet)
        runtime = RuntimeRead(reachable=self._api.faults.runtime_refuses != "everything")
        self._later(5, 60, lambda: self._agenda.after(0, runtime))
        self._later(10, 400, self._say_api)

    def _later(self, low_ms: int, high_ms: int, do: Callable[[], object]) -> None:
        delay_ns = self._draws.between(low_ms, high_ms) * MS
        self._agenda.later(delay_ns, lambda: do() if self.alive else None)

    def _api_turned(self) -> None:
        self._later(*((5, 500) if self._api.reachable else MISSED_MS), self._say_api)

    def _kubelet_changed(self) -> None:
        self._later(1, 30, self._say_kubelet)

    def _say_api(self) -> None:
        reachable, taint = self._api.reachable, self._api.faults.taints
        error = "" if reachable else "no answer"
        self._agenda.after(0, ApiRead(reachable=reachable, error=error, taint=taint))

    def _say_kubelet(self) -> None:
        self._agenda.after(0, KubeletRead(unit=UNIT, active=self._kubelet.running))

    # --- calls ---------------------------------------------------------------------------------

    def _call(self, work: Work) -> None:
        if isinstance(work.order, AnnounceNode):
            if self._announcing is not None:
                self.effects.end(self._announcing, "cancelled", "a later announcement has overtaken it")
            self._announcing = work
        takes_ns = self._api.faults.api_takes_ns + self._draws.between(0, 8 * MS)
        bound_ns = BOUNDS_NS[type(work.order)]
        if self._api.takes and takes_ns < bound_ns:
            self.effects.then(work, takes_ns, partial(self._answer, work, bound_ns - takes_ns))
        else:
            self._unanswered(work, bound_ns, heard=self._api.reachable)

    def _unanswered(self, work: Work, left_ns: int, *, heard: bool) -> None:
        """What may be repeated is. A delete was perhaps sent, and if anybody ``heard`` it perhaps taken."""
        refused = self._api.reachable and self._api.faults.api == "fails"
        if not isinstance(work.order, DeletePod) or refused or self._draws.chance(1, 2):
            self._wait(work, left_ns)
            return
        if heard and self._draws.chance(1, 2):
            self._take(work.order)
        self.effects.then(work, left_ns, partial(self.effects.end, work, "timed-out", "sent"))

    def _wait(self, work: Work, left_ns: int) -> None:
        """It is tried again until its time is over: a server that comes back takes it."""
        step_ns = min(500 * MS, left_ns)
        self.effects.then(work, step_ns, partial(self._try_again, work, left_ns - step_ns))

    def _try_again(self, work: Work, left_ns: int) -> None:
        if self._api.takes and self._api.faults.api_takes_ns < left_ns:
            self._answer(work, left_ns)
        elif left_ns > 0:
            self._wait(work, left_ns)
        else:
            self.effects.end(work, "failed", "no answer in time" if not self._api.reachable else "429")

    def _answer(self, work: Work, left_ns: int) -> None:
        if not self._api.takes:
            self._unanswered(work, left_ns, heard=True)
            return
        self._take(work.order)
        self.effects.end(work)

    def _take(self, order: Order) -> None:
        note, life = self._trail.note, self._life
        if isinstance(order, AnnounceNode):
            self._shown.ready = order.ready
            note("announce", detail="ready" if order.ready else "going down", life=life)
        elif isinstance(order, DeliverStatuses):
            for uid, phase, _, _ in order.statuses:
                note("late-status" if order.unchanged_only else "status", uid, detail=phase, life=life)
        elif isinstance(order, DeletePod):
            note("delete", order.uid, detail=f"{order.grace_seconds} s", life=life)
            self._kubelet.delete(order.uid, order.grace_seconds * NS_PER_SECOND)
        elif isinstance(order, PublishCertificate):
            note("certificate", detail="safe" if order.safe else "not safe", life=life)

    def _await_statuses(self, work: Work) -> None:
        order = cast(AwaitStatuses, work.order)
        self._poll(work, self._agenda.now_ns + order.timeout_ns)

    def _poll(self, work: Work, until_ns: int) -> None:
        uids = cast(AwaitStatuses, work.order).uids
        missing = tuple(uid for uid in uids if not self._api.takes or uid not in self._kubelet.final)
        left_ns = until_ns - self._agenda.now_ns
        if missing and left_ns > 0:
            self.effects.then(work, min(POLL_NS, left_ns), partial(self._poll, work, until_ns))
            return
        self._agenda.after(0, StatusesSeen(key=work.order.key, missing=missing))
        self.effects.end(work, "timed-out" if missing else "done")

    # --- volumes -------------------------------------------------------------------------------

    def _await_unmounts(self, work: Work) -> None:
        order = cast(AwaitUnmounts, work.order)
        until_ns = self._agenda.now_ns + order.timeout_ns
        self._watch_mounts(work, list(order.uids), until_ns)

    def _watch_mounts(self, work: Work, uids: list[str], until_ns: int) -> None:
        gone = [uid for uid in uids if uid not in self._kubelet.mounted]
        for uid in gone:
            self._agenda.after(0, VolumesUnmounted(uid=uid))
        left = [uid for uid in uids if uid in self._kubelet.mounted]
        left_ns = until_ns - self._agenda.now_ns
        if not left:
            self.effects.end(work)
        elif left_ns <= 0:
            self.effects.end(work, "timed-out")
        else:
            self.effects.then(work, min(20 * MS, left_ns), partial(self._watch_mounts, work, left, until_ns))

    def _check_mounts(self, work: Work) -> None:
        self.effects.then(work, self._draws.between(1, 15) * MS, partial(self._read_mounts, work))

    def _read_mounts(self, work: Work) -> None:
        mounted = tuple((uid, "data") for uid in self._kubelet.mounted)
        self._agenda.after(0, MountsRead(key=work.order.key, mounted=mounted))
        self.effects.end(work)

    # --- the kubelet's unit --------------------------------------------------------------------

    def _stop_kubelet(self, work: Work) -> None:
        stays = self._api.faults.kubelet == "stays"
        takes_ns = 2 * NS_PER_SECOND if stays else self._draws.between(10, 90) * MS
        self.effects.then(work, takes_ns, partial(self._stopped, work, stays))

    def _stopped(self, work: Work, stays: bool) -> None:
        if stays:
            self.effects.end(work, "failed", "the unit did not stop")
            return
        self._kubelet.stop()
        self.effects.end(work)

    def _start_kubelet(self, work: Work) -> None:
        self.effects.then(work, self._draws.between(10, 400) * MS, partial(self._started, work))

    def _started(self, work: Work) -> None:
        self._kubelet.start()
        self.effects.end(work)
