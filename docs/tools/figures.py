"""The size and shape of the source, package by package.

    python docs/tools/figures.py                # this checkout
    python docs/tools/figures.py --tree OTHER   # the same of another one, to lay beside it
    python docs/tools/figures.py --once events  # which private functions of a folder are called exactly once

Generated code is left out. A function counts as called once where its file has one call of its name and no
other use of it: a handler in a table is used, not called.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("events", "actors", "replay", "otel", "ebbtide")
GENERATED = "_pb2"


class Source(NamedTuple):
    """One file. ``once``: its private functions that are called exactly once, with line and length."""

    path: Path
    lines: int
    comment_lines: int
    functions: int
    once: list[tuple[str, int, int]]


def sources(folder: Path) -> Iterator[Source]:
    for path in sorted(folder.rglob("*.py")):
        if GENERATED not in path.name and not any(parent.is_symlink() for parent in path.parents):
            yield measured(path)


def measured(path: Path) -> Source:
    text = path.read_text()
    nodes = list(ast.walk(ast.parse(text)))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    names = Counter(name for node in nodes if (name := _name(node)))
    calls = Counter(name for node in nodes if isinstance(node, ast.Call) and (name := _name(node.func)))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return Source(
        path,
        text.count("\n"),
        len({token.start[0] for token in tokens if token.type == tokenize.COMMENT}),
        len(functions),
        [
            (each.name, each.lineno, (each.end_lineno or each.lineno) - each.lineno + 1)
            for each in functions
            if each.name.startswith("_") and not each.name.startswith("__")
            if names[each.name] == calls[each.name] == 1
        ],
    )


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def row(name: str, found: list[Source]) -> str:
    lengths = sorted(each.lines for each in found) or [0]
    lines, functions = sum(lengths), sum(each.functions for each in found)
    once = sum(len(each.once) for each in found)
    comments = sum(each.comment_lines for each in found)
    folders = Counter(each.path.parent for each in found if each.path.name != "__init__.py")
    cells = (
        name,
        len(found),
        lines,
        f"{statistics.median(lengths):.0f} / {lengths[len(lengths) * 9 // 10]} / {lengths[-1]}",
        max(folders.values(), default=0),
        f"{once} ({once / max(1, functions):.0%})",
        f"{comments / max(1, lines):.1%}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--tree", type=Path, default=ROOT, help="a checkout (default: this one)")
    options.add_argument(
        "--once", metavar="FOLDER", help="list a folder's private functions that are called once"
    )
    asked = options.parse_args()
    if asked.once:
        for each in sources(asked.tree / asked.once):
            for name, line, length in each.once:
                print(f"{each.path.relative_to(asked.tree)}:{line} {name} ({length} lines)")
        return
    by_package = {name: list(sources(asked.tree / name)) for name in PACKAGES}
    print("| package | files | lines | median / p90 / longest | largest folder | called once | comments |")
    print("|---|---|---|---|---|---|---|")
    for name, found in by_package.items():
        print(row(name, found))
    print(row("production", [each for found in by_package.values() for each in found]))
    print(row("tests", list(sources(asked.tree / "tests"))))


if __name__ == "__main__":
    main()
