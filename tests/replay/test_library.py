"""The library's entry points: open, choose, exports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from ebbtide import replay
from ebbtide.events.base import NS_PER_SECOND, Fact
from ebbtide.events.decisions import PodEnded
from ebbtide.replay.journal_library import NoSuchShutdown, Unreadable, pick
from tests.journals import SHUTDOWN, records_of, segment, write_files
from tests.replay import outages


class FromTheFuture(Fact):
    """An unregistered fact of a later version."""

    uid: str = ""
    more: dict[str, Any] = {}


def test_a_journal_is_opened_by_its_path() -> None:
    """One or several paths, with ID, verdict and shutdowns."""
    journal = replay.open(SHUTDOWN)
    assert repr(journal) == f"<Journal 00010203 in {SHUTDOWN}>"
    assert repr(journal.shutdown()) == "<Shutdown 00010203-12: reboot, complete>"
    assert len(journal.shutdown().trace_id) == 32
    assert journal.id == bytes(range(16)).hex()
    assert journal.verdict.state == "intact"
    assert [shutdown.id for shutdown in journal.shutdowns()] == ["00010203-12"]
    assert replay.open([str(SHUTDOWN), "/nowhere"], journal="00010203").id == journal.id


def test_an_outage_is_chosen_too() -> None:
    journal = replay.open(outages.GOLDEN)
    (outage,) = journal.outages()
    assert repr(journal.outage()) == repr(outage) == f"<Outage {outage.id}: outage, recovered>"
    assert "Outage report" in replay.report_html(outage)
    assert replay.critical_chain(outage).total_ns == outage.account.ended_ns


def test_what_this_version_cannot_read_keeps_its_place(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The rest of the record is whole; a pod has its name."""
    records = records_of(SHUTDOWN)
    at = next(at for at, each in enumerate(records) if isinstance(each.event, PodEnded))
    event = FromTheFuture(uid="uid-web-0", more={"all": [True, 7], "bytes": b"\x01"})
    records[at] = replace(records[at], event=event)
    journal = replay.open(write_files(tmp_path_factory.mktemp("spoiled"), segment(records)))
    shown = list(journal.records())
    assert shown[at].event == Unreadable(
        tag="FromTheFuture", data={"uid": "uid-web-0", "more": {"all": [True, 7], "bytes": b"\x01"}}
    )
    assert replace(shown[at], event=event) == records[at]
    assert shown[at + 1] == records[at + 1]
    (line,) = [each for each in replay.timeline(journal.shutdown()) if each.seq == records[at].seq]
    assert (line.kind, line.text) == (
        "unknown",
        "FromTheFuture uid=shop/web-0 more={all: [true, 7], bytes: 01}",
    )


def test_two_journals_whose_ids_begin_alike(tmp_path: Path) -> None:
    for at in (1, 2):
        write_files(tmp_path, segment(records_of(SHUTDOWN)[:6], journal_id=bytes((0xAA, at)) * 8))
    with pytest.raises(replay.NoJournal, match="the ids of several journals begin with aa: aa0"):
        replay.open(tmp_path, journal="aa")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: replay.open("/nowhere"), replay.NoJournal, "no journal in /nowhere"),
        (lambda: replay.simulate(seeds=3), TypeError, "seeds"),
        (lambda: replay.simulate(mode="x"), ValueError, "no mode 'x': there are process, auto"),
        (lambda: replay.simulate(synthetic=-1), ValueError, "synthetic=-1"),
        (lambda: list(replay.rows([], "podz")), KeyError, "no table 'podz': there are shutdowns"),
    ],
)
def test_what_is_refused(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_warning_sends_nothing_to_the_terminal(tmp_path: Path) -> None:
    """A manifest's author chooses the kind of its object."""
    path = tmp_path / "pods.yaml"
    pod = "{kind: Pod, metadata: {name: b}, spec: {containers: [{name: c, image: i}]}}"
    path.write_text(f'{{apiVersion: x/v1, kind: "Strange\\e[31m", metadata: {{name: a}}}}\n---\n{pod}\n')
    with pytest.warns(UserWarning, match=r"Strange\\x1b\[31m"):
        replay.load_pods(path)


def test_a_machine_is_simulated_in_process_mode() -> None:
    """The default, which a node's modes do not list."""
    assert replay.simulate(1, mode="process").files() == replay.simulate(1).files()


class Thing(NamedTuple):
    id: str


THINGS = [Thing("a-1"), Thing("a-2"), Thing("a-3")]


@pytest.mark.parametrize(("name", "found"), [("last", "a-3"), ("-1", "a-3"), ("-3", "a-1"), ("a-2", "a-2")])
def test_a_shutdown_is_chosen_by_its_place_or_its_id(name: str, found: str) -> None:
    """``last`` is ``-1``."""
    assert pick(iter(THINGS), name).id == found


@pytest.mark.parametrize(
    "name, found", [("2", "bcde-2"), ("bcde-1", "bcde-1"), ("bcde-17", "bcde-175"), ("efgh", "efghi-3")]
)
def test_the_begin_of_an_id_or_its_number_is_enough(name: str, found: str) -> None:
    """Only if unique; a whole ID is no prefix."""
    things = [Thing(each) for each in ("bcde-1", "bcde-2", "bcde-175", "efghi-3")]
    assert pick(iter(things), name).id == found
    with pytest.raises(
        NoSuchShutdown, match="'bcde' begins more than one shutdown: bcde-1 and bcde-2 among them"
    ):
        pick(iter(things), "bcde")
    with pytest.raises(NoSuchShutdown, match="no shutdown 'efg' in this journal"):
        pick(iter(things), "efg")


@pytest.mark.parametrize("name", replay.EXPORTS)
def test_every_export_is_there(name: str) -> None:
    """Even after an import of the submodule of the same name."""
    module, attribute = replay.EXPORTS[name].split(":")
    import_module(module)
    value = getattr(replay, name)
    assert value is getattr(import_module(module), attribute)
    assert not isinstance(value, ModuleType)
    assert value.__doc__


def test_importing_the_library_costs_nothing() -> None:
    """Neither its modules nor the codec load before use."""
    check = (
        "import sys; from ebbtide import replay; assert dir(replay); "
        "print([each for each in sys.modules if each.startswith('ebbtide.') and each != 'ebbtide.replay'])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_times_are_datetimes_where_that_is_asked_for() -> None:
    """Aware, UTC, truncated to microseconds; integers otherwise."""
    shutdown = replay.open(SHUTDOWN).shutdown()
    started_ns = shutdown.account.started_wall_ns
    assert shutdown.started == datetime.fromtimestamp(started_ns // NS_PER_SECOND, UTC) + timedelta(
        microseconds=started_ns % NS_PER_SECOND // 1000
    )
    assert shutdown.at(1_500_000_999) - shutdown.started == timedelta(seconds=1.5)
    assert replay.utc(-1) == datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)
    (plain,), (timed,) = (list(replay.rows([shutdown], datetimes=wanted)) for wanted in (False, True))
    assert {name: timed[name] for name in plain if timed[name] != plain[name]} == {
        "started": shutdown.started
    }
    assert plain["started"] == started_ns
