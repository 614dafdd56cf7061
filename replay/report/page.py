"""Puts the page together: skeleton, style, script and data in one file that asks nobody for anything.

A strict content policy allows this script and this style by their hashes, and nothing else: a name that
slipped through as markup could neither run nor load anything.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

import msgspec

from replay.account.model import Account
from replay.chain import critical_chain
from replay.report import around, pods, sections
from replay.report.chain import chain, held_up, holders
from replay.report.document import document
from replay.report.markup import text
from replay.report.words import counted, grouped, verdict
from replay.timeline import Line

#: In JSON inside of HTML these could end the element, or begin a comment.
ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def report(account: Account, lines: Iterable[Line], started: str) -> str:
    """The whole page. ``lines`` are all of the shutdown's, ``started`` is the signal's time (RFC 3339)."""
    found = critical_chain(account)
    data = document(account, lines, holders(found))
    style, script = _resource("page.css"), _resource("page.js")
    return _fill(
        _resource("page.html"),
        {
            "policy": _policy(style, script),
            "title": text(f"{account.node}: {verdict(account)}"),
            "style": style,
            "header": sections.header(account, started, held_up(account, found)),
            "damage": sections.damage(account),
            "warnings": sections.notices(account),
            "figures": sections.figures(account),
            "chain": chain(account, found),
            "waves": sections.waves(account),
            "pods": pods.pods(account),
            "pod-count": counted(len(account.pods), "pod"),
            "hooks": sections.hooks(account),
            "settings": around.settings(account),
            "course": around.course(account),
            "event-count": grouped(len(data["events"]["seq"])),
            "last-seq": str(account.last_seq),
            "first-seq": str(account.first_seq),
            "episode": text(account.id),
            "version": text(account.version),
            "journal": text(account.journal_id),
            "data": as_script(data),
            "script": script,
        },
    )


def as_script(data: Any) -> str:
    """JSON that can stand in a script element."""
    made = msgspec.json.encode(data).decode()
    for sign, escape in ESCAPES.items():
        made = made.replace(sign, escape)
    return made


def _resource(name: str) -> str:
    return files("replay.report").joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(body: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(body.encode()).digest()).decode()}'"


def _fill(skeleton: str, slots: Mapping[str, str]) -> str:
    """Each ``{{slot}}`` of the skeleton once; what stands in a slot is never looked at again."""
    parts = skeleton.split("{{")
    filled = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition("}}")
        filled += (slots[name], rest)
    return "".join(filled)
