"""Sends the outages' traces: after each ended part, and at the end.

Each sending reads the short journal again: an ended span never changes. If this leader could not send a
trace, it needs ``ebbtide export otlp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import trio

from ebbtide.actors.edges.kubernetes.api_calls import ApiCaller
from ebbtide.actors.edges.kubernetes.config_maps import ConfigMapStorage
from ebbtide.actors.interfaces import NOTICE, WARNING, Tell
from ebbtide.events import outage_events
from ebbtide.events.base import Record
from ebbtide.events.catalog import Source
from ebbtide.events.codec import BadPayload
from ebbtide.events.reader import History
from ebbtide.events.units import span_s
from ebbtide.otel.destination import BadDestination, Destination
from ebbtide.otel.otlp_sink import Delivered, EpisodeSpans, deliver, spans_of

#: The ends of spans.
TOLD_AFTER = (
    outage_events.OutOfService,
    outage_events.WorkRecovered,
    outage_events.NodeReturned,
    outage_events.OutageClosed,
    outage_events.LastBootStated,
)

READ_SECONDS_MAX = 30.0
#: A slower back end delays other nodes' traces.
GIVE_UP_SECONDS = 60.0
#: Enough for a back end's restart.
AGAIN_SECONDS = 60.0
#: For storing a record: a create takes milliseconds.
SOON_SECONDS = 1.0
#: For a back end, or for the record of a fenced leader.
WAITING_SECONDS_MAX = 12 * 3600.0


class _Wanted(NamedTuple):
    """``seq``: its journal must be stored up to this record."""

    node_uid: str
    episode: int
    seq: int
    since: float


class OfNode(Protocol):
    """A `Follower`."""

    @property
    def node_uid(self) -> str: ...


class OutageTraces:
    def __init__(self, caller: ApiCaller, namespace: str, destination: Destination, tell: Tell) -> None:
        self._caller, self._namespace, self._tell = caller, namespace, tell
        self._destination = destination
        #: By outage, the oldest first.
        self._waiting: dict[tuple[str, int], _Wanted] = {}
        #: By Node, the last ended outage: its boot's end may be stated later.
        self._ended: dict[str, int] = {}
        self._more = trio.Event()
        self._told = ""

    def observe(self, follower: OfNode, records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record.event, outage_events.OutageClosed):
                self._ended[follower.node_uid] = record.episode
            episode = record.episode or self._ended.get(follower.node_uid, 0)
            if isinstance(record.event, TOLD_AFTER) and episode:
                self.want(follower.node_uid, episode, record.seq)

    def want(self, node_uid: str, episode: int, seq: int) -> None:
        """Sends the outage's ended spans up to that record."""
        self._waiting[node_uid, episode] = _Wanted(node_uid, episode, seq, trio.current_time())
        self._more.set()

    async def run(self, link: object = None) -> None:
        """``link``: for watchers."""
        while True:
            await self._more.wait()
            self._more = trio.Event()
            pauses = [await self._send(wanted) for wanted in list(self._waiting.values())]
            if self._waiting:
                with trio.move_on_after(min(filter(None, pauses), default=0)):
                    await self._more.wait()
                self._more.set()

    async def _send(self, wanted: _Wanted) -> float:
        """Seconds until the next try; 0: finished."""
        if trio.current_time() - wanted.since > WAITING_SECONDS_MAX:
            return self._finish(wanted, self._told or "its journal could not be read")
        sent = Delivered(self._say)
        try:
            found = await self._read(wanted)
            if found is None:
                # A journal that has begun anew never stores it.
                late = trio.current_time() - wanted.since > AGAIN_SECONDS
                return AGAIN_SECONDS if late else SOON_SECONDS
            done = await deliver(found, self._destination, sent, GIVE_UP_SECONDS)
        except OSError as error:
            self._say(error.strerror or str(error))
            return AGAIN_SECONDS
        except (BadDestination, BadPayload, KeyError) as error:
            return self._finish(wanted, str(error))
        if sent.rejected:
            self._tell(WARNING, f"traces: {sent.rejected} spans were rejected: {sent.reason}")
        if not done:
            return AGAIN_SECONDS
        self._say("")
        return self._finish(wanted)

    def _finish(self, wanted: _Wanted, problem: str = "") -> float:
        # More of it may be wanted now.
        if self._waiting.get((wanted.node_uid, wanted.episode)) is wanted:
            del self._waiting[wanted.node_uid, wanted.episode]
        if problem:
            self._tell(WARNING, f"the trace of an outage of Node {wanted.node_uid} is not sent: {problem}")
        return 0

    async def _read(self, wanted: _Wanted) -> EpisodeSpans | None:
        """None: not stored yet. Raises OSError, and the errors of `spans_of`."""

        def project(source: Source) -> EpisodeSpans | None:
            history = History([source])
            return None if history.read().end.seq < wanted.seq else spans_of(history, wanted.episode)

        with trio.move_on_after(READ_SECONDS_MAX):
            storage = ConfigMapStorage(self._caller, self._namespace, wanted.node_uid, "")
            await storage.acquire("")
            return await trio.to_thread.run_sync(project, storage.source, abandon_on_cancel=True)
        raise OSError(f"the journal was not read within {span_s(READ_SECONDS_MAX)}")

    def _say(self, reason: str) -> None:
        """Once for each reason, for all traces."""
        if reason != self._told:
            self._tell(WARNING if reason else NOTICE, f"traces: {reason or 'they arrive again'}")
            self._told = reason
