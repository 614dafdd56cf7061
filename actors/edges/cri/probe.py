"""One look at a runtime: who answers at a socket, and does it say that it is ready? For doctor and drill."""

from __future__ import annotations

from typing import NamedTuple

import trio

from actors.edges.cri import api_pb2 as api
from actors.edges.cri.errors import CallFailed
from actors.edges.cri.link import Link

#: A runtime answers within milliseconds.
PROBE_SECONDS_MAX = 3.0


class Probed(NamedTuple):
    """``problem`` is empty when pods can be ended through this runtime."""

    name: str = ""
    version: str = ""
    problem: str = ""


async def probe(endpoint: str, seconds: float = PROBE_SECONDS_MAX) -> Probed:
    """Ask for the version and the conditions; changes nothing, raises nothing."""
    link, found = Link(endpoint), Probed()
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        try:
            found = await _ask(link, seconds)
        except CallFailed as error:
            found = Probed(problem=str(error))
        nursery.cancel_scope.cancel()
    return found


async def _ask(link: Link, seconds: float) -> Probed:
    version = await link.call("Version", api.VersionRequest(version="v1"), api.VersionResponse, seconds)
    answer = await link.call("Status", api.StatusRequest(), api.StatusResponse, seconds)
    bad = [each for each in answer.status.conditions if not each.status]
    problem = "; ".join(f"{each.type} is false: {each.reason} {each.message}".strip() for each in bad)
    return Probed(version.runtime_name, version.runtime_version, problem)
