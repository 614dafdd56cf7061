"""A leader watches Nodes, leases, pods and attachments. It runs a `Follower` for each node in trouble and for
each journal that an earlier leader left open. No state survives a lead: the next leader reads it from the API
server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.config_maps import StoredJournal, list_journals
from ebbtide.actors.edges.kubernetes.node_view import NodeView
from ebbtide.actors.interfaces import WARNING
from ebbtide.events.units import span_s
from ebbtide.log import failure_line
from ebbtide.outage.outage_follower import Follower, JournalLost, Shared, in_trouble

#: A look at a thousand nodes takes 3 ms.
LOOK_SECONDS = 0.5
#: Followers begun at each look: each costs ten requests of twenty a second, and a slow API server makes all
#: leases late.
BEGUN_MAX = 5
#: The next leader waits until all followers have left.
LEFT_SECONDS = 0.05
#: Before a failed follower starts again.
AGAIN_SECONDS = 15.0


def urgency(node: NodeView | None) -> int:
    """The lower begins first: a node that our taint alone makes unusable, then nodes that others report down
    too. ``node`` None: deleted, only its journal is to be closed.
    """
    if node is not None and node.taint == "ours" and node.ready == "True":
        return 0
    return 1 if node is not None and node.ready == "Unknown" else 2


class Leader:
    """One lead. ``tasks`` run beside the followers until cancelled, and never fail."""

    def __init__(
        self, shared: Shared, link: ApiClient, tasks: Sequence[Callable[[ApiClient], Awaitable[None]]]
    ) -> None:
        self._shared, self._link, self._tasks = shared, link, tasks
        #: By Node UID.
        self.followers: dict[str, Follower] = {}
        #: Open journals without a follower, by Node UID: the Node's name, and when the next one may begin.
        self._left: dict[str, tuple[str, float]] = {}
        self._nursery: trio.Nursery
        self._fenced = ""
        self._leaving = False

    async def run(self) -> None:
        """Until cancelled, or until a journal has another leader."""
        shared = self._shared
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for task in self._tasks:
                nursery.start_soon(task, self._link)
            await shared.view.listed()
            now = trio.current_time()
            for journal in await self._stored():
                if not journal.at_rest and journal.node:
                    self._left[journal.node_uid] = journal.node, now
            while not self._fenced:
                for node_uid, node in self._due()[: 0 if self._leaving else BEGUN_MAX]:
                    self._follow(node, node_uid)
                await trio.sleep(LOOK_SECONDS)
            nursery.cancel_scope.cancel()
        if self._fenced:
            shared.tell(WARNING, f"{self._fenced}: not leading any more")

    async def leave(self) -> None:
        """Begin no follower any more, and return once all have stored their records."""
        self._leaving = True
        for follower in self.followers.values():
            follower.leave()
        while self.followers:
            await trio.sleep(LEFT_SECONDS)

    def _due(self) -> list[tuple[str, str]]:
        """UID and name of the nodes to follow now, the most urgent first."""
        now, there = trio.current_time(), {node.uid: node for node in self._shared.view.there()}
        # A healthy node too: its outage may be open.
        due = {node_uid: node for node_uid, (node, at) in self._left.items() if at <= now}
        due |= {
            node.uid: node.name
            for node in there.values()
            if node.uid not in self.followers
            and node.uid not in self._left
            and in_trouble(self._shared.view, node.name, node.uid)
        }
        return sorted(due.items(), key=lambda each: urgency(there.get(each[0])))

    async def _stored(self) -> list[StoredJournal]:
        told = ""
        while True:
            try:
                return await list_journals(self._shared.caller, self._shared.namespace)
            except OSError as error:
                if str(error) != told:
                    self._shared.tell(WARNING, told := f"{error.strerror or error}: trying again")
                await trio.sleep(AGAIN_SECONDS)

    def _follow(self, node: str, node_uid: str) -> None:
        self._left.pop(node_uid, None)
        self.followers[node_uid] = Follower(self._shared, node, node_uid)
        self._nursery.start_soon(self._run, self.followers[node_uid])

    async def _run(self, follower: Follower) -> None:
        """A failed follower stops no other."""
        try:
            await follower.run()
        except JournalLost as lost:
            if lost.fenced:
                self._fenced = f"{follower.node}: {lost}"
            else:
                self._failed(follower, f"the journal: {lost}")
        except BaseExceptionGroup as group:
            # If the lead ends at the same time, the group contains its Cancelled, which must go on.
            failures, ends = group.split(Exception)
            if failures is not None:
                self._broke(follower, failures)
            if ends is not None:
                raise ends from None
        except Exception as error:
            self._broke(follower, error)
        finally:
            del self.followers[follower.node_uid]

    def _broke(self, follower: Follower, error: Exception) -> None:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        self._failed(follower, failure_line("the follower", error))

    def _failed(self, follower: Follower, line: str) -> None:
        self._shared.on_failed()
        self._shared.tell(WARNING, f"{follower.node}: {line}: beginning anew in {span_s(AGAIN_SECONDS)}")
        self._left[follower.node_uid] = (follower.node, trio.current_time() + AGAIN_SECONDS)
