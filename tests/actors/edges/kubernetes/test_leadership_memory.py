"""Leader election in virtual time: never two leaders, and soon one."""

from __future__ import annotations

import copy
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes.api_calls import Answer, Unanswered
from ebbtide.actors.edges.kubernetes.leadership import (
    LEASE_SECONDS,
    NOTE_ANNOTATION,
    RETRY_SECONDS,
    Leadership,
)
from ebbtide.replay.sim.scenario import Draws
from tests.actors.edges.kubernetes.config_map_fake import ConfigMaps
from tests.actors.edges.kubernetes.write_fake import status

#: More of them on demand, by ``EBBTIDE_SEEDS=5000``.
SEEDS = int(os.environ.get("EBBTIDE_SEEDS", "12"))


class Leases(ConfigMaps):
    """The same server, of one namespace's Leases."""

    version = 0
    #: Refusals by method.
    refused: dict[str, Answer] = {}

    def carry_out(self, method: str, path: str, body: Any) -> Answer:
        if method in self.refused:
            return self.refused[method]
        name = body["metadata"]["name"] if method == "POST" else path.rpartition("/")[2]
        found = self.objects.get(name)
        if (found is None) != (method == "POST"):
            return status(409, "already exists") if found else status(404, "not found")
        if method != "GET":
            version = body["metadata"].get("resourceVersion")
            if found is not None and version != found["metadata"]["resourceVersion"]:
                return status(409, "the object has been modified")
            self.version += 1
            found = copy.deepcopy(body)
            found["metadata"]["resourceVersion"] = str(self.version)
            self.objects[name] = found
        return Answer(200, msgspec.json.encode(found))

    @property
    def spec(self) -> dict[str, Any]:
        return dict(self.objects["outage"]["spec"])

    def edit(self, **fields: Any) -> None:
        self.version += 1
        self.objects["outage"]["metadata"]["resourceVersion"] = str(self.version)
        self.objects["outage"]["spec"] |= fields


class Replica:
    """``leads`` while it leads; ``ending_seconds``: the time it needs to stop."""

    def __init__(self, server: Leases, name: str, log: Log, ending_seconds: float = 0.0) -> None:
        self.server, self.name, self.log = server, name, log
        self.away, self.leads, self.ending_seconds = False, False, ending_seconds
        self.lines: list[str] = []
        self.dead = trio.CancelScope()
        self.note, self.leases = "", list[Any]()
        self.leadership = Leadership(
            self,
            "ebbtide",
            "outage",
            name,
            lambda level, line: self.lines.append(line),
            lambda: self.note,
            self.leases.append,
        )

    async def call(self, method: str, path: str, **fields: Any) -> Answer:
        if self.away or self.dead.cancel_called:
            await trio.sleep(fields["seconds_max"])
            raise Unanswered("silence")
        return await self.server.call(method, path, **fields)

    async def lead(self) -> None:
        self.leads = True
        self.log.changed()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(self.ending_seconds)
            self.leads = False
            self.log.changed()

    async def run(self) -> None:
        with self.dead:
            await self.leadership.run(self.lead)


class Log:
    """The leaders, and the gaps without one."""

    def __init__(self) -> None:
        self.replicas: list[Replica] = []
        self.terms: list[str] = []
        self.news = trio.Event()

    def leaders(self) -> list[str]:
        return [each.name for each in self.replicas if each.leads]

    def changed(self) -> None:
        leaders = self.leaders()
        assert len(leaders) <= 1, f"two lead at once: {leaders}"
        self.terms += leaders
        self.news.set()
        self.news = trio.Event()

    async def until(self, count: int) -> str:
        while len(self.terms) < count or not self.leaders():
            await self.news.wait()
        return self.leaders()[0]

    def of(self, name: str) -> Replica:
        return next(each for each in self.replicas if each.name == name)


@asynccontextmanager
async def replicas(server: Leases, count: int = 2, ending_seconds: float = 0.0) -> AsyncIterator[Log]:
    log = Log()
    log.replicas = [Replica(server, f"replica-{at}", log, ending_seconds) for at in range(count)]
    async with trio.open_nursery() as nursery:
        for each in log.replicas:
            nursery.start_soon(each.run)
        yield log
        nursery.cancel_scope.cancel()


async def test_of_two_that_start_at_once_one_leads(autojump_clock: MockClock) -> None:
    """Without a Lease one is created; the leader renews it and the other waits."""
    server = Leases(Draws(1))
    async with replicas(server) as log:
        first = await log.until(1)
        assert server.spec["holderIdentity"] == first
        assert server.spec["leaseTransitions"] == 0
        since = server.spec["acquireTime"]
        await trio.sleep(3600)
        assert log.terms == [first]
        assert server.spec["acquireTime"] == since
        assert 3600 / 2.4 <= server.version <= 3600 / 2.0
        waiting = next(each for each in log.replicas if not each.leads)
        assert waiting.lines == [f"{first} leads, and this replica waits"]
        assert waiting.leadership.holder == first
        # What people write on it stays, and each replica reads it.
        server.objects["outage"]["metadata"]["annotations"] = {"asked": "yes"}
        server.edit()
        await trio.sleep(10)
        assert server.objects["outage"]["metadata"]["annotations"] == {"asked": "yes"}
        assert all(each.leases[-1]["metadata"]["annotations"] == {"asked": "yes"} for each in log.replicas)


async def test_the_leaders_note_is_on_the_lease(autojump_clock: MockClock) -> None:
    """While it leads and has one; the next leader's replaces it, and another's annotation stays."""
    server = Leases(Draws(1))

    def noted() -> dict[str, str]:
        return dict(server.objects["outage"]["metadata"].get("annotations") or {})

    async with replicas(server) as log:
        first = log.of(await log.until(1))
        server.objects["outage"]["metadata"]["annotations"] = {"other": "stays"}
        server.edit()
        first.note = "no record could be stored for 5 s: 500"
        await trio.sleep(2 * RETRY_SECONDS)
        assert noted() == {"other": "stays", NOTE_ANNOTATION: first.note}
        first.dead.cancel()
        assert await log.until(2) != first.name
        assert noted() == {"other": "stays"}


async def test_the_times_in_the_record_are_not_believed(autojump_clock: MockClock) -> None:
    """A holder's clock may be years off: only the time without a change of the record counts."""
    for renewed in ("1999-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z", None):
        server = Leases(Draws(1))
        spec = {"holderIdentity": "other", "renewTime": renewed, "acquireTime": renewed}
        meta = {"name": "outage", "resourceVersion": "0", "labels": {"a": "b"}}
        server.objects["outage"] = {"metadata": meta, "spec": {**spec, "strategy": "kept"}}
        async with replicas(server, 1) as log:
            began = trio.current_time()
            await trio.sleep(10)
            # A foreign edit is no sign of its holder; a renewal is.
            server.edit()
            await log.until(1)
            assert LEASE_SECONDS <= trio.current_time() - began <= LEASE_SECONDS + 2.5
            assert server.objects["outage"]["metadata"]["labels"] == {"a": "b"}
            assert server.spec["strategy"] == "kept"
            server.edit(holderIdentity="other", renewTime="1999-01-01T00:00:01.000000Z")
            began = trio.current_time()
            await trio.sleep(10)
            assert not log.leaders()
            server.edit(renewTime="1999-01-01T00:00:00.000000Z")
            await log.until(2)
            assert 10 + LEASE_SECONDS <= trio.current_time() - began <= 10 + LEASE_SECONDS + 5.0
        assert log.replicas[0].lines[2] == (
            "the Lease ebbtide/outage is lost, other has it: this replica leads no longer"
        )


@pytest.mark.parametrize(
    "method, code, text",
    [
        ("GET", 403, "cannot get resource"),
        ("GET", 500, ""),
        ("POST", 403, "cannot create resource"),
        ("POST", 404, "not found"),
        ("PUT", 403, "cannot update resource"),
        ("PUT", 500, ""),
    ],
)
async def test_what_is_refused_is_told_once(
    method: str, code: int, text: str, autojump_clock: MockClock
) -> None:
    """Without rights or namespace no replica leads. After the fix one leads soon."""
    server = Leases(Draws(1))
    if method == "PUT":
        server.objects["outage"] = {"metadata": {"name": "outage", "resourceVersion": "0"}, "spec": None}
    server.refused = {method: status(code, text)}
    async with replicas(server, 1) as log:
        await trio.sleep(600)
        assert not log.terms
        lines = log.replicas[0].lines
        assert lines == [
            f"the Lease ebbtide/outage cannot be asked for: the API server answered {code} {text}".strip()
        ]
        server.refused = {}
        with trio.fail_after(8):
            await log.until(1)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_never_two_at_once(seed: int, autojump_clock: MockClock) -> None:
    """Seeded losses, late answers, partitions, deaths and restarts. Afterwards one replica leads soon."""
    draws = Draws(seed)
    async with trio.open_nursery() as work:
        server = Leases(draws, work, draws.pick([0, 10, 40]))
        ending = draws.pick([0.0, 1.0, 4.5])
        async with replicas(server, 3, ending) as log, trio.open_nursery() as nursery:
            for restarted in range(20):
                await trio.sleep(draws.below(30_000) / 1000)
                one = draws.pick(log.replicas)
                match draws.below(5):
                    case 0:
                        one.away = not one.away
                    case 1:
                        server.away = not server.away
                    case 2:
                        one.dead.cancel()
                    case 3 if "outage" in server.objects:
                        server.edit()
                    case _:
                        pass
                for at, each in enumerate(log.replicas):
                    # A separate process: its requests may still be in flight.
                    if each.dead.cancel_called and not each.leads and draws.below(2):
                        again = Replica(server, f"{each.name}-{restarted}", log, ending)
                        log.replicas[at] = again
                        nursery.start_soon(again.run)
            server.away, server.trouble = False, 0
            for each in log.replicas:
                each.away = False
            if all(each.dead.cancel_called for each in log.replicas):
                log.replicas.append(last := Replica(server, "last", log))
                nursery.start_soon(last.run)
            with trio.fail_after(40):
                while not log.leaders():
                    await log.news.wait()
            nursery.cancel_scope.cancel()
