"""``ebbtide replay state``: every actor's state after any event.

Each field is shown with its path, in text for people and exactly in JSON.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from ebbtide.actors.system import LOGIC_FLAGS
from ebbtide.cli.common.episodes import choose_episode, verdict_document
from ebbtide.cli.common.guard import DIVERGED, DONE, Refused, worst
from ebbtide.cli.common.options import output_option
from ebbtide.cli.common.output import remark, show_json
from ebbtide.cli.common.reading import conclude, journals_option, open_journal
from ebbtide.cli.common.records import rfc3339
from ebbtide.cli.common.selection import MOMENT_FORMS, MOMENT_METAVAR, known_actor, parse_moment
from ebbtide.cli.replay.timeline import signal_offset
from ebbtide.events.messages import Names
from ebbtide.events.reader import History
from ebbtide.replay.states import (
    KnownState,
    States,
    flatten,
    plain_state,
    seq_at_moment,
    states_at,
    value_text,
)
from ebbtide.replay.timeline import Moment, actor_name, is_actor, is_pod, short_name
from ebbtide.text import visible

EPILOG = """\b
Examples:
  ebbtide replay state --at 214
  ebbtide replay state --at +10.5s --pod shop/web-0
  ebbtide replay state -2 --at 2026-03-01T12:00:00Z --actor wave
  ebbtide replay state --at 214 --actor hook -o json
"""


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", required=False)
@journals_option
@click.option(
    "--at",
    required=True,
    metavar=MOMENT_METAVAR,
    help=f"After this record, or at this moment (the signal is EPISODE's): {MOMENT_FORMS}.",
)
@click.option("--actor", default="", metavar="NAME", help="Only this actor (hook, wave:0, EpisodeActor).")
@click.option("--pod", default="", metavar="POD", help="Only this pod's actor: any of its names.")
@click.option("--all", "every", is_flag=True, help="Fields at their default too.")
@output_option("table", "json")
def state(
    episode: str | None,
    journals: tuple[Path, ...],
    at: str,
    actor: str,
    pod: str,
    every: bool,
    output: str,
) -> int:
    """Show what every actor knew, after any event or at any instant.

    The journal is executed again from the nearest checkpoint. EPISODE (last, -1, -2, …, or an id) says whose
    signal a time since the signal counts from.
    """
    asked = StateQuery(parse_moment(at, "--at"), known_actor(actor) if actor else "", pod, every)
    return show_state(journals, episode, asked, output)


# Printing the states of actors: each field with its path, in words for people and exactly in JSON.


STATES_VERSION = 1


class StateQuery(NamedTuple):
    """What the options say. ``actor`` and ``pod``: empty for all."""

    at: Moment
    actor: str
    pod: str
    every: bool

    def takes(self, label: str, names: Names) -> bool:
        _, _, subject = label.partition(":")
        named = actor_name(label, names)
        return (
            not self.actor or self.actor in (named, label) or is_actor(self.actor, label, short_name(label))
        ) and (not self.pod or is_pod(self.pod, subject, names.of(subject)))


def show_state(journals: tuple[Path, ...], episode: str | None, asked: StateQuery, output: str) -> int:
    """Exit code 3 where this version decides otherwise before that place, or that of the journal's verdict.

    Raises Refused for a place, an actor or a pod that is not there.
    """
    history = open_journal(journals, logic_flags=LOGIC_FLAGS)
    seq = _record_at(history, journals, episode, asked.at)
    states = states_at(history, seq)
    verdict = history.read()
    if states is None:
        if verdict.exit_code:
            remark(f"ebbtide: record {seq} cannot be executed")
            return conclude(verdict)
        raise Refused(f"there is no record {seq}: the last one is {verdict.end.seq}")
    shown = {label: of for label, of in states.known.items() if asked.takes(label, states.names)}
    if not shown:
        raise Refused(f"no such actor at record {seq}: {_actors_text(states)}")
    if output == "json":
        show_json({**_states_document(states, shown, asked), "journal": verdict_document(verdict)})
    else:
        _print_states(states, shown, asked)
    return worst((conclude(verdict), _divergence_code(states)))


def _record_at(history: History, journals: tuple[Path, ...], episode: str | None, at: Moment) -> int:
    first = choose_episode(journals, episode or "last").first_seq if at.scale == "since_ns" or episode else 0
    if at.scale == "since_ns" and at.value < 0:
        raise Refused("--at is before the signal: name a record, or a time (2026-03-01T12:00:00Z)")
    seq = seq_at_moment(history, at, first)
    if seq is None:
        raise Refused("the journal begins after that time: 'ebbtide journal show' has its first records")
    return seq


def _divergence_code(states: States) -> int:
    if states.divergence is None or states.divergence.seq > states.at.raw.seq:
        return DONE
    remark(
        f"ebbtide: this version decides otherwise from record {states.divergence.seq} on, and these are its"
        " states; 'ebbtide replay verify' explains it"
    )
    return DIVERGED


def _actors_text(states: States) -> str:
    """Each kind by its name, and of a kind with many their number: a node may have a thousand pods."""
    kinds = Counter(short_name(label) for label in states.known)
    return f"there are {', '.join(kind if of == 1 else f'{of} of {kind}' for kind, of in kinds.items())}"


def _print_states(states: States, shown: dict[str, KnownState], asked: StateQuery) -> None:
    signal_ns = states.signal.raw.mono_ns if states.signal is not None else None
    rows = (
        row
        for label, of in shown.items()
        for row in _state_rows(label, of, states.names, signal_ns, asked.every)
    )
    _print_rows((*_heading_lines(states), ""), (("ACTOR", "FIELD", "VALUE"), *rows))


def _print_rows(head: Iterable[str], rows: Sequence[tuple[str, str, str]]) -> None:
    """Thousands of rows, at once: a table that is laid out for the eye would take its time."""
    shown = [tuple(map(visible, row)) for row in rows]
    actor, field = (max(len(row[at]) for row in shown) for at in (0, 1))
    lines = (f"{row[0]:<{actor}}  {row[1]:<{field}}  {row[2]}".rstrip() for row in shown)
    sys.stdout.write("".join(f"{line}\n" for line in (*map(visible, head), *lines)))


def _heading_lines(states: States) -> Iterator[str]:
    raw, when = states.at.raw, states.when
    since_signal = f", {signal_offset(when.since_ns)} s" if when.since_ns is not None else ""
    yield (
        f"after record {raw.seq}, {raw.tag} of {actor_name(raw.actor, states.names)},"
        f" {rfc3339(when.wall_ns)}{since_signal}"
    )
    last = states.step[-1].raw.seq
    if last != raw.seq:
        yield f"in the middle of a step: it goes on to record {last}"


def _state_rows(
    label: str, standing: KnownState, names: Names, signal_ns: int | None, every: bool
) -> Iterator[tuple[str, str, str]]:
    name = actor_name(label, names)
    fields = flatten(standing.state, names, every=every)
    if standing.failed:
        yield name, "failed", "it takes no further part"
        name = ""
    if not fields and not standing.failed:
        yield name, "", "all at their defaults"
    for path, value in fields.items():
        yield name, path, value_text(path, value, signal_ns)
        name = ""


def _states_document(states: States, shown: dict[str, KnownState], asked: StateQuery) -> dict[str, Any]:
    raw, when = states.at.raw, states.when
    return {
        "kind": "States",
        "version": STATES_VERSION,
        "seq": raw.seq,
        "stepEnd": states.step[-1].raw.seq,
        "type": raw.tag,
        "time": rfc3339(when.wall_ns),
        "sinceSeconds": None if when.since_ns is None else when.since_ns / 1e9,
        "monoNs": raw.mono_ns,
        "actors": [
            {
                "actor": label,
                "name": actor_name(label, states.names),
                "failed": of.failed,
                "state": plain_state(of.state, every=asked.every),
            }
            for label, of in shown.items()
        ],
    }
