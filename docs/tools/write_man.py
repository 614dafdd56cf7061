"""Writes the man pages: section 1 from the commands' own help, section 5 from the configuration references.

python docs/tools/write_man.py FOLDER [VERSION]     # FOLDER/man1/*.1, FOLDER/man5/*.5

The date in them is that of SOURCE_DATE_EPOCH, and none without it: made twice they are the same bytes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

import click
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "docs/tools")]

from write_configuration import outage_page, page  # noqa: E402

from ebbtide import __version__  # noqa: E402
from ebbtide.cli.app import LazyGroup, cli  # noqa: E402
from ebbtide.cli.kubectl import plugin  # noqa: E402

#: What troff would take for something else, in the characters of its own that mean just this.
LITERAL = str.maketrans(
    {"\\": r"\(rs", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq"}
)
#: Before a paragraph of click's help: not to be filled.
AS_IT_IS = "\b"
#: As they are called; kubectl finds the second one by its page's name.
PROGRAMS = {"ebbtide": cli, "kubectl ebbtide": plugin}
CONFIGURATIONS = {
    "ebbtide-configuration": ("Ebbtide's configuration, /etc/ebbtide/config.yaml", page),
    "ebbtide-outage-configuration": ("configuration of ebbtide outage run", outage_page),
}


def plain(text: str) -> str:
    """Text as troff prints it unchanged, line by line."""
    lines = text.translate(LITERAL).split("\n")
    # A period at the beginning of a line would be a request.
    return "\n".join(f"\\&{line}" if line.startswith(".") else line for line in lines)


def bold(text: str) -> str:
    return rf"\fB{plain(text)}\fR"


def title(name: str, section: int, version: str) -> str:
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    date = time.strftime("%Y-%m-%d", time.gmtime(int(epoch))) if epoch else ""
    return f'.TH "{plain(name.upper())}" "{section}" "{date}" "Ebbtide {plain(version)}" "Ebbtide"'


def joined(lines: list[str]) -> str:
    """A heading begins a paragraph by itself."""
    pairs = zip(lines, ["", *lines], strict=False)
    kept = [line for line, before in pairs if not (line == ".PP" and before.startswith((".SH", ".SS")))]
    return "\n".join([*kept, ""])


# --- section 1: the commands -------------------------------------------------------------------


def commands(command: click.Command, ctx: click.Context, line: str) -> Iterator[tuple[click.Context, str]]:
    """Every command with its line of help, groups before what is in them."""
    yield ctx, line
    if isinstance(command, click.Group):
        for name, sub in members(command, ctx):
            below = click.Context(sub, info_name=name, parent=ctx)
            yield from commands(sub, below, short(command, name, sub))


def members(group: click.Group, ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(ctx):
        sub = group.get_command(ctx, name)
        assert sub is not None
        if not sub.hidden:
            yield name, sub


def short(group: click.Group, name: str, sub: click.Command) -> str:
    """As the group's own list says it, without its full stop."""
    text = group.entries[name].text if isinstance(group, LazyGroup) else sub.get_short_help_str(limit=200)
    return text.removesuffix(".")


def command_page(ctx: click.Context, line: str, version: str) -> str:
    command, name = ctx.command, ctx.command_path.replace(" ", "-")
    lines = [title(name, 1, version), ".SH NAME", rf"{plain(name)} \- {plain(line)}", ".SH SYNOPSIS"]
    lines += [f"{bold(ctx.command_path)} {plain(' '.join(command.collect_usage_pieces(ctx)))}"]
    lines += [".SH DESCRIPTION", *paragraphs(cleandoc(command.help or ""))]
    options = [
        record
        for each in command.get_params(ctx)
        if isinstance(each, click.Option) and (record := each.get_help_record(ctx))
    ]
    if options:
        lines.append(".SH OPTIONS")
    for option, text in options:
        lines += [".TP", " ".join(bold(word) if word[0] == "-" else plain(word) for word in option.split())]
        lines.append(plain(text))
    if isinstance(command, click.Group):
        lines += [".SH COMMANDS", *members_of(command, ctx)]
    # Click's own form of them: a title in a paragraph that is not filled.
    for index, text in enumerate((command.epilog or "").strip("\n").split("\n\n")):
        if index == 0 and text.startswith(f"{AS_IT_IS}\nExamples:"):
            lines += [".SH EXAMPLES", ".nf", plain(cleandoc(text.partition("Examples:")[2])), ".fi"]
        elif text:
            lines += [*([".SH NOTES"] if index == 1 else []), *paragraphs(text)]
    above = [] if ctx.parent is None else [f"{bold(ctx.parent.command_path.replace(' ', '-'))}(1)"]
    pages = [f"{bold(each)}(5)" for each in CONFIGURATIONS]
    return joined([*lines, ".SH SEE ALSO", ",\n".join([*above, *pages])])


def members_of(group: click.Group, ctx: click.Context) -> list[str]:
    sections = group.sections if isinstance(group, LazyGroup) else {"": dict(members(group, ctx))}
    lines = []
    for heading, entries in sections.items():
        lines += [f".SS {plain(heading)}"] if heading else []
        for name, sub in members(group, ctx):
            if name in entries:
                referred = f"{ctx.command_path} {name}".replace(" ", "-")
                lines += [".TP", f"{bold(referred)}(1)", plain(short(group, name, sub))]
    return lines


def paragraphs(text: str) -> list[str]:
    lines = []
    for paragraph in text.split("\n\n"):
        kept = paragraph.startswith(AS_IT_IS)
        body = plain(paragraph.removeprefix(AS_IT_IS).strip("\n"))
        lines += [".PP", ".nf", body, ".fi"] if kept else [".PP", body]
    return lines


# --- section 5: the configuration references, which are Markdown -------------------------------


def reference_page(name: str, line: str, text: str, version: str) -> str:
    """Headings, paragraphs, lists and code: what these pages have. Raises KeyError for anything else."""
    lines = [title(name, 5, version), ".SH NAME", rf"{plain(name)} \- {plain(line)}", ".SH DESCRIPTION"]
    # Its title is the man page's, and who wrote it is of no use to who reads it here.
    _, _, body = text.split("\n\n", 2)
    for token in MarkdownIt().parse(body):
        if token.type == "heading_open":
            lines.append({"h2": ".SH", "h3": ".SS"}[token.tag])
        elif token.type == "inline" and lines[-1] in (".SH", ".SS"):
            lines[-1] += f" {inline(token)}"
        elif token.type == "inline":
            lines.append(inline(token))
        elif token.type == "fence":
            lines += [".PP", ".nf", plain(token.content.rstrip("\n")), ".fi"]
        else:
            macro = MACROS[token.type]
            # A list item's own paragraph stands beside its bullet.
            lines += [macro] if macro and not (macro == ".PP" and token.hidden) else []
    return joined([*lines, ".SH SEE ALSO", f"{bold('ebbtide')}(1), {bold('ebbtide-config')}(1)"])


MACROS = {
    "paragraph_open": ".PP",
    "list_item_open": r".IP \(bu 2",
    **dict.fromkeys(("heading_close", "paragraph_close", "list_item_close"), ""),
    **dict.fromkeys(("bullet_list_open", "bullet_list_close"), ""),
}


def inline(token: Token) -> str:
    """Code is bold, as options are; of a link its text is left, since its page is not installed."""
    shown = []
    for child in token.children or ():
        if child.type in ("text", "code_inline"):
            shown.append(bold(child.content) if child.type == "code_inline" else plain(child.content))
        else:
            shown.append(INLINE[child.type])
    return "".join(shown)


INLINE = {"em_open": r"\fI", "em_close": r"\fR", "link_open": "", "link_close": "", "softbreak": "\n"}


def pages(version: str) -> dict[str, str]:
    """Path to text."""
    made = {}
    for name, program in PROGRAMS.items():
        root = click.Context(program, info_name=name, **program.context_settings)
        line = cleandoc(program.help or "").partition("\n\n")[0].replace("\n", " ").removesuffix(".")
        for ctx, text in commands(program, root, line):
            made[f"man1/{ctx.command_path.replace(' ', '-')}.1"] = command_page(ctx, text, version)
    for name, (line, write) in CONFIGURATIONS.items():
        made[f"man5/{name}.5"] = reference_page(name, line, write(), version)
    return made


if __name__ == "__main__":
    folder, version = Path(sys.argv[1]), (sys.argv[2:] or [__version__])[0]
    for path, text in pages(version).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
