"""The controller: one replica that waits for the Lease, and what it does while it leads.

A leader watches all Nodes and leases, pods and attachments, and has a `Follower` for each node in trouble.
It decides nothing about them; it only begins with the journals that an earlier leader left open, and with
every node that gives no sign of life. Nothing is kept here from one lead to the next: whoever leads next,
here or elsewhere, finds all of it in the API server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from ebbtide.actors.edges.kubernetes.api_watch import Streamer
from ebbtide.actors.edges.kubernetes.config_maps import StoredJournal, list_journals
from ebbtide.actors.edges.kubernetes.node_view import NodeView
from ebbtide.actors.interfaces import WARNING
from ebbtide.events.units import span_s
from ebbtide.log import failure_line
from ebbtide.outage.follower import Follower, JournalLost, Shared, in_trouble

#: How often all nodes are looked at: a thousand take three milliseconds, and nobody waits for it, because a
#: node's lease is silent long before the node is NotReady.
LOOK_SECONDS = 0.5
#: Begun at each look, the most urgent first: an API server that is slow makes all leases late, and a thousand
#: journals at once would make it slower. Each costs ten requests, of which twenty a second may be made.
BEGUN_MAX = 5
#: How often it is looked whether all have left: the next leader waits for it.
LEFT_SECONDS = 0.05
#: Before a follower that failed begins anew. What it could not do, somebody has to mend.
AGAIN_SECONDS = 15.0


class Watching(NamedTuple):
    """What a leader runs beside its followers: each until cancelled, and none of them fails."""

    tasks: tuple[Callable[[Streamer], Awaitable[None]], ...]


def urgency(node: NodeView | None) -> int:
    """The lower begins first: a node that is back, and that nobody can use while our taint stands; then what
    others have found dead as well. ``node`` None: it is gone, and only its journal is to be closed.
    """
    if node is not None and node.taint == "ours" and node.ready == "True":
        return 0
    return 1 if node is not None and node.ready == "Unknown" else 2


class Leader:
    """One lead, from its begin to its end."""

    def __init__(self, shared: Shared, link: Streamer, watching: Watching) -> None:
        self._shared, self._link, self._watching = shared, link, watching
        #: By Node UID.
        self.followers: dict[str, Follower] = {}
        #: Journals that an earlier leader left open, or a follower that has failed, by Node UID: the name of
        #: the Node, and from when on another one may begin.
        self._left: dict[str, tuple[str, float]] = {}
        self._nursery: trio.Nursery
        self._fenced = ""
        self._leaving = False

    async def run(self) -> None:
        """Until cancelled, or until another leader is met in a journal."""
        shared = self._shared
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for task in self._watching.tasks:
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
        """Begins with nobody any more, and returns once all followers have stored what they know."""
        self._leaving = True
        for follower in self.followers.values():
            follower.leave()
        while self.followers:
            await trio.sleep(LEFT_SECONDS)

    def _due(self) -> list[tuple[str, str]]:
        """UID and name of whom to begin with, the most urgent first."""
        now, there = trio.current_time(), {node.uid: node for node in self._shared.view.there()}
        # Also where no trouble is to be seen by now: its outage may be open, and nobody else has it.
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
        """One that fails takes no other with it."""
        try:
            await follower.run()
        except JournalLost as lost:
            if lost.fenced:
                self._fenced = f"{follower.node}: {lost}"
            else:
                self._failed(follower, f"the journal: {lost}")
        except BaseExceptionGroup as group:
            # Where the lead ends at the same time its end is in the group too, and that is not to be kept.
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
