"""The control socket of a running daemon: one JSON line each way, root only.

``hurry`` and ``release`` become facts with the caller's uid. `ebbtide.view_socket` is its read-only sibling.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ebbtide.events import bounds

if TYPE_CHECKING:
    import trio

    from ebbtide.actors.interfaces import Outlet, Tell
    from ebbtide.daemon_status import DaemonStatus

#: A verb and a pod's name.
REQUEST_BYTES_MAX = 4096

#: For a silent client.
REQUEST_SECONDS_MAX = 5


#: People and a script or two at once.
CLIENTS_MAX = 8

#: Only root may connect, with any umask.
SOCKET_MODE = 0o600


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``pod``: for ``hurry``, its namespace/name, name or UID. ``words``: of a ``view``'s question."""

    verb: str
    pod: str = ""
    words: tuple[str, ...] = ()


#: A verb's answer, from the request and the caller's uid.
Verb = Callable[[Request, int], Awaitable[Any]]


class ControlError(Exception):
    """The text has the cure."""


async def serve(
    path: Path,
    verbs: Mapping[str, Verb],
    tell: Tell,
    clients_max: int = CLIENTS_MAX,
    seconds_max: float = REQUEST_SECONDS_MAX,
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    """Listens until cancelled, then removes the socket's file. Raises OSError."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    # Remove only a dead daemon's socket. Non-blocking: a daemon that listens may hang.
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            reason = "something that is not a socket stands there: name another --runtime"
            raise OSError(errno.EEXIST, reason)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.setblocking(False)
            # EAGAIN means a full backlog: a daemon listens.
            if client.connect_ex(os.fspath(path)) in (0, errno.EAGAIN):
                raise OSError(errno.EADDRINUSE, "another daemon listens there: name another --runtime")
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # Before the socket listens: other users never have access.
        os.fchmod(listener.fileno(), SOCKET_MODE)
        listener.bind(os.fspath(path))
        listener.listen(CLIENTS_MAX)
    except OSError:
        listener.close()
        raise
    task_status.started()
    try:
        await serve_clients(listener, partial(_answer, verbs, tell), clients_max, seconds_max)
    finally:
        path.unlink(missing_ok=True)


#: After running out of descriptors: a busy loop would take time from a shutdown.
FULL_SECONDS = 0.1


async def serve_clients(
    listener: socket.socket,
    answer: Callable[[trio.SocketStream], Awaitable[None]],
    clients_max: int,
    seconds_max: float,
) -> None:
    """Until cancelled; closes the socket. ``answer`` raises nothing, and may be cancelled at any await."""
    # Only in a daemon: Trio would slow down the verbs.
    import trio

    clients, room = trio.socket.from_stdlib_socket(listener), trio.Semaphore(clients_max)

    async def serve_one(stream: trio.SocketStream) -> None:
        try:
            with trio.move_on_after(seconds_max):
                await answer(stream)
        finally:
            room.release()
            # The graceful close waits for a client that may never read.
            await trio.aclose_forcefully(stream)

    try:
        async with trio.open_nursery() as nursery:
            while True:
                # Before the accept uses a descriptor.
                await room.acquire()
                try:
                    client, _ = await clients.accept()
                except OSError:
                    room.release()
                    await trio.sleep(FULL_SECONDS)
                    continue
                nursery.start_soon(serve_one, trio.SocketStream(client))
    finally:
        clients.close()


async def _answer(verbs: Mapping[str, Verb], tell: Tell, stream: trio.SocketStream) -> None:
    """A failing client affects only itself: a person's command must not end a shutdown."""
    import trio

    try:
        data = b""
        while b"\n" not in data and len(data) <= REQUEST_BYTES_MAX:
            more = await stream.receive_some(REQUEST_BYTES_MAX)
            if not more:
                break
            data += more
        credentials = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        uid: int = struct.unpack("3i", credentials)[1]
        reply = await _handle(data, verbs, uid)
        await stream.send_all(json.dumps(reply).encode() + b"\n")
    except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
        return
    except Exception as error:
        tell(4, f"a request on the control socket was dropped: {type(error).__name__}: {error}")


async def _handle(line: bytes, verbs: Mapping[str, Verb], uid: int) -> dict[str, Any]:
    try:
        request = msgspec.json.decode(line[:REQUEST_BYTES_MAX], type=Request)
        verb = verbs[request.verb]
    except (ValueError, RecursionError, KeyError):  # ValueError: of msgspec, and bad UTF-8
        known = ", ".join(verbs)
        return {"ok": False, "error": f"not a request: send one JSON object with a verb of {known}"}
    try:
        return {"ok": True, "data": await verb(request, uid)}
    except ControlError as error:
        return {"ok": False, "error": str(error)}


def ask(verb: str, path: Path, *, seconds_max: float | None = None, **arguments: Any) -> Any:
    """Raises ControlError, one line with the cure."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(bounds.now.control_seconds if seconds_max is None else seconds_max)
            client.connect(os.fspath(path))
            client.sendall(json.dumps({"verb": verb, **arguments}).encode() + b"\n")
            with client.makefile("rb") as answers:
                answer = json.loads(answers.readline())
    except (FileNotFoundError, ConnectionRefusedError):
        raise ControlError(f"no daemon answers at {path}: start it with 'ebbtide run'") from None
    except PermissionError:
        raise ControlError(f"{path} is for root only: use sudo") from None
    except (OSError, ValueError) as error:
        raise ControlError(f"the daemon at {path} did not answer ({error}): see its log") from None
    if not answer.get("ok"):
        raise ControlError(answer.get("error", "the daemon refused"))
    return answer["data"]


AnswerFunction = Callable[[], dict[str, Any]]


def control_verbs(
    status: DaemonStatus,
    outlet: Outlet,
    show_status: AnswerFunction,
    show_metrics: AnswerFunction,
    show_configuration: AnswerFunction,
) -> dict[str, Verb]:
    from ebbtide.events.facts import HurryRequested, ReleaseRequested

    def require_shutdown() -> None:
        if status.phase not in ("running", "cancelling"):
            raise ControlError("no shutdown is running: no pod to hurry and no lock to release")

    def answer_with(document: AnswerFunction) -> Verb:
        async def verb(request: Request, uid: int) -> Any:
            return document()

        return verb

    async def hurry(request: Request, uid: int) -> Any:
        require_shutdown()
        found = {
            each_uid: each
            for each_uid, each in status.pods.items()
            if request.pod in (each_uid, each.label, each.label.partition("/")[2])
        }
        if not found:
            raise ControlError(f"no pod {request.pod!r} in this shutdown: see 'ebbtide status'")
        waited = {uid: each.label for uid, each in found.items() if each.outcome is None}
        if not waited:
            ended = f"pod {request.pod!r} has ended already ({next(iter(found.values())).outcome})"
            raise ControlError(f"{ended}: no wave waits for it")
        if len(waited) > 1:  # a cut grace cannot be restored
            named = f"{request.pod!r} names {len(waited)} pods"
            # A recreated pod has the label of the one that is still ending.
            alike = len(set(waited.values())) < len(waited)
            which = sorted(f"{label} ({uid})" if alike else label for uid, label in waited.items())
            raise ControlError(f"{named}: name one of {', '.join(which)}{', by its UID' if alike else ''}")
        await outlet.put(HurryRequested(pod=request.pod, asked_by=uid))
        return {"pod": request.pod}

    async def release(request: Request, uid: int) -> Any:
        require_shutdown()
        await outlet.put(ReleaseRequested(asked_by=uid))
        return {}

    return {
        "status": answer_with(show_status),
        "metrics": answer_with(show_metrics),
        "configuration": answer_with(show_configuration),
        "hurry": hurry,
        "release": release,
    }
