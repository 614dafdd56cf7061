"""A socket for read-only callers: it answers four questions and takes no order.

``kubectl ebbtide`` uses it (docs/operations.md). A question cannot name a path or a kubeconfig.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ebbtide.control import ControlError, Request, Verb
from ebbtide.events.units import span_s

if TYPE_CHECKING:
    import trio

#: A container can mount this folder without the control socket.
FOLDER, SOCKET_NAME = "view", "ebbtide.sock"
#: Root's: the API server decides about all other callers.
FOLDER_MODE = 0o700

#: The daemon serves one, the others wait.
CLIENTS_MAX = 4
#: For one question, from its turn on. A doctor on a busy node needs some seconds.
RUN_SECONDS_MAX = 20.0
#: With the wait for earlier questions.
CLIENT_SECONDS_MAX = 60.0
#: The timeline of 110 pods has 470 KB as JSON with all records.
OUTPUT_BYTES_MAX = 2 * 1024 * 1024
ERROR_BYTES_MAX = 16 * 1024
#: A doctor of a Kubernetes node takes 62 MiB, a timeline 27.
MEMORY_BYTES_MAX = 256 * 1024 * 1024
#: After this time it hangs in the kernel with its disk.
KILLED_SECONDS_MAX = 0.5

WORDS_MAX = 12
WORD_LENGTH_MAX = 300
FLAGS = frozenset({"--all"})
EPISODE = re.compile(r"last|-[0-9]{1,6}|[0-9A-Za-z][0-9A-Za-z-]{0,63}")


class View(NamedTuple):
    """``options``: of the ``command``. ``places``: the daemon's own places that it receives. While the node
    goes down, only ``cheap`` questions are answered.
    """

    command: tuple[str, ...]
    options: frozenset[str]
    places: tuple[str, ...]
    cheap: bool = False
    episode: bool = False


VIEWS = {
    "status": View(("status",), frozenset({"--output"}), ("--journal", "--runtime"), cheap=True),
    "plan": View(("plan",), frozenset({"--output", "--grant"}), ("--runtime",)),
    "doctor": View(("doctor",), frozenset({"--output"}), ("--first-journal", "--runtime")),
    "timeline": View(
        ("replay", "timeline"),
        frozenset({"--output", "--all", "--actor", "--pod", "--wave", "--since", "--until"}),
        ("--journal",),
        cheap=True,
        episode=True,
    ),
}


def view_socket(runtime: Path) -> Path:
    return runtime / FOLDER / SOCKET_NAME


def command_of(words: Sequence[str]) -> tuple[View, list[str]]:
    """Raises ControlError."""
    known = ", ".join(VIEWS)
    view = VIEWS.get(words[0]) if words else None
    # Names are printable, and no argument may have a NUL.
    readable = all(len(word) <= WORD_LENGTH_MAX and word.isprintable() for word in words)
    if view is None or len(words) > WORDS_MAX or not readable:
        raise ControlError(f"not a question: ask for one of {known}")
    episodes = 0
    for word in words[1:]:
        name, valued, _ = word.partition("=")
        if word.startswith("--"):
            if name not in view.options:
                raise ControlError(f"{words[0]} takes no {name} here: only {', '.join(sorted(view.options))}")
            # An option without its value would take the next argument: the journal's place.
            proper = bool(valued) != (name in FLAGS)
        else:
            episodes += 1
            proper = view.episode and episodes == 1 and EPISODE.fullmatch(word) is not None
        if not proper:
            raise ControlError(f"{words[0]} takes no {word!r} here: options are --NAME=VALUE")
    return view, [*view.command, *words[1:]]


class Viewer:
    """``journals``: the first location first. ``idle``: no shutdown runs. ``shutdown``: returns when one
    begins.
    """

    def __init__(
        self,
        journals: Sequence[Path],
        runtime: Path,
        idle: Callable[[], bool],
        shutdown: Callable[[], Awaitable[None]],
        environment: Callable[[], dict[str, str]],
    ) -> None:
        import trio

        self._places = {
            "--journal": [f"--journal={each}" for each in journals],
            "--first-journal": [f"--journal={journals[0]}"],
            "--runtime": [f"--runtime={runtime}"],
        }
        self._journals = journals
        self._idle, self._shutdown, self._environment = idle, shutdown, environment
        self._turn = trio.Semaphore(1)

    @property
    def verbs(self) -> dict[str, Verb]:
        return {"view": self.answer}

    async def answer(self, request: Request, uid: int) -> dict[str, Any]:
        """``code``, ``out`` and ``err`` of the command. Raises ControlError."""
        import trio

        view, words = command_of(request.words)
        async with self._turn:
            if not (view.cheap or self._idle()):
                raise _goes_down(request.words[0])
            # A fallback may be unused.
            absent = {f"--journal={each}" for each in self._journals if not each.is_dir()}
            words += [word for place in view.places for word in self._places[place] if word not in absent]
            answer: dict[str, Any] | None = None

            async def leave_for_shutdown(scope: trio.CancelScope) -> None:
                await self._shutdown()
                scope.cancel()

            with trio.move_on_after(RUN_SECONDS_MAX) as in_time:
                async with trio.open_nursery() as nursery:
                    if not view.cheap:
                        nursery.start_soon(leave_for_shutdown, nursery.cancel_scope)
                    answer = await self._run(words)
                    nursery.cancel_scope.cancel()
        if in_time.cancelled_caught:
            raise ControlError(
                f"{request.words[0]} had no answer in {span_s(RUN_SECONDS_MAX)}: look on the node"
            )
        if answer is None:
            raise _goes_down(request.words[0])
        if answer["long"]:
            raise ControlError(
                f"{request.words[0]} has more than {OUTPUT_BYTES_MAX} bytes to say: ask for a part of it"
            )
        return answer

    async def _run(self, words: list[str]) -> dict[str, Any]:
        import trio

        out, err = bytearray(), bytearray()
        process = await trio.lowlevel.open_process(
            [sys.executable, "-P", "-m", __name__, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment(),
            # A kill includes its children.
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_take, process.stderr, err, ERROR_BYTES_MAX)
                long = await _take(process.stdout, out, OUTPUT_BYTES_MAX)
                if long:
                    nursery.cancel_scope.cancel()
            code = 0 if long else await process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with trio.CancelScope(shield=True):
                with trio.move_on_after(KILLED_SECONDS_MAX):
                    await process.wait()
                for stream in (process.stdout, process.stderr):
                    await trio.aclose_forcefully(stream)
        said = {"out": out.decode(errors="replace"), "err": err.decode(errors="replace")}
        return {"code": code, **said, "long": long}


def _goes_down(what: str) -> ControlError:
    return ControlError(
        f"the node goes down, and {what} is for one that stays up: ask for status or timeline"
    )


async def _take(stream: trio.abc.ReceiveStream, into: bytearray, bytes_max: int) -> bool:
    """Up to the limit; returns whether there is more."""
    async for chunk in stream:
        into += chunk[: bytes_max - len(into)]
        if len(into) >= bytes_max:
            return True
    return False


def main() -> None:
    """One question's process, which ends with the daemon."""
    signal.alarm(int(RUN_SECONDS_MAX) + 1)
    from ebbtide.side_process import lower_priority

    lower_priority(MEMORY_BYTES_MAX)
    from ebbtide.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
