"""The edge of one node's pods and attachments: lists them on order, and then reports changes.

It reads `WorkView` and asks the API server for nothing. It reports only what was listed, and pods of the
owners that came since. Several changes in a row are reported once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import trio

from ebbtide.actors.edges.kubernetes.work_view import AttachmentView, Changes, PodView, WorkView
from ebbtide.actors.hang import ATTACHER_SECONDS, TEXTS
from ebbtide.actors.interfaces import Edge, Effect, Ending, Outlet, TraceContext
from ebbtide.events import outage_events
from ebbtide.events.base import Fact, Order, Record
from ebbtide.events.outage_events import Effect as TaintEffect

OVER = "the outage is over"


def elsewhere(pod: PodView) -> outage_events.ElsewhereRead:
    waiting = f"a new pod is not Ready: {pod.waiting}" if pod.waiting else ""
    return outage_events.ElsewhereRead(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        owner_uid=pod.owner_uid,
        node=pod.node,
        ready=pod.ready,
        waiting=waiting,
    )


class WorkEdge(Edge):
    """``lost``: an earlier leader's pods that are not over. The sequencer calls `observe`, which ends reports
    that are no longer needed: an outage may be open for weeks.
    """

    def __init__(
        self,
        view: WorkView,
        node: str,
        *,
        effect: TaintEffect = "NoExecute",
        lost: Iterable[outage_events.PodLost] = (),
        context: TraceContext = lambda key: "",
    ) -> None:
        self._view, self._node, self._effect = view, node, effect
        self._changes = Changes()
        #: By owner, pods that are no successors.
        self._before: dict[str, frozenset[str]] = {}
        #: By owner, pods that have replaced one already.
        self._claimed: dict[str, dict[str, None]] = {}
        #: By pod that is not over, its owner's UID.
        self._open: dict[str, str] = {}
        for each in lost:
            if owner := each.pod.owner_uid:
                there = frozenset(each.elsewhere)
                self._before[owner] = self._before.get(owner, there) & there
                self._open[each.pod.uid] = owner
        #: Pods that were ending when they were found: their replacements exist already.
        self._replaced: dict[str, None] = {}
        #: The last report, by UID.
        self._lost: dict[str, outage_events.LostPod] = {}
        self._new: dict[str, outage_events.ElsewhereRead] = {}
        self._attachments: dict[str, outage_events.Attachment] = {}
        #: By attachment's UID, since when its attacher has been silent.
        self._unheard: dict[str, float] = {}
        self._outages = 0
        self._telling = trio.Lock()
        self.effects: Mapping[type[Order], Effect] = {outage_events.ListWork: self._list}

    def observe(self, records: Sequence[Record]) -> None:
        """`OutageClosed` ends all reports, until the next `ListWork`."""
        for event in (record.event for record in records):
            if isinstance(event, outage_events.PodRecovered):
                self._drop_pod(event.uid, event.by)
            elif isinstance(event, outage_events.Detached):
                for uid in [uid for uid, each in self._attachments.items() if each.name == event.name]:
                    del self._attachments[uid]
                    self._unheard.pop(uid, None)
            elif isinstance(event, outage_events.OutageClosed):
                self._outages += 1
                self._view.forget(self._changes)
                self._changes.take()
                for each in self._followed():
                    each.clear()

    def _followed(self) -> tuple[dict[str, Any], ...]:
        owners = (self._before, self._claimed, self._open, self._replaced)
        return (*owners, self._lost, self._new, self._attachments, self._unheard)

    def _drop_pod(self, uid: str, by: str) -> None:
        self._lost.pop(uid, None)
        owner = self._open.pop(uid, None)
        if owner is None:
            return
        if owner in self._open.values():
            # It may still exist, and is no successor.
            self._before[owner] |= {uid}
            if by:
                self._claimed.setdefault(owner, {})[by] = None
            return
        del self._before[owner]
        self._claimed.pop(owner, None)
        self._new = {uid: each for uid, each in self._new.items() if each.owner_uid != owner}
        if self._changes.keys:
            self._view.follow(self._changes, self._node, self._before)

    async def _list(self, order: outage_events.ListWork, outlet: Outlet) -> Ending:
        outage = self._outages
        # Without the API server nothing can be done.
        await self._view.current()
        async with self._telling:
            if outage != self._outages:
                return Ending("cancelled", OVER)
            listed, facts = self._start(order.key)
            await outlet.put(listed, *facts)
        return Ending()

    def _start(self, key: str) -> tuple[outage_events.WorkListed, list[outage_events.ElsewhereRead]]:
        pods = [pod for pod in self._view.pods_of(self._node) if not pod.over]
        # A controller replaces a pod that is Terminating or has ended at once, but for one of the same name.
        # Pods that became so in this outage are waited for.
        for pod in pods:
            if (pod.terminating or pod.ended) and not pod.same_name and pod.uid not in self._open:
                self._replaced[pod.uid] = None
        told_new, self._lost = self._new, {pod.uid: self._lost_pod(pod) for pod in pods}
        # A pod of the same name cannot be elsewhere, and one of another name is no successor.
        owned = {
            pod.uid: pod.owner_uid
            for pod in pods
            if pod.owner_uid and not pod.daemon and pod.uid not in self._replaced
        }
        there = {
            owner: frozenset(each.uid for each in self._siblings(owner))
            for owner in dict.fromkeys(owned.values())
        }
        self._open |= owned
        self._before = {**there, **self._before}
        named = dict.fromkeys(owned[pod.uid] for pod in pods if pod.uid in owned and not pod.same_name)
        others = {
            owner: tuple(sorted({*self._before[owner], *self._claimed.get(owner, ())})) for owner in named
        }
        self._view.follow(self._changes, self._node, self._before)
        self._changes.take()
        news = [each for owner in self._before for each in self._siblings(owner) if self._is_new(each)]
        self._new = {each.uid: elsewhere(each) for each in news}
        # Bound to this node since, and lost as well: it replaces no pod.
        lost_again = [_gone(each) for uid, each in told_new.items() if uid in self._lost]
        self._unheard = {}
        now = trio.current_time()
        self._attachments = {
            each.uid: self._attachment(each, now) for each in self._view.attachments_of(self._node)
        }
        listed = outage_events.WorkListed(
            key=key,
            pods=tuple(self._lost.values()),
            attachments=tuple(self._attachments.values()),
            elsewhere={owner: uids for owner, uids in others.items() if uids},
        )
        return listed, [*lost_again, *self._new.values()]

    def _lost_pod(self, pod: PodView) -> outage_events.LostPod:
        return outage_events.LostPod(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            owner_uid="" if pod.uid in self._replaced else pod.owner_uid,
            owner=pod.owner,
            same_name=pod.same_name,
            daemon=pod.daemon,
            tolerates=self._effect in pod.tolerates,
            terminating=pod.terminating,
            finalizers=pod.finalizers,
            volumes=self._view.volumes_of(pod),
        )

    def _siblings(self, owner: str) -> list[PodView]:
        return [each for each in self._view.siblings(owner) if each.uid not in self._lost]

    def _is_new(self, pod: PodView) -> bool:
        return pod.uid not in self._lost and pod.uid not in self._before.get(pod.owner_uid, (pod.uid,))

    async def run(self, outlet: Outlet) -> None:
        """Report changes of what was listed, until cancelled."""
        try:
            while True:
                now = trio.current_time()
                silent_at = (self._heard_at(uid) + ATTACHER_SECONDS for uid in self._unheard)
                with trio.move_on_at(min((at for at in silent_at if at > now), default=math.inf)):
                    await self._changes.news.wait()
                async with self._telling:
                    facts = self._look()
                    if facts:
                        await outlet.put(*facts)
        finally:
            self._view.forget(self._changes)

    def _look(self) -> list[Fact]:
        pods, attachments = self._changes.take()
        facts = [fact for uid in pods if (fact := self._look_at(uid)) is not None]
        now = trio.current_time()
        silent = [uid for uid in self._unheard if now >= self._heard_at(uid) + ATTACHER_SECONDS]
        for uid in dict.fromkeys((*attachments, *silent)):
            if (fact := self._look_at_attachment(uid, now)) is not None:
                facts.append(fact)
        return facts

    def _look_at(self, uid: str) -> Fact | None:
        pod = self._view.pods.kept.get(uid)
        if uid in self._lost:
            if pod is None:
                del self._lost[uid]
                return outage_events.LostPodGone(uid=uid)
            lost = self._lost_pod(pod)
            if lost != self._lost[uid]:
                self._lost[uid] = lost
                return outage_events.LostPodRead(pod=lost)
        elif pod is None:
            if (last := self._new.pop(uid, None)) is not None and last != (gone := _gone(last)):
                return gone
        elif self._is_new(pod) and self._new.get(uid) != (news := elsewhere(pod)):
            self._new[uid] = news
            return news
        return None

    def _look_at_attachment(self, uid: str, now: float) -> Fact | None:
        last = self._attachments.get(uid)
        if last is None:
            return None
        found = self._view.attachments.kept.get(uid)
        if found is None:
            del self._attachments[uid]
            self._unheard.pop(uid, None)
            return outage_events.AttachmentGone(name=last.name)
        told = self._attachment(found, now)
        if told == last:
            return None
        self._attachments[uid] = told
        return outage_events.AttachmentRead(attachment=told)

    def _attachment(self, attachment: AttachmentView, now: float) -> outage_events.Attachment:
        error, uid = attachment.error, attachment.uid
        if not attachment.unheard:
            self._unheard.pop(uid, None)
        else:
            self._unheard.setdefault(uid, now)
            if now >= self._heard_at(uid) + ATTACHER_SECONDS:
                error = TEXTS["attacher-silent"].format(driver=attachment.driver)
        return outage_events.Attachment(
            name=attachment.name,
            volume=attachment.volume,
            driver=attachment.driver,
            deleting=attachment.deleting,
            error=error,
            unique_name=self._view.unique_name(attachment.volume),
        )

    def _heard_at(self, uid: str) -> float:
        return max(self._unheard[uid], self._view.hears_since)


def _gone(last: outage_events.ElsewhereRead) -> outage_events.ElsewhereRead:
    return outage_events.ElsewhereRead(
        uid=last.uid, namespace=last.namespace, name=last.name, owner_uid=last.owner_uid
    )
