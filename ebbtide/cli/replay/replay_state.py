"""``ebbtide replay state``: every actor's state after any event, as text for people and exact in JSON."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from ebbtide.cli.common import selection
from ebbtide.cli.common.guard import DIVERGED, WRONG, Refused, worst
from ebbtide.cli.common.output import remark, show_json
from ebbtide.cli.common.reading import conclude, open_journal
from ebbtide.cli.common.shared_options import OPTIONAL_EPISODE, episode_verb
from ebbtide.events.record.format import document, json_values, utc_text, visible
from ebbtide.events.segment import LOGICS
from ebbtide.events.units import offset
from ebbtide.replay.states import KnownState, States, seq_at_moment, state_rows, states_at
from ebbtide.replay.timeline import actor_name, is_actor, is_pod, short_name

EPILOG = """\b
Examples:
  ebbtide replay state --at 214
  ebbtide replay state --at +10.5s --pod shop/web-0
  ebbtide replay state -2 --at 2026-03-01T12:00:00Z --actor wave
  ebbtide replay state --at 214 --actor hook -o json
"""


@episode_verb("state", EPILOG, "table", "json", episode=OPTIONAL_EPISODE)
@click.option(
    "--at",
    required=True,
    metavar=selection.MOMENT_METAVAR,
    help=f"After this record, or at this moment: {selection.MOMENT_FORMS}.",
)
@click.option("--actor", default="", metavar="NAME", help="Only this actor (hook, wave:0, EpisodeActor).")
@click.option("--pod", default="", metavar="POD", help="Only this pod's actor: any of its names.")
@click.option("--all", "every", is_flag=True, help="Fields at their default too.")
def state(
    episode: str | None, journals: tuple[Path, ...], at: str, actor: str, pod: str, every: bool, output: str
) -> int:
    """Show every actor's state after any event or at any instant.

    The journal is executed from the nearest checkpoint. A time since the signal
    counts from the signal of EPISODE (last, -1, -2, …, or an id).
    """
    place = selection.parse_moment(at, "--at")
    if actor:
        selection.known_actor(actor)
    history = open_journal(journals, logics=LOGICS)
    since_signal = place.scale == "since_ns"
    # In any case: a wrong EPISODE is an error.
    first = selection.choose_episode(journals, episode or "last").first_seq if since_signal or episode else 0
    if since_signal and place.value < 0:
        raise Refused("--at is before the signal: name a record, or a time (2026-03-01T12:00:00Z)")
    seq = seq_at_moment(history, place, first)
    if seq is None:
        code = conclude(selection.whole_verdict(history)) or WRONG
        raise Refused(
            "the journal begins after that time: 'ebbtide journal show' has its first records", code
        )
    # Damage behind it counts too.
    states = states_at(history, seq)
    verdict = history.read()
    if states is None:
        if verdict.exit_code:
            remark(f"ebbtide: record {seq} cannot be executed")
            return conclude(verdict)
        raise Refused(f"there is no record {seq}: the last one is {verdict.end.seq}")
    raw, when = states.at, states.when
    # Without this the user would not notice a wrong digit.
    shown_ns = when.since_ns if since_signal else when.wall_ns
    after_end = place.scale != "seq" and seq == verdict.end.seq and shown_ns != place.value
    if after_end:
        remark(f"ebbtide: the journal ends earlier: these are the states after the last record, {seq}")
    shown: dict[str, KnownState] = {}
    for label, known in states.known.items():
        # By the label of a record, by its printed name, or by a short one.
        named = actor in ("", label, actor_name(label, states.names))
        subject = label.partition(":")[2]
        if (named or is_actor(actor, label, short_name(label))) and (
            not pod or is_pod(pod, subject, states.names.of(subject))
        ):
            shown[label] = known
    if not shown:
        # Large kinds with their number: a node may have a thousand pods.
        kinds = Counter(short_name(label) for label in states.known)
        there = ", ".join(kind if of == 1 else f"{of} of {kind}" for kind, of in kinds.items())
        raise Refused(f"no such actor at record {seq}: there are {there}")
    if output == "json":
        actors = [
            {
                "actor": label,
                "name": actor_name(label, states.names),
                "failed": known.failed,
                "state": json_values(known.state, every=every),
            }
            for label, known in shown.items()
        ]
        made = document(
            "States",
            STATES_VERSION,
            seq=raw.seq,
            step_end=states.step_end,
            type=raw.tag,
            wall_ns=when.wall_ns,
            since_ns=when.since_ns,
            mono_ns=raw.mono_ns,
            actors=actors,
            after_end=after_end,
            journal=selection.journal_state(verdict),
        )
        show_json(made)
    else:
        # Thousands of rows: a laid-out table would be slow.
        rows = [tuple(map(visible, row)) for row in _rows(states, shown, every)]
        actor_width, field_width = (max(len(row[column]) for row in rows) for column in (0, 1))
        since = f", {offset(when.since_ns)}" if when.since_ns is not None else ""
        who, time = actor_name(raw.actor, states.names), utc_text(when.wall_ns)
        print(visible(f"after record {raw.seq}, {raw.tag} of {who}, {time}{since}"))
        if states.step_end != raw.seq:
            print(f"in the middle of a step: it goes on to record {states.step_end}")
        lines = (f"{row[0]:<{actor_width}}  {row[1]:<{field_width}}  {row[2]}".rstrip() for row in rows)
        sys.stdout.write("".join(f"{line}\n" for line in ("", *lines)))
    code = conclude(verdict)
    if states.divergence is None or states.divergence.seq > raw.seq:
        return code
    remark(
        f"ebbtide: this version decides differently from record {states.divergence.seq} on, and these are its"
        " states; 'ebbtide replay verify' explains it"
    )
    return worst((code, DIVERGED))


STATES_VERSION = 3


def _rows(states: States, shown: dict[str, KnownState], every: bool) -> Iterator[tuple[str, str, str]]:
    yield "ACTOR", "FIELD", "VALUE"
    signal_ns = states.signal.raw.mono_ns if states.signal is not None else None
    for label, known in shown.items():
        name = actor_name(label, states.names)
        fields = list(state_rows(known.state, states.names, signal_ns, every=every))
        if known.failed:
            yield name, "failed", "it takes no further part"
            name = ""
        if not fields and not known.failed:
            yield name, "", "all at their defaults"
        for path, text in fields:
            yield name, path, text
            name = ""
