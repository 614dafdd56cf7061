"""The house rules, read off the source. Each says what to use instead.

The deterministic part must be a function: no clock, randomness, environment, set order, float, I/O, await, or
ordering by name. The rest of the rules keep the project readable.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]

#: The vocabulary's modules; the rest of ``events`` is the journal, which touches disks.
VOCABULARY = ("base", "model", "facts", "decisions", "marks", "record", "codec")
DETERMINISTIC = sorted(
    [
        *(ROOT / "actors" / "logic").glob("*.py"),
        *(ROOT / "actors" / "policy").glob("*.py"),
        *(ROOT / "events" / f"{name}.py" for name in VOCABULARY),
        *(ROOT / "replay").glob("*.py"),
    ]
)
PACKAGES = ("events", "actors", "replay", "ebbtide")
SOURCES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))

LINES_MAX = 250
FUNCTION_LINES_MAX = 40

#: Longer on purpose: what they list, or say in one breath, belongs on one page.
LONG_FILES = {
    "events/decisions.py": "the vocabulary of all actors, one class after the other",
    "events/facts.py": "the vocabulary of all edges, one class after the other",
    "events/storage.py": "one protocol and its one real implementation",
    "actors/logic/system.py": "the step and what moves with it: parting it would part one thought",
    "actors/logic/hook.py": "one pod's whole way down",
    "actors/logic/logind.py": "the node's whole view of logind",
    "actors/logic/episode.py": "one shutdown's whole course",
    "actors/logic/fallback.py": "must not lean on anybody else's helpers",
    "actors/edges/process/edge.py": "one effect a method, for six orders",
    "ebbtide/daemon.py": "the composition root: everything meets here once",
    "ebbtide/keeper.py": "imports nothing of ours, so that it stays small in memory",
}
LONG_FUNCTIONS = {
    "parse": "the one loop over every frame: a call a record costs a third of the reading speed"
}

#: Modules that would make a result depend on more than the facts, with what to use instead.
BANNED_IMPORTS = {
    "time": "the event's stamp",
    "datetime": "integer nanoseconds",
    "random": "nothing: decide by the facts",
    "secrets": "nothing: decide by the facts",
    "uuid": "`order_key`",
    "os": "a fact from an edge",
    "socket": "a fact from an edge",
    "pathlib": "a fact from an edge",
    "subprocess": "an order to an edge",
    "threading": "an order to an edge",
    "asyncio": "an order to an edge",
    "trio": "an order to an edge",
    "logging": "a decision: it is told from the journal",
}
BANNED_CALLS = {
    "open": "an order to an edge",
    "print": "a decision: it is told from the journal",
    "input": "a fact from an edge",
    "hash": "`hashlib`: `hash` changes with the seed",
    "id": "a key of your own: addresses change",
    "set": "`dict.fromkeys`, which keeps the order",
    "frozenset": "a tuple",
    "float": "integers, with the unit in the name",
}
NAME_FIELDS = ("name", "uid", "label", "namespace")


class Breach(NamedTuple):
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def breaches(file: Path) -> Iterator[Breach]:
    """What in this file breaks the rules of the deterministic part."""
    name = str(file.relative_to(ROOT))
    for node in ast.walk(ast.parse(file.read_text())):
        line = getattr(node, "lineno", 0)
        yield from (Breach(name, line, text) for text in judge(node))


def judge(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from _imports(node)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.Await | ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith):
        yield "await: order it from an edge instead"
    elif isinstance(node, ast.Set | ast.SetComp):
        yield "a set: use dict.fromkeys, which keeps the order"
    elif isinstance(node, ast.Constant) and isinstance(node.value, float):
        yield "a float: use integers, with the unit in the name"
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        yield "true division makes floats: use // and integers"


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    for module in modules:
        top = module.partition(".")[0]
        if top in BANNED_IMPORTS:
            yield f"import {module}: use {BANNED_IMPORTS[top]}"


def _calls(node: ast.Call) -> Iterator[str]:
    if not isinstance(node.func, ast.Name):
        return
    if node.func.id in BANNED_CALLS:
        yield f"{node.func.id}(): use {BANNED_CALLS[node.func.id]}"
    if node.func.id in ("sorted", "min", "max"):
        for keyword in node.keywords:
            fields = [n.attr for n in ast.walk(keyword.value) if isinstance(n, ast.Attribute)]
            if keyword.arg == "key" and any(field in NAME_FIELDS for field in fields):
                yield "ordering by name: ties go by inventory index"


@pytest.mark.parametrize("file", DETERMINISTIC, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_deterministic_part_is_a_function(file: Path) -> None:
    """No clock, randomness, environment, set order, float, I/O, await, or ordering by name."""
    assert [str(breach) for breach in breaches(file)] == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from os import environ",
        "async def f(): await g()",
        "x = {1, 2}",
        "y = set(z)",
        "half = 0.5",
        "half = a / b",
        "sorted(pods, key=lambda pod: pod.name)",
        "hash(uid)",
        "open(path)",
    ],
)
def test_the_rules_find_what_they_forbid(source: str) -> None:
    """A rule that finds nothing proves nothing."""
    assert [text for node in ast.walk(ast.parse(source)) for text in judge(node)]


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_module_says_what_it_is_for_and_stays_small(file: Path) -> None:
    """A docstring, at most as many lines as can be read at once, and functions that fit on a screen."""
    text = file.read_text()
    tree = ast.parse(text)
    name = str(file.relative_to(ROOT))
    assert not text.strip() or ast.get_docstring(tree), f"{name}: say in a docstring what it is for"
    lines = text.count("\n")
    assert lines <= LINES_MAX or name in LONG_FILES, f"{name} has {lines} lines: part it"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno
            assert length <= FUNCTION_LINES_MAX or node.name in LONG_FUNCTIONS, (
                f"{name}: {node.name} has {length} lines: part it"
            )


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_nothing_is_left_for_later(file: Path) -> None:
    """No stub and no note to oneself: what is not built is not there."""
    found = re.findall(r"NotImplementedError|\bTODO\b|\bFIXME\b|\bXXX\b", file.read_text())
    assert found == []


def test_tests_do_not_sleep_for_luck() -> None:
    """Waiting is an event, the autojump clock, or a poll: a pause inside a loop that looks again."""
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in sorted((ROOT / "tests").rglob("*.py"))
        if file.name != "program.py"  # a pod's program, which is to take its time
        for line in lucky_sleeps(ast.parse(file.read_text()))
    ]
    assert found == []


def lucky_sleeps(tree: ast.AST) -> Iterator[int]:
    """Lines of ``time.sleep`` outside of any loop."""
    looping = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.While | ast.For)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "time.sleep" and id(node) not in looping:
            yield node.lineno


def test_a_pause_outside_a_loop_is_found() -> None:
    """The rule tells a poll from a hope."""
    assert list(lucky_sleeps(ast.parse("time.sleep(1)"))) == [1]
    assert not list(lucky_sleeps(ast.parse("while not done():\n    time.sleep(0.01)")))
