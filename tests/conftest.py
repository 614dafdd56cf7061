"""For all tests: actors do what their tables say, and a journal is a function of its facts."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import hypothesis
import pytest
from hypothesis import HealthCheck

from ebbtide.actors.system import System
from ebbtide.events.base import Checkpoint
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.codec import BadPayload, UnknownType, decode_event
from ebbtide.events.reader import History
from ebbtide.replay.replayer import Divergence, Replayer
from tests.commands import NOWHERE, Ran, Run

SEGMENTS = "*.ebj"

T = TypeVar("T")

System.checked = True

# As the daemon has it (`actors.edges.cri.cri_edge`), before any test loads gRPC: its handlers at a fork go on
# with threads that the child does not have, and one child in some hundred never came to its program.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# A shell without job control starts a background command with these ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# Each test has the product's own bounds until it widens them.
os.environ.pop("EBBTIDE_BOUNDS_FACTOR", None)

# No deadline: benchmarks measure speed. The gate has the same inputs in each run;
# `--hypothesis-profile=fresh` draws others.
FRESH = hypothesis.settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
hypothesis.settings.register_profile("fresh", FRESH, derandomize=False)
hypothesis.settings.register_profile("gate", FRESH, derandomize=True, database=None)
hypothesis.settings.load_profile("gate")


def pytest_addoption(parser: pytest.Parser) -> None:
    """What repeats one proof a million times runs sampled, so that the whole suite takes minutes."""
    parser.addoption("--whole", action="store_true", help="run the sampled proofs whole (docs/testing.md)")
    parser.addoption("--no-skips", action="store_true", help="a test that would be skipped fails")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With ``--no-skips``: a real part that cannot be had fails the gate."""
    report = yield
    if report.skipped and item.config.getoption("--no-skips") and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"skipped: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a file that skips itself."""
    report = yield
    if report.skipped and collector.config.getoption("--no-skips"):
        report.outcome, report.longrepr = "failed", f"skipped: {report.longrepr}"
    return report


@pytest.fixture
def whole(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--whole"))


def pytest_sessionstart() -> None:
    """What collecting makes lives to the end: six thousand tests, and every module that they import."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Without this the collector would walk it all again every few tests."""
    gc.freeze()
    gc.enable()


class Sample:
    """One of so many, evenly spread and the same each time; with ``--whole`` all of them."""

    def __init__(self, whole: bool) -> None:
        self._whole = whole

    def __call__(self, items: Sequence[T], one_of: int) -> Sequence[T]:
        return items if self._whole else items[::one_of]


@pytest.fixture
def sample(whole: bool) -> Sample:
    return Sample(whole)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run("journal", "ls", ...)`` without a process of its own, away from this machine's bus."""
    from ebbtide.cli.common.guard import guarded

    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", NOWHERE)
    monkeypatch.delenv("EBBTIDE_DEBUG", raising=False)

    def call(*arguments: str | Path) -> Ran:
        code = guarded([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call


@pytest.fixture(autouse=True)
def _every_journal_replays(request: pytest.FixtureRequest) -> Iterator[None]:
    """After the test: re-execute each journal in its folder that a whole system wrote.

    A journal that a test of the writer made up from loose records holds no actors, and is passed over. Of a
    damaged one the intact prefix replays.
    """
    folder: Path | None = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if folder is None:
        return
    for journal in sorted({file.parent for file in folder.rglob(SEGMENTS)}):
        divergence = replayed(journal)
        assert divergence is None, f"the journal in {journal} diverges: {divergence}"


def pytest_exception_interact(node: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """In a nursery Ctrl-C comes in a group, which pytest takes for a failed test: it ends the whole run."""
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, BaseExceptionGroup) and error.subgroup(KeyboardInterrupt):
        node.session.shouldstop = "Ctrl-C"


def replayed(journal: Path) -> Divergence | None:
    """The first divergence of a journal that a system wrote; None also for any other."""
    replayer, history = Replayer(), History([DirectorySource(journal)])
    raws = history.raw()
    first = next(raws, None)
    if first is None or not _has_actors(first.tag, first.payload):
        return None
    replayer.feed((first,))
    return replayer.feed(raws)


def _has_actors(tag: str, payload: bytes) -> bool:
    try:
        mark = decode_event(tag, payload)
    except (UnknownType, BadPayload):
        return False
    return isinstance(mark, Checkpoint) and bool(mark.actors)
