"""``ebbtide replay timeline``: a shutdown, one line per transition; or one pod's story, in sentences.

In a pipe the columns have a fixed width, for diff. On a terminal they fit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
from msgspec.structs import replace

from ebbtide.actors.edges.linux.proc import boot_id
from ebbtide.cli.common.guard import DONE, Refused
from ebbtide.cli.common.output import remark
from ebbtide.cli.common.reading import conclude, follow_journal, open_journal, refuse_following, sources_of
from ebbtide.cli.common.selection import (
    MOMENT_FORMS,
    MOMENT_METAVAR,
    choose_episode,
    history_kind,
    known_actor,
    parse_moment,
)
from ebbtide.cli.common.shared_options import OPTIONAL_EPISODE, episode_verb, wave_option
from ebbtide.cli.replay.timeline_print import LinePrinter, StoryPrinter, line_json
from ebbtide.events.decisions import EpisodeClosed
from ebbtide.events.facts import OrderEnded
from ebbtide.events.outage_events import OutageClosed
from ebbtide.events.record.episodes import GOING_ON, Episode, episodes, shutdown_records
from ebbtide.events.record.format import visible
from ebbtide.replay.timeline import Line, LineFilter, Timeline, is_pod

EPILOG = """\b
Examples:
  ebbtide replay timeline
  ebbtide replay timeline -2 --pod shop/web-0           # the story of one pod, in sentences
  ebbtide replay timeline -2 --pod shop/web-0 --all     # every record about it, and its root cause
  ebbtide replay timeline --wave 1 --since +10s --until +20s
  ebbtide replay timeline -f
  ebbtide replay timeline -2 | cut -c14- | diff - other.txt

The column without a heading: < is a fact, . a decision, > an order, # bookkeeping, ? of another version,
! a problem.
"""


@episode_verb("timeline", EPILOG, "table", "json", episode=OPTIONAL_EPISODE)
@click.option(
    "-f", "--follow", is_flag=True, help="Go on until the lock is released, or the shutdown is closed."
)
@click.option("--all", "every", is_flag=True, help="Every record, bookkeeping too.")
@click.option("--actor", default="", metavar="NAME", help="Only what this actor wrote (hook, wave, edge).")
@click.option(
    "--pod",
    default="",
    metavar="POD",
    help="One pod's story, in sentences: any of its names. With --all the records about it.",
)
@wave_option
@click.option("--since", default="", metavar=MOMENT_METAVAR, help=f"From here: {MOMENT_FORMS}.")
@click.option("--until", default="", metavar=MOMENT_METAVAR, help="Up to here.")
def timeline(
    episode: str | None,
    journals: tuple[Path, ...],
    follow: bool,
    every: bool,
    actor: str,
    pod: str,
    wave: int | None,
    since: str,
    until: str,
    output: str,
) -> int:
    """Show a shutdown, one line per transition; with --pod one pod's story, one sentence per transition.

    EPISODE is last (the default), -1, -2, …, or an id. With -f and without an EPISODE it waits for the next
    shutdown if none is running. It works on any readable journal, without execution.
    """
    wanted = LineFilter(
        actor=known_actor(actor) if actor else "",
        pod=pod,
        wave=wave,
        since=parse_moment(since, "--since") if since else None,
        until=parse_moment(until, "--until") if until else None,
        all=every,
    )
    show = line_json if output == "json" else StoryPrinter() if pod and not every else LinePrinter()
    if follow:
        refuse_following(journals)
        # A finished one is shown as without -f.
        last = _last_episode(journals) if episode is None else choose_episode(journals, episode)
        if last is not None and last.outcome in GOING_ON:
            return _follow(journals, Timeline(last.first_seq, wanted), 0, show)
        if last is None or episode is None:
            remark(f"ebbtide: no {history_kind(open_journal(journals))} runs; waiting for the next one")
            return _follow(journals, Timeline(0, wanted), last.last_seq if last is not None else 0, show)
        episode = last.id
    transitions = Timeline(choose_episode(journals, episode or "last").first_seq, wanted)
    history = open_journal(journals)
    written = _write_lines((transitions.lines(batch) for batch in history.batches()), show)
    if not transitions.knows_pod:
        raise Refused(f"no pod {wanted.pod!r} in this journal: 'ebbtide replay timeline' names them")
    if not written:
        # An empty screen would look like a shutdown without pods.
        given = {"actor": actor, "pod": pod, "wave": wave, "since": since, "until": until}
        filters = "".join(f" --{name} {value}" for name, value in given.items() if value not in ("", None))
        begin, end, why = wanted.since, wanted.until, ""
        waves = transitions.names.waves.values()
        if begin and end and begin.scale == end.scale and begin.value > end.value:
            why = ": the end is before the begin"
        elif wave is not None and waves and wave > max(waves):
            why = f": the waves with pods are {min(waves)} to {max(waves)}"
        remark(f"ebbtide: no line fits{filters}{why}")
    if (follow or (pod and every)) and output != "json":
        _show_root(journals, transitions.episode, pod)
    return conclude(history.verdict)


def _show_root(journals: tuple[Path, ...], number: int, pod: str = "") -> None:
    """An outage has no root."""
    from ebbtide.cli.common.output import headline_text, show
    from ebbtide.events.record.causes import TIMELINE, cause_tree, root_cause

    found = shutdown_records(open_journal(journals), boot_id=boot_id())
    record = next((each for each in found if each.first_seq == number), None)
    if record is None:
        return
    if not pod:
        show(headline_text(record))
        if root := root_cause(record):
            show(visible(f"  do: {root.do}"))
        return
    uids = [each.uid for each in record.pods if is_pod(pod, each.uid, each.label)]
    for root in cause_tree(record):
        if any(uid in root.pods for uid in uids):
            do = root.do.partition(TIMELINE)[0].rstrip("; ")  # this command was just run
            show(f"root cause [{root.code}]: {visible(root.text)}" + f"\n  do: {visible(do)}" * bool(do))


#: Of a release's key (`events.base.order_key`).
RELEASE_KEY = b"/release/"

CLOSING_TAGS = (EpisodeClosed.__name__, OutageClosed.__name__)


def _last_episode(journals: tuple[Path, ...]) -> Episode | None:
    """A torn tail of this boot may be a write in progress: the shutdown may still run."""
    history, here = open_journal(journals), boot_id()
    found = list(episodes(history, boot_id=here))
    if not found:
        return None
    last = found[-1]
    open_end = last.outcome == "truncated" and last.boot_id == here and history.verdict.state == "torn"
    return replace(last, outcome="running") if open_end else last


def _follow(
    journals: tuple[Path, ...], transitions: Timeline, after: int, show: Callable[[Line], str]
) -> int:
    """Follows the chosen shutdown, or the first that begins after ``after``."""

    def lines() -> Iterator[Iterable[Line]]:
        for batch in follow_journal(sources_of(journals)):
            if batch is None:
                continue
            if not transitions.episode:
                transitions.episode = next((raw.episode for raw in batch.records if raw.episode > after), 0)
            yield transitions.lines(batch)
            # Later records mostly do not arrive here.
            if transitions.episode and any(
                raw.tag in CLOSING_TAGS or (raw.tag == OrderEnded.__name__ and RELEASE_KEY in raw.payload)
                for raw in batch.records
                if raw.episode == transitions.episode
            ):
                return

    _write_lines(lines(), show)
    if show is not line_json:
        _show_root(journals, transitions.episode)
    return DONE


def _write_lines(batches: Iterable[Iterable[Line]], show: Callable[[Line], str]) -> bool:
    """Writes batches: neither a write for each line nor a journal in memory. Returns whether there was a
    line.
    """
    any_text = False
    # With -f the reader of a pipe sees a step at once.
    for lines in batches:
        text = "".join(f"{show(line)}\n" for line in lines)
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            any_text = True
    return any_text
