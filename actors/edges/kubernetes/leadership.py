"""Leader election among replicas, by a Lease in the controller's namespace, as client-go does it.

Each replica uses its own monotonic clock. A Lease does not fence (a paused replica may send its request
later): it decides which replica tries, and the journal's create decides which leads (`config_maps`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import quote

import msgspec
import trio

from ebbtide.actors.edges.kubernetes import api_calls as api
from ebbtide.actors.interfaces import NOTICE, WARNING, Tell
from ebbtide.events import bounds
from ebbtide.events.units import span_s

#: client-go's. Another replica takes over an unchanged record after the first, the holder stops after the
#: second without a renewal, each asks every third.
LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 15.0, 10.0, 2.0
JITTER = 0.2
LEASE = "ebbtide-outage"
#: Why the leader cannot write its journal.
NOTE_ANNOTATION = "ebbtide.dev/blocked"


class LeaseRecord(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None

    @property
    def holder(self) -> str:
        return self.holder_identity or ""


class _NotAllowed(Exception):
    """The API server refuses."""


class _Lost(Exception):
    """Another replica holds it."""


class Leadership:
    """``identity``: unique to this process. ``note``: the leader's, renewed with the Lease. ``holder``: at
    the last look. ``on_lease`` gets each Lease. Raises ValueError without an identity.
    """

    def __init__(
        self,
        caller: api.ApiCaller,
        namespace: str,
        name: str,
        identity: str,
        tell: Tell = lambda level, line: None,
        note: Callable[[], str] = str,
        on_lease: Callable[[api.JsonObject], None] = lambda lease: None,
    ) -> None:
        if not identity:
            raise ValueError("a leader needs an identity: name this process")
        self.holder = ""
        self._caller, self._tell, self._identity, self._note_of = caller, tell, identity, note
        self._on_lease = on_lease
        self._name, self._label = name, f"the Lease {namespace}/{name}"
        space = quote(namespace, safe="")
        self._leases_path = f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases"
        self._path = f"{self._leases_path}/{quote(name, safe='')}"
        #: As last seen, for its version; None: read it.
        self._found: api.JsonObject | None = None
        self._record = LeaseRecord()
        #: When an unchanged record may be overwritten.
        self._free_at = 0.0
        #: A request may have made us its holder.
        self._tried = False
        self._problem = ""

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Run ``lead`` while the Lease is ours, until it returns. Its exceptions come in a group. It has to
        end at once when cancelled: the next leader begins ``LEASE_SECONDS`` less ``RENEW_SECONDS`` later.
        """
        try:
            ended = False
            while not ended:
                ended = await self._hold(lead, await self._acquired_at())
        finally:
            with trio.CancelScope(shield=True):
                await self.resign()

    async def resign(self) -> None:
        """Another replica then gets the Lease at once."""
        if not self._tried:
            return
        with trio.move_on_after(bounds.now.resign_seconds), suppress(api.Unanswered, _NotAllowed):
            while await self._read() and self.holder == self._identity:
                if await self._write(""):
                    self._tell(NOTICE, f"{self._label} is given back")
                    break
        self._tried = False

    async def _acquired_at(self) -> float:
        """Returns when the successful request began."""
        while True:
            began, led = trio.current_time(), self.holder
            try:
                if not await self._read():
                    ours = await self._swap("POST", self._leases_path, self._new())
                elif self.holder in ("", self._identity):
                    ours = await self._write(self._identity)
                else:
                    if self.holder != led:
                        self._tell(NOTICE, f"{self.holder} leads, and this replica waits")
                    ours = trio.current_time() >= self._free_at and await self._write(self._identity)
                self._note()
                if ours:
                    self._tell(NOTICE, f"{self._label} is ours: this replica leads")
                    return began
            except (api.Unanswered, _NotAllowed) as error:
                self._note(str(error))
            pause, free_in = self._pause(), self._free_at - trio.current_time()
            await trio.sleep(min(pause, free_in) if free_in > 0 else pause)

    async def _hold(self, lead: Callable[[], Awaitable[None]], began: float) -> bool:
        """True: ``lead`` returned."""
        # The deadline counts from the request's begin, and ends the block whatever a request does.
        ended = False
        with trio.CancelScope(deadline=began + RENEW_SECONDS) as term:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._renew, term)
                await lead()
                ended = True
                nursery.cancel_scope.cancel()
        if not ended and trio.current_time() >= term.deadline:
            what = f"{self._label} could not be renewed for {span_s(RENEW_SECONDS)}"
            self._tell(WARNING, f"{what}: this replica leads no longer")
        return ended

    async def _renew(self, term: trio.CancelScope) -> None:
        while True:
            await trio.sleep(self._pause())
            try:
                began = trio.current_time()
                # An answer may be lost: a second try shows whether it is ours.
                if await self._renew_once() or await self._renew_once():
                    term.deadline = began + RENEW_SECONDS
                    self._note()
            except _Lost:
                by = f"{self.holder} has it" if self.holder else "it was taken away"
                self._tell(WARNING, f"{self._label} is lost, {by}: this replica leads no longer")
                term.deadline = math.inf
                term.cancel()
                return
            except (api.Unanswered, _NotAllowed) as error:
                self._note(str(error))

    async def _renew_once(self) -> bool:
        """False: try again."""
        if self._found is None and not (await self._read() and self.holder == self._identity):
            raise _Lost
        return await self._write(self._identity)

    def _pause(self) -> float:
        return RETRY_SECONDS * random.uniform(1, 1 + JITTER)

    async def _read(self) -> bool:
        """Does it exist?"""
        self._found = None
        answer = await self._ask("GET", self._path)
        if answer.code == api.HTTP_NOT_FOUND:
            self.holder = ""
            return False
        if not answer.ok:
            raise _NotAllowed(f"the API server answered {api.answer_text(answer)}")
        self._take(answer)
        return True

    def _new(self) -> api.JsonObject:
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self._name}}
        return {**body, "spec": self._spec(self._identity)}

    async def _write(self, holder: str) -> bool:
        """Compare and swap."""
        assert self._found is not None
        spec = {**self._found.get("spec", {}), **self._spec(holder)}
        meta = self._found.get("metadata") or {}
        said = {key: text for key, text in (meta.get("annotations") or {}).items() if key != NOTE_ANNOTATION}
        if holder and (note := self._note_of()):
            said[NOTE_ANNOTATION] = note
        changed = {**self._found, "metadata": {**meta, "annotations": said}, "spec": spec}
        return await self._swap("PUT", self._path, changed)

    def _spec(self, holder: str) -> api.JsonObject:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before, there = self._record, self._found is not None
        taken = holder == self._identity and holder != before.holder
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": max(1, int(LEASE_SECONDS)),
            "acquireTime": now if taken or not before.acquire_time else before.acquire_time,
            "renewTime": now,
            "leaseTransitions": (before.lease_transitions or 0) + taken if there else 0,
        }

    async def _swap(self, method: str, path: str, body: api.JsonObject) -> bool:
        """False: it has changed, so read it again."""
        self._tried = True
        # A request without an answer may have been carried out.
        self._found = None
        answer = await self._ask(method, path, body)
        if answer.ok:
            self._take(answer)
            return True
        if answer.code != api.HTTP_CONFLICT and not (method == "PUT" and answer.code == api.HTTP_NOT_FOUND):
            raise _NotAllowed(f"the API server answered {api.answer_text(answer)}")
        return False

    async def _ask(self, method: str, path: str, body: api.JsonObject | None = None) -> api.Answer:
        # Two tries fit into the time for a renewal.
        seconds = RENEW_SECONDS / 2
        return await api.ApiCall(self._caller, seconds, "").once(method, path, body, seconds_max=seconds)

    def _take(self, answer: api.Answer) -> None:
        """Raises Unanswered for an unreadable Lease."""
        try:
            found = msgspec.json.decode(answer.body, type=api.JsonObject)
            record = msgspec.convert(found.get("spec") or {}, LeaseRecord)
        except (ValueError, RecursionError) as error:
            raise api.Unanswered(f"a Lease that cannot be read: {error}") from None
        self._found = {**found, "spec": found.get("spec") or {}}
        if record != self._record:
            self._free_at = trio.current_time() + LEASE_SECONDS
        self._record, self.holder = record, record.holder
        self._on_lease(found)

    def _note(self, problem: str = "") -> None:
        """Logs a problem once; empty: it is over."""
        if problem and problem != self._problem:
            self._tell(WARNING, f"{self._label} cannot be asked for: {problem}")
        elif self._problem and not problem:
            self._tell(NOTICE, f"{self._label} can be asked for again")
        self._problem = problem
