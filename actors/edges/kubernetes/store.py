"""The pods of this node as far as they are known: from the watch, from before a restart, from manifests.

The watch replaces what the cache on disk had as soon as it has listed; manifests answer for static pods
that the API never showed.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

from actors.edges.kubernetes.calling import Known

Name = tuple[str, str]


class Store:
    """A `Lookup`. ``version`` counts changes, ``membership`` those of which pods there are."""

    def __init__(self) -> None:
        #: By the object's own UID.
        self._pods: dict[str, Known] = {}
        self._by_uid: dict[str, Known] = {}
        self._manifests: dict[Name, Known] = {}
        #: Where a watch goes on; empty: nothing was listed yet.
        self.resource_version = ""
        self.version = 0
        self.membership = 0
        self._news = trio.Event()

    async def changed(self, since: int) -> None:
        """Return once ``version`` is another than this."""
        while self.version == since:
            await self._news.wait()

    # --- what is asked ---------------------------------------------------------------------------

    def find(self, uid: str) -> Known | None:
        """By the UID that the runtime knows."""
        return self._by_uid.get(uid)

    def find_named(self, namespace: str, name: str) -> Known | None:
        """By name, for a static pod whose UID only the kubelet can tell: a manifest's has none."""
        named = (each for each in self._pods.values() if (each.namespace, each.name) == (namespace, name))
        return next(named, None) or self._manifests.get((namespace, name))

    def pods(self) -> list[Known]:
        """The API's first, then static ones that it has not shown."""
        shown = {(each.namespace, each.name) for each in self._pods.values()}
        unseen = [each for name, each in self._manifests.items() if name not in shown]
        return [*self._pods.values(), *unseen]

    def watched(self) -> list[Known]:
        """What the API has shown: what is worth keeping over a restart."""
        return list(self._pods.values())

    # --- what is learned -------------------------------------------------------------------------

    def restore(self, pods: Iterable[Known]) -> None:
        """What was known before a restart, unless the watch was faster."""
        if not self.resource_version:
            self._set(pods)

    def replace(self, pods: Iterable[Known], resource_version: str) -> None:
        """A whole list, as of that version."""
        before = self._pods.keys()
        self._set(pods)
        self.resource_version = resource_version
        self._tell(before != self._pods.keys())

    def put(self, pod: Known) -> None:
        """One pod, new or changed."""
        old = self._pods.get(pod.api_uid)
        if old is not None and old.uid != pod.uid:
            self._by_uid.pop(old.uid, None)
        self._pods[pod.api_uid] = self._by_uid[pod.uid] = pod
        self._tell(old is None)

    def remove(self, api_uid: str) -> None:
        """One pod whose object is gone. A mirror that was made anew has another object, and the same UID."""
        old = self._pods.pop(api_uid, None)
        if old is None:
            return
        if self._by_uid.get(old.uid) is old:
            del self._by_uid[old.uid]
        self._tell(True)

    def set_manifests(self, pods: Iterable[Known]) -> None:
        """The static pods of this node, all of them."""
        self._manifests = {(each.namespace, each.name): each for each in pods}

    def _tell(self, membership: bool) -> None:
        self.version += 1
        self.membership += membership
        self._news.set()
        self._news = trio.Event()

    def _set(self, pods: Iterable[Known]) -> None:
        self._pods = {each.api_uid: each for each in pods}
        self._by_uid = {each.uid: each for each in self._pods.values()}
