"""A helper process for what must happen in a namespace of its own: both ends of talking to it.

It takes commands as JSON lines. When its standard input ends (its parent went, however it went) it cleans
up and leaves; its mount namespace and everything mounted in it goes with it.
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
    """In a child, before exec: no process outlives this one, even if it is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def lacking(needs: Sequence[str]) -> str:
    """What there is not of root's rights and these programs; empty when there is all."""
    if os.geteuid() != 0:
        return "needs root"
    absent = [need for need in needs if shutil.which(need) is None]
    return f"needs {', '.join(absent)}" if absent else ""


async def take_commands(target: object) -> None:
    """Inside: answer each line with what ``target``'s ``do_`` method returns, until the input ends."""
    async for line in trio.wrap_file(sys.stdin):
        print(json.dumps(await obey(target, json.loads(line))), flush=True)


async def obey(target: object, request: dict[str, Any]) -> dict[str, Any]:
    """One command: what its method returns, or what went wrong, as the answer's line."""
    method: Callable[..., Awaitable[Any]] = getattr(target, "do_" + request.pop("do"))
    try:
        return {"ok": await method(**request)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


class Inside:
    """Outside: a started ``module`` in namespaces of its own, given ``folder`` and ``words`` as arguments.

    ``namespace`` is the command that makes them: a mount namespace, where nothing else is said.
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
        """One command; raises RuntimeError with what it said."""
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
        """Its input ends, so it ends its own processes; SIGKILL if it does not."""
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
