"""Printing what differs between two shutdowns: one line a difference, the biggest of each kind first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ebbtide.cli.episodes import choose_account
from ebbtide.cli.guard import worst
from ebbtide.cli.output import remark, show, show_json, table
from ebbtide.cli.replaying.told import seconds, shutdown_document
from replay.account.model import Account
from replay.account.words import plural, span
from replay.diffing import Change, Difference, Value, diff

DIFF_VERSION = 1

#: Where a journal lies, and the name of a shutdown in it.
Which = tuple[Sequence[Path], str]


def show_diff(a: Which, b: Which, count: int | None, output: str) -> int:
    """Exit code 0, or that of the worse journal's verdict."""
    accounts, codes = zip(*(choose_account(*which) for which in (a, b)), strict=True)
    found = diff(*accounts)
    changes = found.changes[:count]
    if output == "json":
        show_json(document(accounts[0], accounts[1], found._replace(changes=changes)))
        return worst(codes)
    if changes:
        headings = ("MORE", "OF", "WHAT", *(account.id for account in accounts))
        show(table(headings, map(_row, changes), right=("MORE",)))
    else:
        show("no difference")
    left = len(found.changes) - len(changes)
    more = f"{plural(left, 'more difference')}; " if left else ""
    remark(f"ebbtide: {more}{plural(found.alike, 'pod')} without any difference")
    return worst(codes)


def document(a: Account, b: Account, found: Difference) -> dict[str, Any]:
    """Durations are in seconds; a value that one side does not have is null."""
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
                "a": _plain(change, change.a),
                "b": _plain(change, change.b),
                "more": seconds(change.delta_ns) if change.delta_ns else None,
            }
            for change in found.changes
        ],
        "podsAlike": found.alike,
    }


def _plain(change: Change, value: Value) -> Any:
    return seconds(int(value)) if change.duration and value is not None else value


def _row(change: Change) -> tuple[str, ...]:
    sign = "+" if change.delta_ns > 0 else ""
    more = f"{sign}{span(change.delta_ns)}" if change.delta_ns else ""
    subject = change.subject or change.section
    return (more, subject, change.what, _text(change, change.a), _text(change, change.b))


def _text(change: Change, value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return span(int(value)) if change.duration else str(value)
