"""preStop hooks of containers: exec through the runtime, httpGet to the pod's address.

A hook is at most once: a call that was lost in the middle is not made again. (``sleep`` is a deadline in
the core; nothing runs for it.)
"""

from __future__ import annotations

import socket
from collections.abc import Callable

import trio

from actors.edges.cri import api_pb2 as api
from actors.edges.cri.calling import Caller
from actors.edges.cri.errors import CallFailed, Lost, Unsent
from actors.edges.cri.table import ContainerEntry
from actors.edges.process import http
from actors.edges.process.hooks import TIMED_OUT
from actors.edges.process.spec import ExecAction, HttpGetAction, SleepAction
from actors.interfaces import Ending
from events.base import NS_PER_SECOND
from events.decisions import RunHook

#: An order's key to its ``traceparent`` (W3C Trace Context); empty: there is none to pass on.
Context = Callable[[str], str]
#: The runtime ends an exec itself when its caller is cancelled; its own bound, in whole seconds, is behind.
PAST_SECONDS = 5
AGAIN_SECONDS = 0.05
#: A node without any route has no other address.
LOOPBACK = "127.0.0.1"
#: Addresses that lie behind every default route and belong to nobody (RFC 5737, RFC 3849); nothing is sent.
ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
ANY_PORT = 9


class Hooks:
    """Carries `RunHook` out."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def run(self, entry: ContainerEntry, order: RunHook, traceparent: str) -> Ending:
        """Never raises but for cancellation."""
        action = entry.spec.pre_stop
        if action is None or isinstance(action, SleepAction):
            return Ending("failed", "no hook that has to be run")
        if not entry.running:
            return Ending("failed", "the container does not run")
        with trio.move_on_after(order.timeout_ns / NS_PER_SECOND):
            if isinstance(action, ExecAction):
                return await self._exec(action, entry, order.timeout_ns, traceparent)
            if isinstance(action, HttpGetAction):
                return await _get(action, entry, traceparent)
            return Ending("failed", "invalid handler")
        return TIMED_OUT

    async def _exec(
        self, action: ExecAction, entry: ContainerEntry, timeout_ns: int, traceparent: str
    ) -> Ending:
        seconds = -(-timeout_ns // NS_PER_SECOND)
        request = api.ExecSyncRequest(container_id=entry.id, cmd=action.argv, timeout=seconds)
        try:
            found = await self._once(request, seconds, traceparent)
        except Lost as error:
            return Ending("unknown", f"the runtime went away in the middle: {error}")
        except CallFailed as error:
            return Ending("failed", f"cannot run: {error}")
        if found.exit_code:
            return Ending("failed", f"exit code {found.exit_code}", found.exit_code)
        return Ending("done", exit_code=0)

    async def _once(
        self, request: api.ExecSyncRequest, seconds: int, traceparent: str
    ) -> api.ExecSyncResponse:
        """Made again only while it has certainly not been heard."""
        while True:
            await self._caller.ready(seconds)
            try:
                return await self._caller.call(
                    "ExecSync",
                    request,
                    api.ExecSyncResponse,
                    seconds + PAST_SECONDS,
                    wait=False,
                    traceparent=traceparent,
                )
            except Unsent:
                await trio.sleep(AGAIN_SECONDS)


async def _get(action: HttpGetAction, entry: ContainerEntry, traceparent: str) -> Ending:
    address = entry.pod.pod_ip or node_address()
    try:
        await http.send(http.request_of(action, entry.spec, address, traceparent))
    except http.FAILURES as error:
        return Ending("failed", http.why(error))
    return Ending()


def node_address() -> str:
    """Of a pod in the node's network the runtime names no address, and the kubelet takes the node's: that of
    the interface which the default route leaves by. The kernel is asked, nobody else.
    """
    for family, elsewhere in ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, ANY_PORT))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return LOOPBACK
