"""The library's front door: opening, choosing, and what is exported."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from ebbtide import replay
from ebbtide.config import ConfigError
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.replay.journal import NoJournal, NoSuchShutdown, pick
from tests.journals import SHUTDOWN


def test_a_journal_is_opened_by_its_path() -> None:
    """One path or several, with its id, its verdict and its shutdowns."""
    journal = replay.open(SHUTDOWN)
    assert journal.id == bytes(range(16)).hex()
    assert journal.verdict.state == "intact"
    assert [shutdown.id for shutdown in journal.shutdowns()] == ["00010203-12"]
    assert replay.open([str(SHUTDOWN), "/nowhere"], journal="00010203").id == journal.id


def test_a_place_without_a_journal_is_named(tmp_path: Path) -> None:
    """Nothing there is no empty journal."""
    with pytest.raises(NoJournal, match=tmp_path.name):
        replay.open(tmp_path)


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
    """Where only one has it; a whole id is nobody's begin."""
    things = [Thing(each) for each in ("bcde-1", "bcde-2", "bcde-175", "efghi-3")]
    assert pick(iter(things), name).id == found
    with pytest.raises(
        NoSuchShutdown, match="'bcde' begins more than one shutdown: bcde-1 and bcde-2 among them"
    ):
        pick(iter(things), "bcde")
    with pytest.raises(NoSuchShutdown, match="no shutdown 'efg' in this journal"):
        pick(iter(things), "efg")


@pytest.mark.parametrize("name", ["-4", "-0", "first", "-", "-1x", "--", "-99999999999"])
def test_who_asks_for_a_shutdown_that_is_not_there_hears_which_there_are(name: str) -> None:
    """In one line."""
    with pytest.raises(NoSuchShutdown, match="there are 3, the last is a-3"):
        pick(iter(THINGS), name)
    with pytest.raises(NoSuchShutdown, match=r"there is none$"):
        pick(iter(()), name)


@pytest.mark.parametrize("name", replay.EXPORTS)
def test_every_export_is_there(name: str) -> None:
    """Also where a submodule of the same name has been imported first."""
    module, attribute = replay.EXPORTS[name].split(":")
    import_module(module)
    value = getattr(replay, name)
    assert value is getattr(import_module(module), attribute)
    assert not isinstance(value, ModuleType)
    assert value.__doc__


def test_importing_the_library_costs_nothing() -> None:
    """Neither its own modules nor the codec are loaded before they are used."""
    check = (
        "import sys; from ebbtide import replay; assert dir(replay); "
        "print([each for each in sys.modules if each.startswith('ebbtide.') and each != 'ebbtide.replay'])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_table_that_there_is_not_names_those_that_there_are() -> None:
    """Before a row is made."""
    with pytest.raises(KeyError, match="no table 'nodes': there are shutdowns, waves, pods"):
        list(replay.rows(replay.open(SHUTDOWN).shutdowns(), "nodes"))


def test_a_configuration_file_is_the_same_as_its_settings(tmp_path: Path) -> None:
    """In one call, one file or several of which the last wins; a file and a value is one too many."""
    long, short = (tmp_path / f"{seconds}.yaml" for seconds in (60, 10))
    for seconds, file in ((60, long), (10, short)):
        file.write_text(
            f"apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\nshutdownGracePeriod: {seconds}s\n"
        )
    shutdown = replay.open(SHUTDOWN).shutdown()
    by_values = replay.what_if(shutdown, settings=replay.load_settings(long), grant_ns=90 * NS_PER_SECOND)
    assert replay.what_if(shutdown, config=[short, str(long)], grant_ns=90 * NS_PER_SECOND) == by_values
    assert by_values != replay.what_if(shutdown, config=short, grant_ns=90 * NS_PER_SECOND)
    with pytest.raises(ValueError, match="config and settings both"):
        replay.what_if(shutdown, config=long, settings=replay.load_settings(long))
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        replay.what_if(shutdown, config=tmp_path / "none.yaml")


def test_manifests_stand_in_the_place_of_recorded_pods(tmp_path: Path) -> None:
    """As files in one call, or as pods."""
    file = tmp_path / "pods.yaml"
    file.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: stuck-0, namespace: shop}\n"
        "spec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: x}]}\n"
    )
    shutdown = replay.open(SHUTDOWN).shutdown()
    pods = replay.load_pods(file)
    found = replay.what_if(shutdown, manifests=file)
    assert found == replay.what_if(shutdown, pods=pods)
    (side,) = (side for side in found.pods if side.line.pod.label == "shop/stuck-0")
    assert side.now(lambda line: line.grace_ns).bounds == (NS_PER_SECOND, NS_PER_SECOND)
    with pytest.raises(ValueError, match="manifests and pods both"):
        replay.what_if(shutdown, manifests=file, pods=pods)


def test_times_are_datetimes_where_that_is_asked_for() -> None:
    """Aware, in UTC, cut to microseconds and never rounded up; and integers where it is not."""
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


@pytest.mark.parametrize(
    "wanted, error, said",
    [
        ({"mode": "x"}, ValueError, "no mode 'x': there are process, auto, api, cri, observe"),
        ({"mode": None}, ValueError, "no mode None: there are"),
        ({"pod": ()}, TypeError, r"simulate\(\) knows no 'pod': there are settings, sources, pods"),
        ({"synthetic": -1}, ValueError, "synthetic=-1: there is no such number"),
        ({"api_lost_after_ns": 1}, ValueError, "name its mode as well"),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    wanted: dict[str, object], error: type[Exception], said: str
) -> None:
    """With what there is instead; an unknown mode was taken for a node of no kind."""
    with pytest.raises(error, match=said):
        replay.simulate(1, **wanted)
