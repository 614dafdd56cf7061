"""Printing the states of actors: each field with its path, in words for people and exactly in JSON."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from actors.logic.flags import LOGIC_FLAGS
from ebbtide.cli.episodes import choose, verdict_document
from ebbtide.cli.events import rfc3339
from ebbtide.cli.guard import DIVERGED, DONE, Refused, worst
from ebbtide.cli.output import remark, show_json
from ebbtide.cli.reading import conclude, open_journal
from ebbtide.cli.replaying.timeline_show import since
from ebbtide.text import visible
from events.history import History
from events.words.base import Names
from replay.states import States, locate, states_at
from replay.states_execution import Standing
from replay.states_fields import flatten, plain, worded
from replay.timeline import actor_name, short_name
from replay.timeline_wanted import Moment, is_actor, is_pod

STATES_VERSION = 1


class Asked(NamedTuple):
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


def show_state(journals: tuple[Path, ...], episode: str | None, asked: Asked, output: str) -> int:
    """Exit code 3 where this version decides otherwise before that place, or that of the journal's verdict.

    Raises Refused for a place, an actor or a pod that is not there.
    """
    history = open_journal(journals, logic_flags=LOGIC_FLAGS)
    seq = _place(history, journals, episode, asked.at)
    states = states_at(history, seq)
    verdict = history.read()
    if states is None:
        if verdict.exit_code:
            remark(f"ebbtide: record {seq} cannot be executed")
            return conclude(verdict)
        raise Refused(f"there is no record {seq}: the last one is {verdict.end.seq}")
    shown = {label: of for label, of in states.known.items() if asked.takes(label, states.names)}
    if not shown:
        raise Refused(f"no such actor at record {seq}: {_those(states)}")
    if output == "json":
        show_json({**_document(states, shown, asked), "journal": verdict_document(verdict)})
    else:
        _tell(states, shown, asked)
    return worst((conclude(verdict), _agreed(states)))


def _place(history: History, journals: tuple[Path, ...], episode: str | None, at: Moment) -> int:
    first = choose(journals, episode or "last").first_seq if at.scale == "since_ns" or episode else 0
    if at.scale == "since_ns" and at.value < 0:
        raise Refused("--at is before the signal: name a record, or a time (2026-03-01T12:00:00Z)")
    seq = locate(history, at, first)
    if seq is None:
        raise Refused("the journal begins after that time: 'ebbtide journal show' has its first records")
    return seq


def _agreed(states: States) -> int:
    if states.divergence is None or states.divergence.seq > states.at.raw.seq:
        return DONE
    remark(
        f"ebbtide: this version decides otherwise from record {states.divergence.seq} on, and these are its"
        " states; 'ebbtide replay verify' explains it"
    )
    return DIVERGED


def _those(states: States) -> str:
    """Each kind by its name, and of a kind with many their number: a node may have a thousand pods."""
    kinds = Counter(short_name(label) for label in states.known)
    return f"there are {', '.join(kind if of == 1 else f'{of} of {kind}' for kind, of in kinds.items())}"


def _tell(states: States, shown: dict[str, Standing], asked: Asked) -> None:
    signal_ns = states.signal.raw.mono_ns if states.signal is not None else None
    rows = (
        row for label, of in shown.items() for row in _rows(label, of, states.names, signal_ns, asked.every)
    )
    _print((*_head(states), ""), (("ACTOR", "FIELD", "VALUE"), *rows))


def _print(head: Iterable[str], rows: Sequence[tuple[str, str, str]]) -> None:
    """Thousands of rows, at once: a table that is laid out for the eye would take its time."""
    shown = [tuple(map(visible, row)) for row in rows]
    actor, field = (max(len(row[at]) for row in shown) for at in (0, 1))
    lines = (f"{row[0]:<{actor}}  {row[1]:<{field}}  {row[2]}".rstrip() for row in shown)
    sys.stdout.write("".join(f"{line}\n" for line in (*map(visible, head), *lines)))


def _head(states: States) -> Iterator[str]:
    raw, when = states.at.raw, states.when
    since_signal = f", {since(when.since_ns)} s" if when.since_ns is not None else ""
    yield (
        f"after record {raw.seq}, {raw.tag} of {actor_name(raw.actor, states.names)},"
        f" {rfc3339(when.wall_ns)}{since_signal}"
    )
    last = states.step[-1].raw.seq
    if last != raw.seq:
        yield f"in the middle of a step: it goes on to record {last}"


def _rows(
    label: str, standing: Standing, names: Names, signal_ns: int | None, every: bool
) -> Iterator[tuple[str, str, str]]:
    name = actor_name(label, names)
    fields = flatten(standing.state, names, every=every)
    if standing.failed:
        yield name, "failed", "it takes no further part"
        name = ""
    if not fields and not standing.failed:
        yield name, "", "all at their defaults"
    for path, value in fields.items():
        yield name, path, worded(path, value, signal_ns)
        name = ""


def _document(states: States, shown: dict[str, Standing], asked: Asked) -> dict[str, Any]:
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
                "state": plain(of.state, every=asked.every),
            }
            for label, of in shown.items()
        ],
    }
