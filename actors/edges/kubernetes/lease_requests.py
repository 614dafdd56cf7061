"""People's requests to pause the controller, and to close an outage.

They are an annotation on the controller's Lease: the leader reads it every two seconds, and no kubelet may
write it. A request may be about a deleted Node.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import trio

from ebbtide.actors.edges.kubernetes.api_calls import JsonObject
from ebbtide.actors.edges.kubernetes.node_view import PERSON
from ebbtide.actors.interfaces import Edge, Effect, Outlet
from ebbtide.events.base import Order
from ebbtide.events.messages import shortened_list
from ebbtide.events.outage_events import CloseRead, PauseRead

REQUESTS_ANNOTATION = "ebbtide.dev/requests"
#: Every leader keeps it in memory.
REQUESTS_CHARACTERS_MAX = 2**16
#: It is in a record.
WHY_CHARACTERS_MAX = 200
#: In place of a Node's name: all nodes.
ALL = ""
#: In place of a person's name.
UNREADABLE = "unreadable"
#: In one text.
NAMED_MAX = 3


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """``at`` distinguishes it from earlier ones."""

    by: str
    at: str
    why: str = ""


class Requests(msgspec.Struct, frozen=True, omit_defaults=True):
    """By Node."""

    pause: dict[str, Request] = {}
    close: dict[str, Request] = {}

    def paused(self, node: str) -> str:
        """The person; empty: not paused."""
        found = self.pause.get(ALL) or self.pause.get(node)
        return found.by if found is not None else ""

    def pauses_text(self, node: str = ALL) -> str:
        found = [
            f"{name or 'every node'} by {each.by}" + (f" ({each.why})" if each.why else "")
            for name, each in sorted(self.pause.items())
            if node in (ALL, name) or name == ALL
        ]
        return shortened_list(found, NAMED_MAX)


def read_requests(lease: JsonObject) -> Requests:
    """An unreadable request pauses: a person may have meant to protect a machine."""
    text = ((lease.get("metadata") or {}).get("annotations") or {}).get(REQUESTS_ANNOTATION) or ""
    try:
        if len(text) > REQUESTS_CHARACTERS_MAX:
            raise ValueError
        found = msgspec.json.decode(text or "{}", type=Requests)
    except (ValueError, RecursionError):
        return Requests({ALL: Request(by=UNREADABLE, at="")})
    return Requests(
        {
            node: each if _is_readable(each) else Request(by=UNREADABLE, at="")
            for node, each in found.pause.items()
        },
        {node: each for node, each in found.close.items() if _is_readable(each)},
    )


def _is_readable(found: Request) -> bool:
    return bool(PERSON.fullmatch(found.by)) and max(len(found.why), len(found.at)) <= WHY_CHARACTERS_MAX


class RequestsView:
    """Take ``news`` before the look."""

    def __init__(self) -> None:
        self.now = Requests()
        self.news = trio.Event()

    def take(self, lease: JsonObject) -> None:
        if (found := read_requests(lease)) != self.now:
            self.now = found
            self.news.set()
            self.news = trio.Event()


class RequestsEdge(Edge):
    """Make it when the settings are read: they have the pause of that moment."""

    def __init__(self, view: RequestsView, node: str) -> None:
        self._view, self._node = view, node
        self._paused, self._closed = view.now.paused(node), ""
        self.effects: Mapping[type[Order], Effect] = {}

    async def run(self, outlet: Outlet) -> None:
        while True:
            news, now = self._view.news, self._view.now
            if (by := now.paused(self._node)) != self._paused:
                self._paused = by
                await outlet.put(PauseRead(by=by))
            asked = now.close.get(self._node)
            if asked is not None and asked.at != self._closed:
                self._closed = asked.at
                await outlet.put(CloseRead(by=asked.by, why=asked.why, at=asked.at))
            await news.wait()
