"""``ebbtide replay diff``: the differences of two shutdowns, the biggest of each kind first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ebbtide.cli.common.guard import worst
from ebbtide.cli.common.output import remark, show, show_json, table
from ebbtide.cli.common.selection import choose_shutdown, shutdown_document
from ebbtide.cli.common.shared_options import EpisodeCommand, count_option, journals_option, output_option
from ebbtide.events.messages import plural
from ebbtide.events.record.shutdown_record import ShutdownRecord
from ebbtide.events.units import json_seconds, span
from ebbtide.replay.diff import Change, Difference, Value, diff

EPILOG = """\b
Examples:
  ebbtide replay diff -2 last
  ebbtide replay diff last last --other /mnt/node-7/journal
  ebbtide replay diff -2 -1 -o json | jq '.changes[] | select(.section == "pod")'

Pods are paired by namespace and name, then by name without Kubernetes' random endings (web-5d4f8c7b9-x2k4z
follows web-6c9f7d8b5-q7zwt); waves by their priority. Differences below a millisecond do not count.
"""


@click.command("diff", epilog=EPILOG, cls=EpisodeCommand)
@click.argument("a")
@click.argument("b")
@journals_option
@click.option(
    "--other",
    "others",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The journal that B is in, where it is another one; repeatable.",
)
@count_option
@output_option("table", "json")
def diff_command(
    a: str, b: str, journals: tuple[Path, ...], others: tuple[Path, ...], count: int | None, output: str
) -> int:
    """Compare two shutdowns: what took longer in B, and other changes.

    A and B are last, -1, -2, …, or ids. They are aligned by pod and wave, not by the sequence of events.
    The exit code does not depend on differences.
    """
    first, code = choose_shutdown(journals, a)
    second, other_code = choose_shutdown(others or journals, b)
    code = worst((code, other_code))
    found = diff(first, second)
    changes = found.changes[:count]
    if output == "json":
        show_json(difference_document(first, second, found._replace(changes=changes)))
        return code
    if changes:
        headings = ("MORE", "OF", "WHAT", first.id, second.id)
        show(table(headings, map(_change_row, changes), right=("MORE",)))
    else:
        show("no difference")
    # A remark and not a row: rows beyond -n and equal values are no differences.
    left = len(found.changes) - len(changes)
    more = f"{plural(left, 'more difference')}; " if left else ""
    remark(f"ebbtide: {more}{plural(found.alike, 'pod')} without any difference")
    return code


DIFF_VERSION = 1


def difference_document(a: ShutdownRecord, b: ShutdownRecord, found: Difference) -> dict[str, Any]:
    """Durations are in seconds; a value that one side lacks is null."""
    return {
        "kind": "Difference",
        "version": DIFF_VERSION,
        "a": shutdown_document(a),
        "b": shutdown_document(b),
        "changes": [
            {
                "section": change.section,
                "subject": change.subject or None,
                "what": change.what,
                "unit": "seconds" if change.duration else None,
                "a": _json_value(change, change.a),
                "b": _json_value(change, change.b),
                "more": json_seconds(change.delta_ns) if change.delta_ns else None,
            }
            for change in found.changes
        ],
        "podsAlike": found.alike,
    }


def _json_value(change: Change, value: Value) -> Any:
    return json_seconds(int(value)) if change.duration and value is not None else value


def _change_row(change: Change) -> tuple[str, ...]:
    # With a sign, like diff: bare times would read as durations.
    sign = "+" if change.delta_ns > 0 else ""
    more = f"{sign}{span(change.delta_ns)}" if change.delta_ns else ""
    subject = change.subject or change.section
    return (more, subject, change.what, _value_text(change, change.a), _value_text(change, change.b))


def _value_text(change: Change, value: Value) -> str:
    if value is None:
        return "-"
    # Before the durations: in Python a bool is a number too.
    if isinstance(value, bool):
        return "yes" if value else "no"
    return span(int(value)) if change.duration else str(value)
