"""The lock's supervisor, with a scripted child."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from ebbtide.actors.edges.service_manager import ServiceManager
from ebbtide.daemon import Daemon
from ebbtide.host import LocalHost
from ebbtide.supervisor import SILENT_SECONDS_MAX, waited_seconds
from tests.beds.notify import drain, full_socket
from tests.daemon.rig import EBBTIDE
from tests.waiting import WATCHDOG_SECONDS, until_sync

ROOT = Path(__file__).parents[2]
ALONE = (sys.executable, "-I", "-S")
KEEPER = (*ALONE, str(ROOT / "ebbtide" / "supervisor.py"))
KEPT = (*ALONE, str(Path(__file__).with_name("child.py")))


class Bench:
    """One supervisor with its scripted child in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None

    def start(self, words: str, **environ: str) -> None:
        command = [*KEEPER, *KEPT, str(self.folder), *words.split()]
        environment = os.environ | environ
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)

    def run(self, words: str, **environ: str) -> tuple[int, str]:
        """Run to the end: exit code and standard error."""
        self.start(words, **environ)
        return self.end()

    def end(self) -> tuple[int, str]:
        assert self.process is not None
        _, said = self.process.communicate(timeout=WATCHDOG_SECONDS)
        return self.process.returncode, said

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def lines(self) -> list[tuple[int, int, str]]:
        path = self.folder / "log"
        text = path.read_text() if path.exists() else ""
        split = (line.split(" ", 2) for line in text.splitlines(keepends=True) if line.endswith("\n"))
        return [(int(at_ns), int(life), what.strip()) for at_ns, life, what in split]

    def log(self, life: int | None = None) -> list[str]:
        return [what for _, at, what in self.lines() if life in (None, at)]

    def noted(self, what: str) -> str:
        """Wait for the first line that begins so."""
        until_sync(lambda: any(line.startswith(what) for line in self.log()), "the child")
        return next(line for line in self.log() if line.startswith(what))

    def pipe(self, name: str) -> int:
        """The reading end of a pipe that the child may store under this name."""
        os.mkfifo(self.folder / name)
        return os.open(self.folder / name, os.O_RDONLY | os.O_NONBLOCK)


def held(pipe: int) -> bool:
    """Whether anybody has the writing end."""
    try:
        return os.read(pipe, 1) != b""
    except BlockingIOError:
        return True


@contextmanager
def benches(folder: Path) -> Iterator[Bench]:
    folder.mkdir(exist_ok=True)
    made = Bench(folder)
    yield made
    process = made.process
    if process is not None and process.poll() is None:
        process.terminate()
        process.communicate(timeout=WATCHDOG_SECONDS)
    if process is not None and process.stderr is not None:
        process.stderr.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with benches(tmp_path) as made:
        yield made


@pytest.mark.proof
def test_a_child_without_a_sign_of_life_is_ended(bench: Bench, tmp_path: Path) -> None:
    """The next child has a killed one's lock. A child that is frozen with its supervisor is not killed."""
    lock = bench.pipe("lock")
    with benches(tmp_path / "well") as well, benches(tmp_path / "frozen") as frozen:
        bench.start("store=lock say=WATCHDOG=1 hang / fds exit=0")
        well.start("alive=hung exit=0")
        frozen.start("say=WATCHDOG=1 barrier await=hung alive exit=0")
        frozen.noted("confirmed")
        frozen.signal(signal.SIGSTOP)
        code, said = bench.end()
        assert code == 0, said
        assert bench.log() == ["life", "life", "fds lock mine"]
        assert "the daemon gives no sign of life: killing it" in said
        first, second, _ = (at_ns for at_ns, _, _ in bench.lines())
        assert (second - first) / 1e9 >= SILENT_SECONDS_MAX
        for other in (well, frozen):
            (other.folder / "hung").touch()
        frozen.signal(signal.SIGCONT)
        assert [(other.end()[0], other.log().count("life")) for other in (well, frozen)] == [(0, 1)] * 2
    os.close(lock)


@pytest.mark.proof
def test_waiting_for_a_processor_is_known() -> None:
    """Two processes on one processor: the kernel reports their waiting time."""
    pin = ("taskset", "-c", str(min(os.sched_getaffinity(0))))
    spinning = [subprocess.Popen([*pin, *ALONE, "-c", "while True: pass"]) for _ in range(2)]
    try:
        until_sync(lambda: all(waited_seconds(each.pid) > 0.05 for each in spinning), "the child")
    finally:
        for each in spinning:
            each.kill()
            each.wait()
    assert waited_seconds(spinning[0].pid) == 0


def test_a_crash_hands_the_descriptors_back(bench: Bench) -> None:
    """Descriptors are held without a child, and the next one has them from 3 on, by name."""
    lock, other = bench.pipe("lock"), bench.pipe("other")
    bench.start("fds store=lock store=other crash / fds await=seen say=STOPPING=1")
    bench.noted("fds lock other mine")
    assert held(lock)
    assert held(other)
    (bench.folder / "seen").touch()
    code, said = bench.end()
    assert code == 0, said
    assert bench.log() == ["life", "fds none not-mine", "life", "fds lock other mine"]
    assert "the daemon ended (Killed): starting it again now; descriptors kept: 2" in said
    assert not held(lock)
    assert not held(other)
    os.close(lock)
    os.close(other)


def test_a_removal_is_confirmed_by_the_barrier(bench: Bench) -> None:
    """The closed barrier pipe proves that no duplicate remains: a release waits for it."""
    lock, other = bench.pipe("lock"), bench.pipe("other")
    bench.start("store=lock store=other barrier remove=lock barrier await=seen crash / fds")
    until_sync(lambda: bench.log().count("confirmed") == 2, "the child")
    assert not held(lock)
    assert held(other)
    (bench.folder / "seen").touch()
    assert bench.end()[0] == 0
    assert bench.log(1) == ["life", "fds other mine"]
    os.close(lock)
    os.close(other)


def test_too_many_descriptors_are_refused(bench: Bench) -> None:
    """The store is bounded: a surplus descriptor is closed and the refusal reported."""
    pipes = {name: bench.pipe(name) for name in "abcdef"}
    stores = " ".join(f"store={name}" for name in pipes)
    bench.start(f"{stores} barrier await=seen crash / fds")
    bench.noted("confirmed")
    assert {name for name, pipe in pipes.items() if held(pipe)} == set("abcd")
    (bench.folder / "seen").touch()
    code, said = bench.end()
    assert (code, said.count("a descriptor was not kept: 4 are kept already")) == (0, 2)
    assert bench.log(1) == ["life", "fds a b c d mine"]
    for pipe in pipes.values():
        os.close(pipe)


@pytest.mark.parametrize(
    "words, code, lives",
    [
        ("exit=0", 0, 1),
        ("exit=2", 2, 1),
        ("say=STOPPING=1 exit=3", 3, 1),
        ("say=STOPPING=1 crash", 128 + signal.SIGKILL, 1),
        ("exit=1 / exit=0", 0, 2),
        ("say=READY=1 exit=2 / exit=0", 0, 2),
    ],
)
def test_an_end_is_passed_on_and_a_crash_is_not(bench: Bench, words: str, code: int, lives: int) -> None:
    """STOPPING, 0, or a wrong request at the first start end it; otherwise the child restarts."""
    assert bench.run(words)[0] == code
    assert bench.log() == ["life"] * lives


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_forwarded_and_a_stop_is_final(bench: Bench, stop: signal.Signals) -> None:
    """SIGHUP reaches the child; SIGTERM and SIGINT end it without a restart."""
    bench.start("signals exit=7")
    bench.noted("up")
    bench.signal(signal.SIGHUP)
    bench.noted("SIGHUP")
    bench.signal(stop)
    assert bench.end()[0] == 7
    assert bench.log()[2:] == ["SIGHUP", stop.name]


def test_a_reload_waits_until_the_child_is_ready(bench: Bench) -> None:
    """SIGHUP would kill a starting child; it waits and is not lost."""
    bench.start("await=seen signals say=STOPPING=1")
    bench.noted("life")
    bench.signal(signal.SIGHUP)
    assert bench.process is not None
    until_sync(lambda: sleeping_in_poll(bench.process), "the child")
    (bench.folder / "seen").touch()
    bench.noted("SIGHUP")
    bench.signal(signal.SIGTERM)
    assert bench.end()[0] == 0
    assert {life for _, life, _ in bench.lines()} == {0}


def test_the_flag_runs_the_same_command_without_it(tmp_path: Path) -> None:
    """`ebbtide run --keep-lock` refuses like `ebbtide run`: same line, same exit code."""
    config = tmp_path / "config.yaml"
    config.write_text("apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\nreserv: 3s\n")
    words = ["run", "--mode", "process", "--pods", str(tmp_path), "--config", str(config), "--keep-lock"]
    kept = subprocess.run([*EBBTIDE, *words], cwd=ROOT, capture_output=True, text=True)
    assert (kept.returncode, kept.stderr.count("\n")) == (2, 1)
    assert "reserve" in kept.stderr


def sleeping_in_poll(process: subprocess.Popen[str] | None) -> bool:
    """The process handled every signal and waits again."""
    assert process is not None
    status = Path(f"/proc/{process.pid}/status").read_text()
    pending = re.findall(r"(?:SigPnd|ShdPnd):\s+(\w+)", status)
    return all(int(mask, 16) == 0 for mask in pending) and "State:\tS" in status


async def test_a_sign_of_life_waits_for_room(tmp_path: Path, mock_clock: trio.testing.MockClock) -> None:
    """On a full socket the daemon's sign is sent before the next is due."""
    service = ServiceManager(str(tmp_path / "notify"), life_seconds=1)
    host = LocalHost("", "process", cast(Any, None), service, 0)
    daemon = SimpleNamespace(_host=host, sequencer=SimpleNamespace(turned=trio.lowlevel.checkpoint))
    with full_socket(tmp_path / "notify") as full:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Daemon._say_alive, cast(Any, daemon))
            await trio.testing.wait_all_tasks_blocked()
            while b"WATCHDOG=1" not in drain(full):
                await trio.lowlevel.wait_readable(full)
            nursery.cancel_scope.cancel()
