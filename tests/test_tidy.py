"""The house rules as tests over the source: what the deterministic part may not do, and what a file may be.

Each rule says what to use instead. The rules are about the syntax tree, so a name in a comment is free.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent

#: Files of ``replay/`` that meet the outside, and why.
MEETS_THE_OUTSIDE = {
    "replay/journal.py": "the library's front door: paths become the locations of a journal",
}

#: Files of the deterministic part: a journal is a function of its facts because of these.
DETERMINISTIC = sorted(
    path
    for pattern in (
        "actors/logic/**/*.py",
        "actors/policy/**/*.py",
        *(
            f"events/{name}.py"
            for name in ("base", "model", "facts", "decisions", "marks", "record", "codec")
        ),
        "replay/**/*.py",
        *(f"otel/{name}.py" for name in ("attributes", "ids", "projection", "span")),
        "otel/traces/**/*.py",
    )
    for path in ROOT.glob(pattern)
    if str(path.relative_to(ROOT)) not in MEETS_THE_OUTSIDE
)

PACKAGES = ("actors", "events", "replay", "otel", "ebbtide")
SOURCES = sorted(path for package in PACKAGES for path in ROOT.glob(f"{package}/**/*.py"))

FILE_LINES_MAX = 250
FUNCTION_LINES_MAX = 40

#: File to the reason why it may be longer.
LONG_FILES = {
    "events/decisions.py": "the vocabulary of decisions is one list to read, without any logic",
    "events/facts.py": "the vocabulary of facts is one list to read, without any logic",
    "events/storage.py": "one protocol and its one real implementation, read side by side",
    "actors/edges/process/edge.py": "six orders, one effect each; what they do is elsewhere",
    "ebbtide/keeper.py": "runs by itself as one file, without any package, so that it stays small in memory",
}

#: ``file:function`` to the reason why it may be longer.
LONG_FUNCTIONS: dict[str, str] = {
    "events/frames.py:parse": "one loop over all frames: a call a record costs a third of the reading speed",
}


class Rule(NamedTuple):
    """``finds`` yields the offending nodes of a tree."""

    name: str
    instead: str
    finds: Callable[[ast.AST], Iterator[ast.AST]]


# --- rules of the deterministic part -----------------------------------------------------------

BANNED_MODULES = {
    "time": "the stamp of the step: `now` in a handler",
    "datetime": "integer nanoseconds",
    "random": "nothing: ties go by inventory index",
    "secrets": "nothing: names derive from order keys",
    "uuid": "`order_key`",
    "os": "a fact that an edge reports",
    "sys": "a fact that an edge reports",
    "pathlib": "a fact that an edge reports",
    "socket": "an order that an edge carries out",
    "subprocess": "an order that an edge carries out",
    "threading": "a step: it runs to quiescence by itself",
    "asyncio": "an order and its outcome",
    "trio": "an order and its outcome",
    "logging": "a decision: what is worth a line is worth a record",
}

BANNED_CALLS = {
    "open": "a fact or an order",
    "print": "a decision",
    "input": "a fact",
    "getenv": "a fact",
    "hash": "a value of the events: Python's hash differs in each process",
    "id": "a value of the events: an address differs in each process",
    "set": "a dict or a tuple: a set has no order of its own",
    "frozenset": "a dict or a tuple: a set has no order of its own",
    "float": "integer nanoseconds",
}

ORDERED_BY = ("sorted", "min", "max", "sort")
NAMES = ("name", "uid", "label", "namespace")


def _imports(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        if any(name.split(".")[0] in BANNED_MODULES for name in names):
            yield node


def _calls(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BANNED_CALLS:
            yield node


def _waits(tree: ast.AST) -> Iterator[ast.AST]:
    kinds = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    return (node for node in ast.walk(tree) if isinstance(node, kinds))


def _sets(tree: ast.AST) -> Iterator[ast.AST]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Set | ast.SetComp))


def _floats(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            yield node
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div):
            yield node
        if isinstance(node, ast.Name) and node.id == "float":
            yield node


def _by_name(tree: ast.AST) -> Iterator[ast.AST]:
    """An order whose key looks at a name: names are for people."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        keys = [word.value for word in node.keywords if word.arg == "key"]
        if called in ORDERED_BY and any(_reads_a_name(key) for key in keys):
            yield node


def _reads_a_name(key: ast.expr) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr in NAMES for node in ast.walk(key))


RULES = (
    Rule("no module that knows a clock, chance or the machine", str(BANNED_MODULES), _imports),
    Rule("no built-in that reads the outside or Python's hash", str(BANNED_CALLS), _calls),
    Rule("no waiting", "an order, and a handler for its outcome", _waits),
    Rule("no sets", "a dict or a tuple: iterating over a set follows the hash seed", _sets),
    Rule("no floats", "integers: nanoseconds, //, divmod", _floats),
    Rule("no order by name", "the order of the inventory", _by_name),
)


def _where(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_deterministic_part(rule: Rule) -> None:
    """The deterministic part keeps each house rule; a finding names the place and what to use instead."""
    found = [_where(path, node) for path in DETERMINISTIC for node in rule.finds(ast.parse(path.read_text()))]
    assert not found, f"{rule.name}: use {rule.instead} in {', '.join(found)}"


def test_rules_find_what_they_forbid() -> None:
    """Each rule bites: a line that breaks it is found."""
    offences = {
        _imports: "from time import monotonic",
        _calls: "x = hash('a')",
        _waits: "async def f(): await g()",
        _sets: "x = {1, 2}",
        _floats: "x = 1 / 2",
        _by_name: "sorted(pods, key=lambda pod: pod.name)",
    }
    for rule in RULES:
        assert list(rule.finds(ast.parse(offences[rule.finds]))), rule.name


def test_the_deterministic_part_is_there() -> None:
    """The patterns above match the files that they mean."""
    named = {str(path.relative_to(ROOT)) for path in DETERMINISTIC}
    assert {"actors/logic/system.py", "actors/policy/plan.py", "events/facts.py", "replay/engine.py"} <= named


# --- rules of every file -----------------------------------------------------------------------


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file(path: Path) -> None:
    """A file has a docstring that states its problem, and is short enough to read at a sitting."""
    text, name = path.read_text(), str(path.relative_to(ROOT))
    assert not text.strip() or ast.get_docstring(ast.parse(text)), (
        f"{name}: say in a docstring what it is for"
    )
    lines = text.count("\n")
    assert lines <= FILE_LINES_MAX or name in LONG_FILES, (
        f"{name} has {lines} lines: split it by what it answers"
    )


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_functions(path: Path) -> None:
    """Functions are short; those that others call say their types."""
    name = str(path.relative_to(ROOT))
    for function in _functions(ast.parse(path.read_text())):
        length = _length(function)
        known = f"{name}:{function.name}" in LONG_FUNCTIONS
        assert length <= FUNCTION_LINES_MAX or known, f"{name}:{function.name} has {length} lines: split it"
        if not function.name.startswith("_"):
            _check_types(name, function)


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines without the docstring."""
    documented = ast.get_docstring(function) is not None
    first = function.body[1].lineno if documented and len(function.body) > 1 else function.body[0].lineno
    return (function.end_lineno or first) - first + 1


def _check_types(name: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    bare = [each.arg for each in arguments if each.annotation is None and each.arg not in ("self", "cls")]
    assert not bare, f"{name}:{function.name}: annotate {', '.join(bare)}"
    assert function.returns is not None, f"{name}:{function.name}: annotate what it returns"


def test_exceptions_are_needed() -> None:
    """An exception that no longer applies is taken off the list."""
    assert all((ROOT / name).exists() for name in MEETS_THE_OUTSIDE)
    for name in LONG_FILES:
        assert (ROOT / name).read_text().count("\n") > FILE_LINES_MAX, f"{name} is short enough now"


# --- layers ------------------------------------------------------------------------------------


def test_layers() -> None:
    """Packages depend downwards only; nothing imports ebbtide (the contracts stand in pyproject)."""
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as c; c()",
        "--no-cache",
    ]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert checked.returncode == 0, checked.stdout + checked.stderr
