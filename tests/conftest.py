"""For all tests: table checks in actors, and journals that replay."""

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

# As in the daemon (`actors.edges.cri.cri_edge`), before gRPC loads: its fork handlers use threads that the
# child lacks, and one child in some hundred hung.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# A shell without job control starts background commands with these ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# Tests use the product's bounds until they widen them.
os.environ.pop("EBBTIDE_BOUNDS_FACTOR", None)

# No deadline: benchmarks measure speed. The gate has fixed inputs; `--hypothesis-profile=fresh` draws others.
FRESH = hypothesis.settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
hypothesis.settings.register_profile("fresh", FRESH, derandomize=False)
hypothesis.settings.register_profile("gate", FRESH, derandomize=True, database=None)
hypothesis.settings.load_profile("gate")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Proofs with a million cases run sampled, so that the suite takes minutes."""
    parser.addoption("--whole", action="store_true", help="run the sampled proofs whole (docs/testing.md)")
    parser.addoption("--no-skips", action="store_true", help="a test that would be skipped fails")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With ``--no-skips`` an unavailable real part fails the gate."""
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
    """Collected objects live to the end: six thousand tests and their modules."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Otherwise the garbage collector would scan them every few tests."""
    gc.freeze()
    gc.enable()


class Sample:
    """An evenly spread, fixed sample; ``--whole`` takes all."""

    def __init__(self, whole: bool) -> None:
        self._whole = whole

    def __call__(self, items: Sequence[T], one_of: int) -> Sequence[T]:
        return items if self._whole else items[::one_of]


@pytest.fixture
def sample(whole: bool) -> Sample:
    return Sample(whole)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run("journal", "ls", ...)`` in this process, without this machine's bus."""
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
    """After the test: replay each system journal in its folder.

    Journals of loose records have no actors and are skipped. A damaged journal replays its intact prefix.
    """
    folder: Path | None = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if folder is None:
        return
    for journal in sorted({file.parent for file in folder.rglob(SEGMENTS)}):
        divergence = replayed(journal)
        assert divergence is None, f"the journal in {journal} diverges: {divergence}"


def pytest_exception_interact(node: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """In a nursery Ctrl-C comes in a group, which pytest takes for a failure: end the run."""
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, BaseExceptionGroup) and error.subgroup(KeyboardInterrupt):
        node.session.shouldstop = "Ctrl-C"


def replayed(journal: Path) -> Divergence | None:
    """The first divergence of a system's journal; None for other journals."""
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
