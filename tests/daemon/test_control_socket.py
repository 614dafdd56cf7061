"""What a daemon takes for itself at a start, and what it leaves alone."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import trio

from ebbtide.control import Request, Verb, ask, serve
from ebbtide.host import RuntimeTaken, lock_runtime


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
    """Two daemons would both adopt the same pods and run their hooks twice."""
    lock_runtime(tmp_path)
    with pytest.raises(RuntimeTaken, match=r"ebbtide \(process \d+\) runs with .*: end it first"):
        lock_runtime(tmp_path)


async def test_a_file_that_is_not_a_socket_is_never_removed(tmp_path: Path) -> None:
    """``--socket`` on an existing file costs nobody that file."""
    path = tmp_path / "notes.txt"
    path.write_text("keep me")
    with pytest.RaisesGroup(pytest.RaisesExc(OSError, match="not a socket")):
        await _served(path)
    assert path.read_text() == "keep me"


async def test_a_socket_that_somebody_listens_on_is_left_to_him(tmp_path: Path) -> None:
    """Another daemon's socket is not taken over."""
    path = tmp_path / "ebbtide.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(path))
        other.listen()
        with pytest.RaisesGroup(pytest.RaisesExc(OSError, match="another daemon listens")):
            await _served(path)
        assert path.exists()


async def test_a_dead_daemons_socket_is_replaced(tmp_path: Path) -> None:
    """What a killed daemon left is in nobody's way."""
    path = tmp_path / "ebbtide.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    assert isinstance(await _served(path), dict)
    assert not path.exists()
