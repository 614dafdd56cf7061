"""A helper process in its own namespace, and its client.

It reads commands as JSON lines. When its input ends, for any reason, it cleans up and exits; its mounts
vanish with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import trio

from tests.waiting import WATCHDOG_SECONDS

NAMESPACE = ("unshare", "--mount", "--propagation", "private", "--")
PROJECT = Path(__file__).parents[2]
PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """In a child before exec: no process outlives the parent, even a killed one."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def lacking(needs: Sequence[str]) -> str:
    """The missing root rights and programs; empty if complete."""
    if os.geteuid() != 0:
        return "needs root"
    absent = [need for need in needs if shutil.which(need) is None]
    return f"needs {', '.join(absent)}" if absent else ""


async def take_commands(target: object) -> None:
    """Inside: answer each line with the result of ``target``'s ``do_`` method, until the input ends."""
    async for line in trio.wrap_file(sys.stdin):
        print(json.dumps(await obey(target, json.loads(line))), flush=True)


async def obey(target: object, request: dict[str, Any]) -> dict[str, Any]:
    """One command: its result or its error as the answer line."""
    method: Callable[..., Awaitable[Any]] = getattr(target, "do_" + request.pop("do"))
    try:
        return {"ok": await method(**request)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


class Inside:
    """Outside: a started ``module`` in namespaces, with ``folder`` and ``words`` as arguments.

    ``namespace``: the command that creates them; by default a mount namespace.
    """

    def __init__(
        self,
        module: str,
        folder: Path,
        *words: str,
        namespace: Sequence[str] = NAMESPACE,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._process = subprocess.Popen(
            [*namespace, sys.executable, "-m", module, str(folder), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
            start_new_session=True,
            pass_fds=tuple(pass_fds),
        )
        self.pid = self._process.pid
        self._lock = trio.Lock()

    async def do(self, command: str, **arguments: Any) -> Any:
        """Run one command; raises RuntimeError with its output."""
        line = json.dumps({"do": command, **arguments}) + "\n"
        async with self._lock:
            text = await trio.to_thread.run_sync(self._exchange, line, abandon_on_cancel=True)
        answer = json.loads(text)
        if "error" in answer:
            raise RuntimeError(f"{command}: {answer['error']}")
        return answer["ok"]

    def _exchange(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
        return self._process.stdout.readline() or '{"error": "the inside of the bed has gone"}'

    def close(self) -> None:
        """Close its input, so that it ends its processes; SIGKILL if it does not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(WATCHDOG_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        self._process.stdout.close()
