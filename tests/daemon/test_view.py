"""The read-only socket: accepted questions, and an answer's cost."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from ebbtide import view_socket as view
from ebbtide.control import ControlError, ask, serve
from ebbtide.side_process import environment_of_children
from ebbtide.view_socket import Viewer, command_of, view_socket
from tests.cli.bed import whole_shutdown
from tests.commands import ebbtide
from tests.waiting import WATCHDOG_SECONDS, until

#: Goes on until it is ended.
ENDLESS = view.View(("journal", "show", "-f"), frozenset(), ("--journal",))


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("node") / "journal"
    whole_shutdown(made)
    return made


class Node:
    def __init__(self, journal: Path, runtime: Path) -> None:
        self.runtime, self.idle, self.begun = runtime, True, trio.Event()
        self.viewer = Viewer(
            [journal, runtime / "never-needed"],
            runtime,
            lambda: self.idle,
            self.begun.wait,
            environment_of_children,
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        path, verbs, tell = view_socket(self.runtime), self.viewer.verbs, lambda level, line: None
        run = partial(serve, path, verbs, tell, view.CLIENTS_MAX, view.CLIENT_SECONDS_MAX)
        async with trio.open_nursery() as nursery:
            await nursery.start(run)
            yield
            nursery.cancel_scope.cancel()

    async def ask(self, *words: str) -> Any:
        question = partial(ask, "view", view_socket(self.runtime), seconds_max=WATCHDOG_SECONDS, words=words)
        return await trio.to_thread.run_sync(question, abandon_on_cancel=True)


@pytest.fixture
def node(journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(view, "RUN_SECONDS_MAX", WATCHDOG_SECONDS)
    monkeypatch.setattr(view, "KILLED_SECONDS_MAX", WATCHDOG_SECONDS)
    return Node(journal, tmp_path)


def children() -> set[str]:
    """Running children of this process."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # A thread that ended in between has no children.
            found |= set((task / "children").read_text().split())
    return found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "not a question"),
        (("run",), "not a question"),
        (("hurry", "web"), "not a question"),
        (("timeline", *["--all"] * view.WORDS_MAX), "not a question"),
        (("timeline", "--pod=" + "x" * view.WORD_LENGTH_MAX), "not a question"),
        (("status", "--journal=/etc"), "takes no --journal"),
        (("status", "--ready"), "takes no --ready"),
        (("doctor", "--kubeconfig=/root/.kube/config"), "takes no --kubeconfig"),
        (("plan", "--pods=/etc"), "takes no --pods"),
        (("plan", "-"), "takes no '-'"),
        (("timeline", "-f"), "takes no '-f'"),
        (("timeline", "last", "last"), "takes no 'last'"),
        (("timeline", "../../etc"), "takes no '../../etc'"),
        # Without a value the option would take the next word, the daemon's journal path.
        (("timeline", "--pod"), "options are --NAME=VALUE"),
        (("plan", "--grant"), "options are --NAME=VALUE"),
        (("timeline", "--all=yes"), "takes no '--all=yes'"),
        # No process can start with it, and the daemon would log that.
        (("timeline", "--pod=a\0b"), "not a question"),
        (("timeline", "--pod=\ud800"), "not a question"),
    ],
)
def test_what_is_no_question(words: tuple[str, ...], said: str) -> None:
    """No orders, no paths, no foreign rights, no endless verbs."""
    with pytest.raises(ControlError, match=said):
        command_of(words)


async def test_the_answer_is_the_commands(node: Node, journal: Path) -> None:
    """Both outputs and the exit code, for this node's journal and daemon; bad words are its own error."""
    async with node.serving():
        told = await node.ask("timeline", "-1", "--pod=web-0")
        status = await node.ask("status", "--output=table")
        wrong = await node.ask("timeline", "--since=yesterday")
    alone = ebbtide("replay", "timeline", "--pod", "web-0", "--journal", journal)
    assert (told["code"], told["out"]) == (0, alone.out)
    assert (status["code"], "is another machine's" in status["out"]) == (1, True)
    assert (wrong["code"], wrong["out"], "--since" in wrong["err"]) == (2, "", True)


async def test_a_node_that_goes_down_is_not_judged(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A doctor has low priority and ends when a shutdown begins. The timeline still answers."""
    monkeypatch.setitem(view.VIEWS, "doctor", ENDLESS)
    before = children()
    async with node.serving(), trio.open_nursery() as nursery:
        said: list[str] = []

        async def judge() -> None:
            with pytest.raises(ControlError) as caught:
                await node.ask("doctor")
            said.append(str(caught.value))

        nursery.start_soon(judge)
        # Lowest priority and first OOM victim.
        await until(lambda: [_given_way(each) for each in children() - before] == [(19, 900)], "a doctor")
        node.idle = False
        node.begun.set()
        await until(lambda: said, "the doctor's end")
        assert "the node goes down" in said[0]
        assert children() == before
        with pytest.raises(ControlError, match="the node goes down"):
            await node.ask("plan")
        assert (await node.ask("timeline"))["code"] == 0


def _given_way(pid: str) -> tuple[int, int]:
    try:
        score = int(Path(f"/proc/{pid}/oom_score_adj").read_text())
        return os.getpriority(os.PRIO_PROCESS, int(pid)), score
    except OSError:
        return 0, 0
