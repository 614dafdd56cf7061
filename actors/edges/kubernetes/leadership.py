"""Who of several replicas tries: leader election by a Lease in the controller's own namespace.

As client-go does it: the holder renews, and stops leading when it has not been able to for a while; another
one takes over when it has seen the same record for longer than that. What one does and what the other waits
for is counted on each one's own monotonic clock: the times in the record are for people, and are only
compared for being the same.

It holds as long as the clocks of both run alike and neither is stopped. One that was stopped between its
last look at the clock and a request sends that request all the same, so a Lease fences nothing: it decides
who tries, and the journal's create who was (`actors.edges.kubernetes.config_maps`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import NoReturn
from urllib.parse import quote

import msgspec
import trio

from ebbtide.actors.edges.kubernetes.api_calls import (
    HTTP_CONFLICT,
    HTTP_NOT_FOUND,
    Answer,
    ApiCall,
    ApiCaller,
    JsonObject,
    Unanswered,
    answer_text,
)
from ebbtide.actors.interfaces import NOTICE, WARNING, Tell
from ebbtide.events import bounds
from ebbtide.events.units import span_s

#: client-go's own: a record that has stood for so long is nobody's; its holder stops leading 5 s before; and
#: how often each asks. The other one has taken over 20 s after its holder was killed: 2.4 s until it sees the
#: last renewal, 15 s, a request.
LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 15.0, 10.0, 2.0
#: Two that began at the same time ask at different times soon.
JITTER = 0.2
#: One that promises longer than we do is waited for, but nobody for ever.
LEASE_SECONDS_MAX = 60.0


class LeaseRecord(msgspec.Struct, frozen=True, rename="camel"):
    """Of a Lease's ``spec``: the same as before is no sign of its holder."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None

    @property
    def holder(self) -> str:
        return self.holder_identity or ""


class _NotAllowed(Exception):
    """The API server refuses; in our own words."""


class _Lost(Exception):
    """It is somebody else's."""


class Leadership:
    """``identity`` is this process's own and no other's, also not the one's of before in the same pod.

    ``holder`` says who led when it was last looked at; empty: nobody. ``tell`` takes a line for the operator,
    with its level. Raises ValueError for times that could let two lead at once, and without an identity.
    """

    def __init__(
        self,
        caller: ApiCaller,
        namespace: str,
        name: str,
        identity: str,
        tell: Tell = lambda level, line: None,
        *,
        lease_seconds: float = LEASE_SECONDS,
        renew_seconds: float = RENEW_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        if not identity:
            raise ValueError("a leader needs an identity: name this process")
        if not 0 < retry_seconds * (1 + JITTER) < renew_seconds < lease_seconds <= LEASE_SECONDS_MAX:
            raise ValueError(
                f"a Lease of {span_s(lease_seconds)}, given up after {span_s(renew_seconds)} and asked "
                f"for every {span_s(retry_seconds)}: each must be shorter than the one before, and the first "
                f"{span_s(LEASE_SECONDS_MAX)} at most"
            )
        self.holder = ""
        self._caller, self._tell, self._identity = caller, tell, identity
        self._name, self._label = name, f"the Lease {namespace}/{name}"
        self._lease_seconds, self._renew_seconds, self._retry_seconds = (
            lease_seconds,
            renew_seconds,
            retry_seconds,
        )
        space = quote(namespace, safe="")
        self._leases_path = f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases"
        self._path = f"{self._leases_path}/{quote(name, safe='')}"
        #: The object as it was last seen: a write names its version. None: it has to be read.
        self._found: JsonObject | None = None
        self._record = LeaseRecord()
        #: From when on the record may be overwritten, where it stays as it is.
        self._free_at = 0.0
        #: A request of ours may have made us its holder.
        self._tried = False
        self._problem = ""

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Waits until the Lease is ours, and runs ``lead`` while it is; cancels it when the Lease could not
        be renewed in time, or is somebody else's, and waits again. Until cancelled, or until ``lead``
        returns; what it raises comes in a group. In the end gives the Lease back: the caller must still work
        then.

        ``lead`` is to end at once when it is cancelled: the other one begins ``lease_seconds`` less
        ``renew_seconds`` later.
        """
        try:
            ended = False
            while not ended:
                ended = await self._hold(lead, await self._acquired_at())
        finally:
            with trio.CancelScope(shield=True):
                await self.resign()

    async def resign(self) -> None:
        """The record names nobody any more, if it named us: another one has it with its next try. Nothing is
        to be led any more when this is called.
        """
        if not self._tried:
            return
        with trio.move_on_after(bounds.now.resign_seconds), suppress(Unanswered, _NotAllowed):
            while await self._read() and self.holder == self._identity:
                if await self._write(""):
                    self._tell(NOTICE, f"{self._label} is given back")
                    break
        self._tried = False

    # --- waiting for it --------------------------------------------------------------------------

    async def _acquired_at(self) -> float:
        """When the request began that made it ours."""
        while True:
            began = trio.current_time()
            try:
                if await self._try_it():
                    self._mended()
                    self._tell(NOTICE, f"{self._label} is ours: this replica leads")
                    return began
                self._mended()
            except (Unanswered, _NotAllowed) as error:
                self._trouble(error)
            pause = self._pause()
            free_in = self._free_at - trio.current_time()
            await trio.sleep(min(pause, free_in) if free_in > 0 else pause)

    async def _try_it(self) -> bool:
        """Raises Unanswered, _NotAllowed."""
        led = self.holder
        if not await self._read():
            return await self._create()
        if self.holder not in ("", self._identity):
            if self.holder != led:
                self._tell(NOTICE, f"{self.holder} leads, and this replica waits")
            if trio.current_time() < self._free_at:
                return False
        return await self._write(self._identity)

    # --- holding it ------------------------------------------------------------------------------

    async def _hold(self, lead: Callable[[], Awaitable[None]], began: float) -> bool:
        """Whether ``lead`` has returned by itself."""
        # The deadline itself ends the block, whatever a request does meanwhile. It counts from before the
        # request, which was carried out at some time after: nobody can count from earlier.
        ended = False
        with trio.CancelScope(deadline=began + self._renew_seconds) as term:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._renew, term)
                await lead()
                ended = True
                nursery.cancel_scope.cancel()
        if not ended and trio.current_time() >= term.deadline:
            what = f"{self._label} could not be renewed for {span_s(self._renew_seconds)}"
            self._tell(WARNING, f"{what}: this replica leads no longer")
        return ended

    async def _renew(self, term: trio.CancelScope) -> None:
        while True:
            await trio.sleep(self._pause())
            try:
                began = trio.current_time()
                # It may have been ours, with its answer lost: told at once by a second try.
                if await self._renew_once() or await self._renew_once():
                    term.deadline = began + self._renew_seconds
                    self._mended()
            except _Lost:
                by = f"{self.holder} has it" if self.holder else "it was taken away"
                self._tell(WARNING, f"{self._label} is lost, {by}: this replica leads no longer")
                term.deadline = math.inf
                term.cancel()
                return
            except (Unanswered, _NotAllowed) as error:
                self._trouble(error)

    async def _renew_once(self) -> bool:
        """False where it has to be tried again. Raises _Lost, Unanswered, _NotAllowed."""
        if self._found is None and not (await self._read() and self.holder == self._identity):
            raise _Lost
        return await self._write(self._identity)

    def _pause(self) -> float:
        return self._retry_seconds * random.uniform(1, 1 + JITTER)

    # --- the object ------------------------------------------------------------------------------

    async def _read(self) -> bool:
        """Whether it is there. Raises Unanswered, _NotAllowed."""
        self._found = None
        answer = await self._ask("GET", self._path)
        if answer.code == HTTP_NOT_FOUND:
            self.holder = ""
            return False
        if not answer.ok:
            self._refuse(answer)
        self._take(answer)
        return True

    async def _create(self) -> bool:
        meta = {"name": self._name}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}
        return await self._swap("POST", self._leases_path, {**body, "spec": self._spec(self._identity)})

    async def _write(self, holder: str) -> bool:
        """Where it still is as it was found: compare and swap. Raises Unanswered, _NotAllowed."""
        assert self._found is not None
        spec = {**self._found.get("spec", {}), **self._spec(holder)}
        return await self._swap("PUT", self._path, {**self._found, "spec": spec})

    def _spec(self, holder: str) -> JsonObject:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before, there = self._record, self._found is not None
        taken = holder == self._identity and holder != before.holder
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": max(1, int(self._lease_seconds)),
            "acquireTime": now if taken or not before.acquire_time else before.acquire_time,
            "renewTime": now,
            "leaseTransitions": (before.lease_transitions or 0) + taken if there else 0,
        }

    async def _swap(self, method: str, path: str, body: JsonObject) -> bool:
        """Whether it was carried out; False: it is another one by now, and has to be read."""
        self._tried = True
        # Also where no answer comes: it may have been carried out, and then its version is another.
        self._found = None
        answer = await self._ask(method, path, body)
        if answer.ok:
            self._take(answer)
            return True
        if answer.code != HTTP_CONFLICT and not (method == "PUT" and answer.code == HTTP_NOT_FOUND):
            self._refuse(answer)
        return False

    async def _ask(self, method: str, path: str, body: JsonObject | None = None) -> Answer:
        # Two tries fit into the time in which it has to be renewed.
        seconds = self._renew_seconds / 2
        return await ApiCall(self._caller, seconds, "").once(method, path, body, seconds_max=seconds)

    def _take(self, answer: Answer) -> None:
        """Raises Unanswered for what is no Lease."""
        try:
            found = msgspec.json.decode(answer.body, type=JsonObject)
            record = msgspec.convert(found.get("spec") or {}, LeaseRecord)
        except (ValueError, RecursionError) as error:
            raise Unanswered(f"a Lease that cannot be read: {error}") from None
        self._found = {**found, "spec": found.get("spec") or {}}
        if record != self._record:
            promised = min(record.lease_duration_seconds or 0, LEASE_SECONDS_MAX)
            self._free_at = trio.current_time() + max(self._lease_seconds, promised)
        self._record, self.holder = record, record.holder

    def _refuse(self, answer: Answer) -> NoReturn:
        raise _NotAllowed(f"the API server answered {answer_text(answer)}")

    # --- telling ---------------------------------------------------------------------------------

    def _trouble(self, error: Exception) -> None:
        """Once, however long it lasts."""
        if str(error) != self._problem:
            self._tell(WARNING, f"{self._label} cannot be asked for: {error}")
        self._problem = str(error)

    def _mended(self) -> None:
        if self._problem:
            self._tell(NOTICE, f"{self._label} can be asked for again")
        self._problem = ""
