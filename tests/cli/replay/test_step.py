"""Walking through a shutdown: the same states forwards and back, however much is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ebbtide.cli.replay.step import BY_KEY, COMMANDS
from ebbtide.cli.replay.step_terminal import ALIASES, FOOT
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import episodes
from ebbtide.replay.states import flatten, states_at
from ebbtide.replay.step import Stepper, Watch, field_changes, is_kill, is_wave
from tests.cli.replay.conftest import EVERY, golden
from tests.commands import Ran, Run
from tests.journals import CANCELLED, DEMO, SHUTDOWN, records_of
from tests.replay.journals import cancelled_and_begun_again, write


def stepper(journal: Path = SHUTDOWN, kept_max: int = 4096) -> Stepper:
    history = History([DirectorySource(journal)])
    return Stepper(history, list(episodes(history))[-1], kept_max)


@pytest.mark.parametrize("kept_max", [4096, 30, 1])
def test_forwards_and_back_are_the_same_states(kept_max: int) -> None:
    """Undone from what is kept, or executed again where too little is: nothing differs."""
    walk = stepper(kept_max=kept_max)
    there = [(walk.here.line.seq, dict(walk.known))]
    while walk.next():
        there.append((walk.here.line.seq, dict(walk.known)))
    back = [(walk.here.line.seq, dict(walk.known))]
    while walk.back():
        back.append((walk.here.line.seq, dict(walk.known)))
    assert [seq for seq, _ in there] == list(range(12, 91))
    assert back[::-1] == there


@pytest.mark.parametrize("journal", EVERY, ids=lambda path: path.name)
def test_the_states_are_those_of_the_state_verb(journal: Path) -> None:
    """After every event, also within a step."""
    walk = stepper(journal, kept_max=10)
    history = History([DirectorySource(journal)])
    while walk.next():
        found = states_at(history, walk.here.line.seq)
        assert found is not None
        assert found.known == walk.known


def test_what_is_kept_is_bounded() -> None:
    """Old events go in whole steps, so that a chain of causes is never cut."""
    walk = stepper(DEMO, kept_max=20)
    longest = 0
    while walk.next():
        longest = max(longest, len(walk._kept))
        chain = [walk.here, *walk.causes()]
        assert chain[-1].line.cause == 0
    assert longest < 20 + 45  # the longest step of the demo has 34 records


def test_seek_goes_anywhere_and_nowhere_else() -> None:
    """Forwards, far back, and not out of the shutdown."""
    walk = stepper(kept_max=8)
    for seq in (90, 12, 57, 58, 20):
        assert walk.seek(seq)
        assert walk.here.line.seq == seq
    assert not walk.seek(11)
    assert not walk.seek(91)
    assert walk.here.line.seq == 20


def test_find_stays_where_it_is_when_there_is_nothing() -> None:
    """A search that fails is no move."""
    walk = stepper()
    assert walk.find(is_kill)
    assert walk.here.line.seq == 58
    assert not walk.find(is_kill)
    assert walk.here.line.seq == 58
    assert walk.find(is_wave, backwards=True)
    assert walk.here.line.seq == 25


def test_an_outcome_knows_its_order() -> None:
    """The chain of causes goes on over the world: from an outcome to what was ordered."""
    walk = stepper()
    walk.seek(36)
    answers = walk.here.point.answers
    assert answers is not None
    assert (answers.seq, type(answers.order).__name__) == (30, "RunHook")
    walk.seek(38)
    assert [seen.line.seq for seen in walk.causes()] == [36]
    assert walk.step_bounds() == (36, 38)


def test_a_change_is_told_field_by_field() -> None:
    """Also of a field that leaves its default."""
    walk = stepper()
    walk.seek(57)
    told = [tuple(change) for change in field_changes(walk.here.point.changes, walk.names)]
    assert told == [
        ("HookActor:uid-stuck-0", "downs[main].phase", "stopping", "killed"),
        ("HookActor:uid-stuck-0", "downs[main].killed", False, True),
        ("WaveActor:0", "over", False, True),
    ]


def test_an_actor_that_comes_is_a_change() -> None:
    """The plan makes the pods' actors."""
    walk = stepper()
    walk.seek(19)
    (change,) = walk.here.point.changes
    assert (change.actor, change.before) == ("HookActor:uid-web-0", None)
    told = {each.path: each.after for each in field_changes((change,), walk.names)}
    assert told["pod"] == "shop/web-0"


def test_an_actor_that_goes_is_a_change() -> None:
    """The end of a shutdown takes those that are done, with the last event of its step."""
    history = History([DirectorySource(SHUTDOWN)])
    before, after = states_at(history, 90), states_at(history, 94)
    assert before is not None
    assert after is not None
    gone = {change.actor for change in after.at.changes if change.after is None}
    assert gone == {label for label in before.known if ":" in label}
    assert not any(":" in label for label in after.known)


@pytest.mark.parametrize("actor", ["", "stuck-0", "shop/stuck-0", "hook:shop/stuck-0", "hook"])
def test_a_watch_sees_its_field_only(actor: str) -> None:
    """By the end of a path, of any actor, of a kind, of a pod."""
    walk = stepper()
    watch = Watch(actor, "killed")
    assert walk.find(lambda seen: bool(watch.changes(seen, walk.names)))
    assert walk.here.line.seq == 57
    assert not walk.find(lambda seen: bool(watch.changes(seen, walk.names)))


@pytest.mark.parametrize("journal", EVERY, ids=lambda path: path.name)
def test_a_difference_found_fast_is_the_difference(journal: Path) -> None:
    """Going down only where two states differ finds what comparing all of their fields finds."""
    walk = stepper(journal)
    while walk.next():
        for change in walk.here.point.changes:
            if change.before is None or change.after is None:
                continue
            pair = (change.before, change.after)
            old, new = (flatten(each.state, walk.names, every=True) for each in pair)
            slow = {path for path in {**old, **new} if old.get(path) != new.get(path)}
            fast = {each.path for each in field_changes((change,), walk.names)} - {"failed"}
            assert fast <= slow
            # What only one side has at its default is no news, and an empty list is none.
            assert all((old.get(path) or None) is None or path not in new for path in slow - fast)


def test_two_shutdowns_in_one_step_are_kept_apart(tmp_path: Path) -> None:
    """The fact that closes the first opens the second, and is told there; no other is taken for a cause."""
    history = History([DirectorySource(cancelled_and_begun_again(tmp_path / "journal"))])
    first, second = (Stepper(history, episode) for episode in episodes(history))
    chains: list[list[int]] = []
    for walk in (first, second):
        while walk.next():
            pass
        walk.back()
        walk.next()
        chains.append([walk.here.line.seq, *(seen.line.seq for seen in walk.causes())])
    assert chains == [[56, 55], [59, 57]]
    assert second.seek(second.first_seq)
    assert (second.here.line.type, second.here.line.since_ns) == ("PrepareForShutdown", 0)


# --- the command, by lines ---------------------------------------------------------------------


def by_lines(replay: Run, *commands: str, journal: Path = SHUTDOWN, json_too: bool = False) -> Ran:
    output = ("-o", "json") if json_too else ()
    return replay("step", *output, journal=journal, stdin="".join(f"{each}\n" for each in commands))


STORY = (
    "kill",
    "b",
    "watch stuck-0 phase",
    "first",
    "c",
    "c",
    "wave",
    "/exit code 143",
    "pod db-0",
    "event 90",
    "?",
)


def test_golden(replay: Run) -> None:
    """A walk by commands in a pipe, as it was read before it was committed."""
    ran = by_lines(replay, *STORY)
    assert (ran.code, ran.err) == (0, "")
    golden("step.txt", ran.out)


def test_golden_of_the_simulator(replay: Run) -> None:
    """A cancel, and what it changes in whom."""
    ran = by_lines(replay, "event ShutdownCancelled", "next", "next", "kill", journal=CANCELLED)
    assert (ran.code, ran.err) == (0, "")
    golden("step-cancelled.txt", ran.out)


def test_golden_of_the_demo(replay: Run) -> None:
    """The bad news of a real shutdown, one after the other."""
    ran = by_lines(replay, "failure", *["again"] * 5, journal=DEMO)
    assert (ran.code, ran.err) == (0, "")
    golden("step-demo.txt", ran.out)


def test_json_is_one_object_an_event(replay: Run) -> None:
    """For scripts: the changes with their old and new values."""
    ran = by_lines(replay, "e 57", json_too=True)
    last = json.loads(ran.out.splitlines()[-1])
    assert (last["seq"], last["stepFirst"], last["stepLast"], last["causes"]) == (57, 57, 63, [])
    assert last["changes"][0] == {
        "actor": "hook:shop/stuck-0",
        "field": "downs[main].phase",
        "before": "stopping",
        "after": "killed",
    }


def test_a_long_event_is_cut_for_people_only(replay: Run) -> None:
    """A checkpoint holds every actor's state; JSON has all of it."""
    told = by_lines(replay, "e 45").out.splitlines()
    assert max(map(len, told)) < 1100
    data = json.loads(by_lines(replay, "e 45", json_too=True).out.splitlines()[-1])["data"]
    assert len(data["actors"]) == 11


@pytest.mark.parametrize(
    "commands, message",
    [
        (("back",), "this is the first event of the shutdown"),
        (("last", "next"), "this is the last event of the shutdown"),
        (("e 500",), "this shutdown has the records 12 to 90"),
        (("e NoSuchType",), "no further event of type 'NoSuchType'"),
        (("continue",), "nothing is watched"),
        (("again",), "nothing was looked for yet"),
        (("watch nobody phase",), "though there is no nobody yet"),
        (("unwatch",), "nothing is watched any more"),
    ],
)
def test_what_cannot_be_found_is_said(replay: Run, commands: tuple[str, ...], message: str) -> None:
    """A message, and the walk goes on."""
    ran = by_lines(replay, *commands)
    assert ran.code == 0
    assert message in ran.out.splitlines()[-1]


@pytest.mark.parametrize(
    "command, words", [("jump", "no such command 'jump'"), ("pod", "pod what? write: pod POD")]
)
def test_a_wrong_command_in_a_pipe_ends_it(replay: Run, command: str, words: str) -> None:
    """A script that is wrong must not go on as if nothing were."""
    ran = by_lines(replay, command, "last")
    assert ran.code == 2
    assert words in ran.err
    assert "of 12-90" in ran.out


def test_nothing_that_a_pod_says_reaches_the_terminal(replay: Run, spoiled: Path) -> None:
    """Escape sequences of other people's texts are shown, not sent."""
    import msgspec

    from ebbtide.events.facts import OrderEnded
    from tests.replay.journals import edit

    def nasty(event: object) -> OrderEnded:
        assert isinstance(event, OrderEnded)
        return msgspec.structs.replace(event, reason="x\x1b]0;owned\x07")

    written = edit(records_of(SHUTDOWN), 36, nasty)
    ran = by_lines(replay, "e 36", journal=write(spoiled, written))
    assert "\x1b" not in ran.out
    assert "\\x1b]0;owned" in ran.out


def test_begins_where_it_is_told(replay: Run) -> None:
    """``--at`` takes a record of the shutdown and no other, or a moment, as in every verb."""
    assert replay("step", "--at", "58").out.startswith("record 58 of 12-90")
    assert replay("step", "--at", "+9s").out.startswith("record 52 of 12-90")
    ran = replay("step", "--at", "5")
    assert (ran.code, ran.out) == (2, "")
    assert "the records 12 to 90" in ran.err


def test_unknown_logic_is_refused(replay: Run, spoiled: Path) -> None:
    """Exit code 6, and no guess."""
    folder = write(spoiled, records_of(SHUTDOWN)[:44], flags=("from-the-future",))
    ran = replay("step", journal=folder)
    assert (ran.code, ran.out) == (6, "")


# --- the page about it -------------------------------------------------------------------------

PAGE = Path(__file__).parents[3] / "docs" / "replay.md"
BEGIN, END = "<!-- commands of step: compared by a test -->\n", "<!-- end -->\n"


def test_the_page_has_the_commands_of_step() -> None:
    """Key, command and what it does, in the order of the table in the code."""
    made = "".join(
        f"| `{command.key}` | `{f'{name} {command.argument}'.rstrip()}` | {command.does} |\n".replace(
            "SEQ|TYPE", "SEQ\\|TYPE"
        )
        for name, command in COMMANDS.items()
    )
    page = PAGE.read_text()
    stands = page[page.index(BEGIN) + len(BEGIN) : page.index(END, page.index(BEGIN))]
    assert stands == f"| key | command | does |\n|---|---|---|\n{made}"


def test_every_key_means_one_command() -> None:
    """No two commands share a key, aliases lead to commands, and the foot of the screen names real keys."""
    assert len(BY_KEY) == len(COMMANDS)
    assert not {command.key for command in COMMANDS.values()} & set(ALIASES)
    assert set(ALIASES.values()) <= set(COMMANDS)
    for entry in FOOT.split("  "):
        key, name = entry.split(" ")
        assert BY_KEY[key] is COMMANDS[name]
