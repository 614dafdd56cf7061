"""``ebbtide replay timeline``: one line a transition, on anything that can be read."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from ebbtide.events.base import TYPES, Fact, register
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import HookEnded
from ebbtide.events.reader import Batch, History
from ebbtide.replay.timeline import LineFilter, Moment, timeline
from tests.cli.replay.conftest import EVERY, golden
from tests.commands import Run
from tests.journals import DEMO, SHUTDOWN, records_of
from tests.replay.journals import edit, write


def objects(replay: Run, *arguments: str, journal: Path = SHUTDOWN) -> list[dict[str, object]]:
    ran = replay("timeline", *arguments, "-o", "json", journal=journal)
    assert ran.code == 0
    return [json.loads(line) for line in ran.out.splitlines()]


@pytest.mark.parametrize("journal", EVERY, ids=lambda path: path.name)
def test_golden(replay: Run, journal: Path) -> None:
    """What matters to a person, as it was read before it was committed."""
    ran = replay("timeline", journal=journal)
    assert (ran.code, ran.err) == (0, "")
    golden(f"timeline-{journal.name}.txt", ran.out)


def test_golden_of_every_record(replay: Run) -> None:
    """``--all`` has every record of the shutdown, without a gap."""
    golden("timeline-all.txt", replay("timeline", "--all").out)
    numbers = [line["seq"] for line in objects(replay, "--all")]
    assert numbers == list(range(12, 91))


def test_golden_json(replay: Run) -> None:
    """One object a line."""
    golden("timeline-pod.json", replay("timeline", "--pod", "stuck-0", "-o", "json").out)


def test_columns_stand_where_they_stand(replay: Run) -> None:
    """Two timelines diff well: below the heading each column begins at the same place."""
    heading, *lines = replay("timeline", journal=DEMO).out.splitlines()
    assert {line[12] + line[23] + line[31] + line[33] for line in lines} == {"    "}
    assert heading.index("ACTOR") == lines[0].index("edge")
    assert heading.index("POD") == next(
        line.index("shop/legacy-0") for line in lines if "shop/legacy-0" in line
    )


def test_no_uid_is_shown(replay: Run) -> None:
    """People read names; also in what is unknown, and in keys."""
    for arguments in ((), ("--all",)):
        assert "uid-" not in replay("timeline", *arguments).out


@pytest.mark.parametrize("name", ["stuck-0", "shop/stuck-0", "uid-stuck-0"])
def test_of_one_pod(replay: Run, name: str) -> None:
    """By any of its names: the story from its stop to its end."""
    lines = objects(replay, "--pod", name)
    assert {line["pod"] for line in lines} == {"shop/stuck-0"}
    assert [line["type"] for line in lines][0::6] == ["PodStopBegan", "StragglerEnded"]


def test_of_one_wave(replay: Run) -> None:
    """The wave, and its pods."""
    lines = objects(replay, "--wave", "2")
    assert {line["wave"] for line in lines} == {2}
    assert [line["type"] for line in lines][:2] == ["WaveStarted", "PodStopBegan"]


@pytest.mark.parametrize("name", ["hook", "HookActor", "Hook"])
def test_of_one_actor(replay: Run, name: str) -> None:
    """By its full or its short name."""
    actors = {str(line["actor"]).partition(":")[0] for line in objects(replay, "--actor", name)}
    assert actors == {"HookActor"}


def test_of_one_actor_of_a_kind(replay: Run) -> None:
    """With its subject only that one."""
    assert {line["actor"] for line in objects(replay, "--actor", "WaveActor:1")} == {"WaveActor:1"}


@pytest.mark.parametrize(
    "since, until",
    [
        ("58", "67"),
        ("+10.002s", "+10.007s"),
        ("+10002ms", "+10.4s"),
        ("2023-11-14T22:14:35.007Z", "2023-11-14T22:14:35.012Z"),
    ],
)
def test_from_here_to_there(replay: Run, since: str, until: str) -> None:
    """By number, by the time since the signal, by the clock: both ends are in."""
    numbers = [line["seq"] for line in objects(replay, "--since", since, "--until", until)]
    assert (numbers[0], numbers[-1]) == (58, 67)


def test_time_goes_on_over_a_boot(replay: Run) -> None:
    """The monotonic clock starts anew; what happened on the next boot is later all the same."""
    since = [line["sinceSeconds"] for line in objects(replay, "--all")]
    assert since == sorted(since)  # type: ignore[type-var]
    assert since[-1] == pytest.approx(41.613)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("--pod", "nobody"), "no pod 'nobody'"),
        (("--actor", "nobody"), "no actor is called 'nobody'"),
        (("--since", "soon"), "--since 'soon' is neither"),
        (("--until", "later"), "--until 'later' is neither"),
        (("-7",), "'-7' in this journal"),
    ],
)
def test_a_wrong_request_is_one_line(replay: Run, arguments: tuple[str, ...], words: str) -> None:
    """What was wrong, and what to write instead."""
    ran = replay("timeline", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert ran.err.count("\n") == 1


@pytest.fixture
def future() -> object:
    """An event type that only a later version knows."""

    @register
    class FromTheFuture(Fact, frozen=True, kw_only=True, omit_defaults=True, gc=False):
        uid: str
        what: str

    yield FromTheFuture
    del TYPES["FromTheFuture"]


def test_an_unknown_type_is_shown_as_it_is(replay: Run, spoiled: Path, future: type[Fact]) -> None:
    """Its tag, its pod by name, and its data; the lines around it are as ever."""
    written = edit(records_of(SHUTDOWN), 40, lambda event: future(uid="uid-web-0", what="x\x1b[31m"))
    del TYPES["FromTheFuture"]
    ran = replay("timeline", "--since", "40", "--until", "40", journal=write(spoiled, written))
    TYPES["FromTheFuture"] = future
    assert ran.code == 0
    line = ran.out.splitlines()[1]
    assert line.endswith(
        "? edge      0 shop/web-0                   FromTheFuture uid=shop/web-0 what=x\\x1b[31m"
    )


def test_a_payload_that_does_not_fit_is_shown_as_it_is(replay: Run, spoiled: Path) -> None:
    """An edited record does not stop the telling."""
    bad = msgspec.structs.replace(HookEnded(uid="uid-web-1", container="main", result="done"), reason=7)
    written = edit(records_of(SHUTDOWN), 43, lambda event: bad)
    ran = replay("timeline", "--since", "43", "--until", "43", journal=write(spoiled, written))
    assert "HookEnded uid=shop/web-1 container=main result=done reason=7" in ran.out


def test_a_torn_tail_is_told_of(replay: Run, tmp_path: Path) -> None:
    """Everything before it is used, and the exit code says so."""
    folder = write(tmp_path / "torn", records_of(SHUTDOWN)[:60])
    (segment,) = folder.iterdir()
    segment.write_bytes(segment.read_bytes()[:-7])
    ran = replay("timeline", journal=folder)
    assert ran.code == 4
    assert "torn" in ran.err
    assert "autopsy of main" in ran.out


def test_the_library_gives_the_same_lines(replay: Run) -> None:
    """What the command does, a program can do: an iterator of values."""
    history = History([DirectorySource(SHUTDOWN)])
    wanted = LineFilter(wave=1, until=Moment("since_ns", 10_500_000_000), all=False)
    lines = list(timeline(history.batches(), 12, wanted))
    told = objects(replay, "--wave", "1", "--until", "+10.5s")
    assert [line.text for line in lines] == [each["text"] for each in told]
    assert all(line.brief for line in lines)
    assert [line.uid for line in lines if line.uid] == ["uid-api-0"] * 4


def test_a_digest_is_bookkeeping(replay: Run) -> None:
    """What only a machine reads is there with ``--all``, as a sentence, and not without."""
    assert "digested" not in replay("timeline", journal=DEMO).out
    lines = objects(replay, "--all", journal=DEMO)
    digests = [line for line in lines if line["type"] == "StatesDigest"]
    assert len(digests) == 4
    assert {line["kind"] for line in digests} == {"mark"}
    first = str(digests[0]["seq"])
    assert "NodeStatusActor: " in replay("step", "--at", first, journal=DEMO).out


def test_what_is_no_map_is_shown_as_bytes() -> None:
    """A payload that nobody can read is hexadecimal digits."""
    header, raws = next(iter(History([DirectorySource(SHUTDOWN)]).batches()))
    odd = [raw._replace(payload=b"\xc1") if raw.seq == 13 else raw for raw in raws]
    line = next(line for line in timeline([Batch(header, odd)], 12) if line.seq == 13)
    assert (line.text, line.data, line.kind) == ("ShutdownDetected c1", "c1", "decision")


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        (("--wave", "9"), "no line fits --wave 9: the waves with pods are 0 to 2"),
        (("--since", "200", "--until", "100"), "--since 200 --until 100: the end lies before the begin"),
        (("--actor", "wave", "--until", "+0s"), "no line fits --actor wave --until +0.000s"),
    ],
)
def test_nothing_fits(replay: Run, filters: tuple[str, ...], said: str) -> None:
    """It is said on standard error, for an empty answer could mean anything."""
    ran = replay("timeline", *filters)
    assert (ran.code, ran.out) == (0, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1
