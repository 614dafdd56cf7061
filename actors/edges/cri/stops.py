"""The stop signal and SIGKILL, in the only words that a runtime has for them: ``StopContainer``.

The core thinks of three things, signal, kill, observe; the runtime of one: signal, wait for the timeout,
kill. A stop signal is therefore a ``StopContainer`` whose timeout is a backstop, always later than the
core's own SIGKILL; its order has ended when the call has been sent, and the call goes on by itself. SIGKILL
is a ``StopContainer`` with a timeout of 0, which overtakes it. The grace stays the core's, hurried or cut
or adopted after a restart as it may be. (A runtime whose caller has gone sends no SIGKILL: containerd's
``waitContainerStop`` ends with its caller's context. So it could not be left to it in any case.)

A runtime that has gone for good must not cost a pod its stop signal: what it was certainly not given goes to
the container's first process through its descriptor, as a runtime would send it. What it may have been given
is not said twice, by either way.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import trio

from actors.edges.cri import api_pb2 as api
from actors.edges.cri.calling import Caller
from actors.edges.cri.errors import CallFailed, Lost, NotFound, Unsent
from actors.edges.cri.notes import Notes
from actors.edges.cri.table import ContainerEntry
from actors.edges.process.signals import signal_number
from actors.edges.process.sweep import kill_exactly
from actors.interfaces import Ending

#: The core's floor between stop signal and SIGKILL, and a second more than the core ever waits.
FLOOR_SECONDS = 2
BEHIND_SECONDS = 1
#: For a pod that names no grace: it has its wave's, which is not known here.
NO_GRACE_SECONDS = 3600
#: A call's deadline past its timeout: one that fires first would keep the runtime from its SIGKILL.
PAST_SECONDS = 5
#: A runtime sends the signal within milliseconds; a call that is out for so long was heard.
SENT_SECONDS = 0.1
AGAIN_SECONDS = 0.05
#: How long a stop signal is left to a runtime that is away. One that is quickly restarted knows the image's
#: STOPSIGNAL, which we do not; a wave has seconds.
DIRECT_SECONDS = 0.5
#: How long SIGKILL is left to the runtime before it is sent to the first process directly.
KILL_SECONDS_MAX = 2.0


def backstop_seconds(grace_seconds: int | None) -> int:
    """The timeout of a stop: no SIGKILL of the runtime comes before the core's. Pure."""
    grace = NO_GRACE_SECONDS if grace_seconds is None else grace_seconds
    return max(grace, FLOOR_SECONDS) + BEHIND_SECONDS


class Stops:
    """``start`` runs a task that outlives the order which began it."""

    def __init__(self, caller: Caller, start: Callable[..., None], notes: Notes) -> None:
        self._caller = caller
        self._start = start
        self._notes = notes

    async def signal(self, entry: ContainerEntry, name: str, traceparent: str) -> Ending:
        """Ends when the signal was sent, by the runtime or, while that is away, by us: then the reason says
        so. ``name``: such as SIGTERM; the runtime sends the image's own.
        """
        told = _Told()
        self._start(self._stop, entry, name, traceparent, told)
        await told.sent.wait()
        return told.ending

    async def _stop(self, entry: ContainerEntry, name: str, traceparent: str, told: _Told) -> None:
        """Cancelled with the edge only: then the container goes on, with its signal."""
        timeout = backstop_seconds(entry.pod.grace_seconds)
        # One that shows no process on this machine has nobody but its runtime.
        deadline = trio.current_time() + (timeout if entry.pidfd < 0 else DIRECT_SECONDS)
        try:
            while entry.running:
                await self._caller.ready(max(0.0, deadline - trio.current_time()))
                error = await self._once(entry, timeout, traceparent, told)
                if not isinstance(error, Unsent):
                    told.ending = _outcome(error)
                    break
                if trio.current_time() > deadline:
                    raise error
                await trio.sleep(AGAIN_SECONDS)
        except Lost as error:
            told.ending = self._directly(entry, name, error)
        told.sent.set()

    def _directly(self, entry: ContainerEntry, name: str, why: Lost) -> Ending:
        """The runtime was certainly given nothing. A process that has ended needs no signal."""
        if not entry.running:
            return Ending()
        if entry.pidfd < 0:
            return Ending("failed", str(why))
        try:
            signal.pidfd_send_signal(entry.pidfd, signal_number(name))
        except ProcessLookupError:
            return Ending()
        except (OSError, ValueError) as error:
            return Ending("failed", f"{why}; signal {name} to the first process: {error}")
        self._notes.direct()
        return Ending(reason=f"{name} was sent to the first process: {why}")

    async def _once(
        self, entry: ContainerEntry, timeout: int, traceparent: str, told: _Told
    ) -> CallFailed | None:
        """One call; what it failed with."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_soon, told)
            error = await self._call(entry, timeout, traceparent)
            nursery.cancel_scope.cancel()
        return error

    async def _call(self, entry: ContainerEntry, timeout: int, traceparent: str) -> CallFailed | None:
        request = api.StopContainerRequest(container_id=entry.id, timeout=timeout)
        try:
            await self._caller.call(
                "StopContainer",
                request,
                api.StopContainerResponse,
                timeout + PAST_SECONDS,
                wait=False,
                traceparent=traceparent,
            )
        except CallFailed as error:
            return error
        return None

    async def kill(self, entry: ContainerEntry, traceparent: str) -> Ending:
        """SIGKILL through the runtime, which sees the whole container; if it does not answer, to its first
        process, with which its process namespace ends.
        """
        request = api.StopContainerRequest(container_id=entry.id, timeout=0)
        try:
            await self._caller.repeat(
                "StopContainer", request, api.StopContainerResponse, KILL_SECONDS_MAX, traceparent=traceparent
            )
        except NotFound:
            return Ending()
        except CallFailed as error:
            if not entry.running:
                return Ending()
            if not entry.pid:
                return Ending("failed", str(error))
            kill_exactly(entry.pid, entry.start_ticks)
        return Ending()


def _outcome(error: CallFailed | None) -> Ending:
    """Of a call that the runtime may have heard. Pure."""
    if error is None or isinstance(error, NotFound):
        return Ending()
    if isinstance(error, Lost):
        # Said a second time it would be a second signal, which many programs take for "at once".
        return Ending(reason=f"it may have been sent and is not sent again: {error}")
    return Ending("failed", str(error))


class _Told:
    """What a stop's order is still waiting for."""

    def __init__(self) -> None:
        self.sent = trio.Event()
        self.ending = Ending()


async def _soon(told: _Told) -> None:
    await trio.sleep(SENT_SECONDS)
    told.sent.set()
