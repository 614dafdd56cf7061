"""Groups whose commands are imported only when they are asked for.

``--help`` prints the list without importing what the commands need.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click

from ebbtide.cli.guard import ReaderGone


class Entry(NamedTuple):
    """Where a command lives, ``module:attribute`` below ``ebbtide.cli``, and its one line of help."""

    target: str
    text: str


Sections = Mapping[str, Mapping[str, Entry]]


class Lazy(click.Group):
    """``sections``: the commands by title, in the order in which ``--help`` shows them."""

    def __init__(self, *args: Any, sections: Sections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections
        self.entries = {name: entry for section in sections.values() for name, entry in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        entry = self.entries.get(name)
        if entry is None:
            return None
        module, attribute = entry.target.split(":")
        command: click.Command = getattr(import_module(f"ebbtide.cli.{module}"), attribute)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """An unknown command is answered with its nearest neighbours."""
        if args[0] not in self.entries and not args[0].startswith("-"):
            ctx.fail(f"no such command {args[0]!r}{self._nearest(args[0])}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise ReaderGone from error
        return answer

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.entries))
        for title, entries in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), entry.text) for name, entry in entries.items()])

    def _nearest(self, name: str) -> str:
        from difflib import get_close_matches

        near = get_close_matches(name, self.entries, n=2)
        return f" (did you mean {' or '.join(near)}?)" if near else ""
