"""The control socket alone. `tests.fuzz.sockets` gives it any bytes."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from ebbtide.control import CLIENTS_MAX, Request, Verb, ask, serve
from ebbtide.host import RuntimeTaken, lock_runtime


async def _echo(request: Request, uid: int) -> Any:
    return {"pod": request.pod, "uid": uid}


async def _raises(request: Request, uid: int) -> Any:
    raise RuntimeError("a bug")


@asynccontextmanager
async def served(path: Path, said: list[str]) -> AsyncIterator[None]:
    verbs: dict[str, Verb] = {"echo": _echo, "bug": _raises}

    async def run(task_status: trio.TaskStatus[None]) -> None:
        await serve(path, verbs, lambda level, line: said.append(line), task_status=task_status)

    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        yield
        nursery.cancel_scope.cancel()


async def said_back(path: Path, line: bytes) -> bytes:
    """All bytes until the other side closes."""
    stream = await trio.open_unix_socket(str(path))
    async with stream:
        await stream.send_all(line + b"\n")
        return b"".join([part async for part in stream])


async def test_a_bug_in_a_verb_costs_its_own_client_only(tmp_path: Path) -> None:
    """That client is dropped, the log has the exception, and the next request works."""
    path, said = tmp_path / "s", list[str]()
    async with served(path, said):
        assert await said_back(path, b'{"verb": "bug"}') == b""
        assert json.loads(await said_back(path, b'{"verb": "echo"}'))["ok"]
    assert said == ["a request on the control socket was dropped: RuntimeError: a bug"]


async def test_the_socket_is_for_root_alone_whatever_the_umask(tmp_path: Path) -> None:
    """The mode is set atomically, and the umask is unchanged."""
    before = os.umask(0)
    try:
        async with served(tmp_path / "s", []):
            assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
            assert os.umask(0) == 0
    finally:
        os.umask(before)


async def test_clients_without_number_cost_eight_descriptors(tmp_path: Path) -> None:
    """Silent clients beyond the limit wait outside; a request is answered after they leave."""
    path = tmp_path / "s"
    async with served(path, []):
        before = len(os.listdir("/proc/self/fd"))
        silent = [await trio.open_unix_socket(str(path)) for _ in range(2 * CLIENTS_MAX)]
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(os.listdir("/proc/self/fd")) - before == len(silent) + CLIENTS_MAX
        for stream in silent:
            await stream.aclose()
        assert json.loads(await said_back(path, b'{"verb": "echo"}'))["ok"]


# --- what a daemon takes for itself at a start


async def _status(request: Request, uid: int) -> object:
    return {"asked_by": uid}


VERBS: dict[str, Verb] = {"status": _status}


async def _served(path: Path) -> object:
    """Serve, ask once, stop."""
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, path, VERBS, lambda level, line: None)
        answer = await trio.to_thread.run_sync(ask, "status", path)
        nursery.cancel_scope.cancel()
    return answer


def test_a_second_daemon_on_one_runtime_folder_is_refused_by_name_and_pid(tmp_path: Path) -> None:
    """Two daemons would adopt the same pods and repeat hooks."""
    lock_runtime(tmp_path)
    with pytest.raises(RuntimeTaken, match=r"ebbtide \(process \d+\) runs with .*: end it first"):
        lock_runtime(tmp_path)


async def test_a_file_that_is_not_a_socket_is_never_removed(tmp_path: Path) -> None:
    """An existing file at the socket's path stays."""
    path = tmp_path / "notes.txt"
    path.write_text("keep me")
    with pytest.RaisesGroup(pytest.RaisesExc(OSError, match="not a socket")):
        await _served(path)
    assert path.read_text() == "keep me"


async def test_a_dead_daemons_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "ebbtide.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    assert await _served(path) == {"asked_by": os.getuid()}
    assert not path.exists()
