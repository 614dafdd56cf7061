"""``ebbtide replay diff``: the differences of two shutdowns, the biggest of each kind first."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.structs import replace

from ebbtide.cli.common.guard import worst
from ebbtide.cli.common.output import remark, show, show_json, table, value_text
from ebbtide.cli.common.selection import choose_shutdown, episode_heading
from ebbtide.cli.common.shared_options import (
    EpisodeCommand,
    count_option,
    journals_option,
    output_option,
    paths_option,
)
from ebbtide.events.messages import plural
from ebbtide.events.record.format import document
from ebbtide.events.units import span
from ebbtide.replay.diff import Value, diff

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
@paths_option("The journal of B, if it is another one; repeatable.", "--other", "others")
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
        shown = replace(found, changes=changes)
        a_shown, b_shown = episode_heading(first), episode_heading(second)
        show_json(document("Difference", DIFF_VERSION, shown, a=a_shown, b=b_shown))
        return code
    if changes:
        headings = ("MORE", "OF", "WHAT", first.id, second.id)
        rows = (
            (
                # Without a sign the times would read as durations.
                f"{'+' if each.more_ns > 0 else ''}{span(each.more_ns)}" if each.more_ns else "",
                each.subject or each.section,
                each.what,
                _value_text(each.a, each.a_ns),
                _value_text(each.b, each.b_ns),
            )
            for each in changes
        )
        show(table(headings, rows, right=("MORE",)))
    else:
        show("no difference")
    # Not a row: rows beyond -n and equal values are no differences.
    left = len(found.changes) - len(changes)
    more = f"{plural(left, 'more difference')}; " if left else ""
    remark(f"ebbtide: {more}{plural(found.pods_alike, 'pod')} without any difference")
    return code


DIFF_VERSION = 2


def _value_text(value: Value, duration_ns: int | None) -> str:
    return value_text(value) if duration_ns is None else span(duration_ns)
