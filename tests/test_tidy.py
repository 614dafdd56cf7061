"""The house rules for the source: limits of the deterministic part, and of any file.

Each rule names the alternative. Rules use the syntax tree, so comments are exempt.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.core_modules import FILES, ROOT

#: Files of ``replay/`` with outside contact, and why.
MEETS_THE_OUTSIDE = {
    "replay/journal_library.py": "the library's front door: paths become the locations of a journal"
}

#: The deterministic part: these files make a journal a function of its facts.
DETERMINISTIC = FILES + sorted(
    path
    for pattern in (
        *(f"events/{name}.py" for name in ("base", "model", "facts", "decisions", "codec")),
        "events/record/*.py",
        "actors/simulated_logind.py",
        "replay/**/*.py",
        *(f"otel/{name}.py" for name in ("attributes", "projection", "span")),
        "otel/*trace.py",
    )
    for path in ROOT.glob(pattern)
    if str(path.relative_to(ROOT)) not in MEETS_THE_OUTSIDE
)

PACKAGES = ("actors", "events", "replay", "otel", "ebbtide")
SOURCES = sorted(path for package in PACKAGES for path in ROOT.glob(f"{package}/**/*.py"))


class Rule(NamedTuple):
    """``finds`` yields the offending nodes of a tree."""

    name: str
    instead: str
    finds: Callable[[ast.AST], Iterator[ast.AST]]


# --- rules of the deterministic part

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


def _reads_a_bound(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            if "ebbtide.events.bounds" in names:
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
    """An order whose key uses a name: names are for people."""
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
    Rule("no bound that a test widens", "a constant: a journal is a function of its facts", _reads_a_bound),
    Rule("no order by name", "the order of the inventory", _by_name),
)


def _where(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


@pytest.mark.parametrize("path", DETERMINISTIC, ids=lambda path: str(path.relative_to(ROOT)))
def test_deterministic_part(path: Path) -> None:
    """A finding has the place and the alternative."""
    tree = ast.parse(path.read_text())
    for rule in RULES:
        found = [_where(path, node) for node in rule.finds(tree)]
        assert not found, f"{rule.name}: use {rule.instead} in {', '.join(found)}"


def test_rules_find_what_they_forbid() -> None:
    offences = {
        _imports: "from time import monotonic",
        _calls: "x = hash('a')",
        _waits: "async def f(): await g()",
        _sets: "x = {1, 2}",
        _floats: "x = 1 / 2",
        _reads_a_bound: "from ebbtide.events import bounds",
        _by_name: "sorted(pods, key=lambda pod: pod.name)",
    }
    for rule in RULES:
        assert list(rule.finds(ast.parse(offences[rule.finds]))), rule.name


def test_the_deterministic_part_is_there() -> None:
    """The patterns above match their files."""
    named = {str(path.relative_to(ROOT)) for path in DETERMINISTIC}
    assert {"actors/system.py", "actors/policy/planning.py", "events/facts.py", "replay/replayer.py"} <= named


# --- rules of every file


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file(path: Path) -> None:
    """A file's docstring states its problem; public functions have types."""
    text, name = path.read_text(), str(path.relative_to(ROOT))
    tree = ast.parse(text)
    assert not text.strip() or ast.get_docstring(tree), f"{name}: say in a docstring what it is for"
    for function in _functions(tree):
        if not function.name.startswith("_"):
            _check_types(name, function)


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _check_types(name: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    bare = [each.arg for each in arguments if each.annotation is None and each.arg not in ("self", "cls")]
    assert not bare, f"{name}:{function.name}: annotate {', '.join(bare)}"
    assert function.returns is not None, f"{name}:{function.name}: annotate what it returns"


def test_exceptions_are_needed() -> None:
    assert all((ROOT / name).exists() for name in MEETS_THE_OUTSIDE)


# --- units

#: A unit after a value in an f-string or a template; bytes are only counted.
UNIT = r" ?(ns|us|µs|ms|s|sec|seconds|min|h|d|days|kB|KiB|MB|MiB|GiB)(?![A-Za-z0-9_'])"
TEMPLATE = re.compile(r"\{[a-z_.]*(:[^{}]*)?\}" + UNIT)

#: Hand-written units, and why. Other code uses `events.units`.
UNITS_BY_HAND = {
    "actors/hook.py": "reasons that are on record: a replay decides the same words",
    "actors/outage.py": "the same",
    "actors/simulated_logind.py": "the log of the modelled world, which checks read back",
    "replay/sim/edges.py": "the same",
    "ebbtide/config/fields.py": "Go's durations, as the configuration has them",
    "replay/advise.py": "a configuration's text, as one would write it",
    "ebbtide/supervisor.py": "runs as a file: it imports nothing of the project, and weighs little",
    "events/units.py": "here it is",
}


def _units_by_hand(tree: ast.AST) -> Iterator[ast.expr]:
    """Values with a unit in a text, and templates of such texts."""
    parts = [node.values for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    inside = {part for values in parts for part in values}
    for values in parts:
        for value, text in pairwise(values):
            written = isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant)
            if written and re.match(UNIT, str(text.value)):
                yield value
    for node in ast.walk(tree):
        template = isinstance(node, ast.Constant) and node not in inside
        if template and TEMPLATE.search(str(node.value)):
            yield node


def test_units_are_written_in_one_place() -> None:
    """``3 s``, not ``3s``, ``3.0 s`` or ``3000ms``: one module formats all."""
    found = {
        str(path.relative_to(ROOT)): [node.lineno for node in _units_by_hand(ast.parse(path.read_text()))]
        for path in SOURCES
    }
    by_hand = {name: lines for name, lines in found.items() if lines}
    others = {name: lines for name, lines in by_hand.items() if name not in UNITS_BY_HAND}
    assert not others, f"use ebbtide.events.units in {others}"
    assert set(UNITS_BY_HAND) == set(by_hand), "take off the list what writes no unit any more"


@pytest.mark.parametrize(
    ("offence", "finds"),
    [
        ("f'{x:.1f} s'", True),
        ("f'{x}s'", True),
        ("f'{x // 1000} ms left'", True),
        ("'after {took} s'.format(took=1)", True),
        ("f'{size // 1024} KiB'", True),
        ("f'{x} pods'", False),
        ("f'{x} so far'", False),
    ],
)
def test_a_unit_by_hand_is_found(offence: str, finds: bool) -> None:
    """Not in a word that begins like a unit."""
    assert bool(list(_units_by_hand(ast.parse(offence)))) == finds


# --- names

#: Words without meaning outside this project, with the usual term. As parts of a name: ``_tell_tale`` and
#: ``TaleTeller`` both match.
BANNED_WORDS = {
    "agree": "compare, check",
    "arrivals": "added pods, watch",
    "book": "journal",
    "care": "the pod, or what is done to it: fallback_pod, stop",
    "claim": "lock, take_over",
    "course": "progress",
    "courier": "sender",
    "desk": "manager, client",
    "errand": "export run",
    "halves": "what the two parts are",
    "hope": "estimate, saved",
    "insisting": "retry",
    "keeper": "supervisor",
    "keeping": "cache, storage",
    "lanes": "priorities, queues",
    "lead": "replace, run",
    "let_go": "release",
    "light": "lazily loaded",
    "manner": "behaviour, plan",
    "means": "termination_mode",
    "places": "paths, locations",
    "rings": "pipes, output buffers",
    "roll": "checklist",
    "sifter": "filter",
    "sight": "snapshot, observed",
    "stage": "phase, step",
    "standing": "status, state",
    "stock": "cache, inventory",
    "surroundings": "host, environment",
    "sweep": "scan",
    "tale": "record",
    "tape": "recorded shutdown",
    "told": "record, message",
    "trail": "log",
    "unsaid": "unknown, unreported",
    "voice": "log, console",
    "way": "path, how it is done",
    "words": "text, messages",
}

#: Names on the wire cannot change.
NAMES_ON_THE_WIRE = ("MeansChosen",)


def _named(path: Path) -> Iterator[str]:
    yield path.stem
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def _banned_in(name: str) -> list[str]:
    spelled = f"_{re.sub(r'(?<=[a-z0-9])(?=[A-Z])', '_', name).lower().strip('_')}_"
    return [word for word in BANNED_WORDS if f"_{word}_" in spelled]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_are_the_fields_own(path: Path) -> None:
    """Use the terms of Kubernetes, systemd or OpenTelemetry."""
    found = {
        name: [BANNED_WORDS[word] for word in words]
        for name in _named(path)
        if name not in NAMES_ON_THE_WIRE and (words := _banned_in(name))
    }
    assert not found, f"{path.relative_to(ROOT)}: call it otherwise, as the list says: {found}"


def test_a_banned_word_is_found_in_any_spelling() -> None:
    """As a part of a name in any case, not inside another word."""
    assert _banned_in("_tell_tale") == _banned_in("TaleTeller") == ["tale"]
    assert _banned_in("let_go_of") == ["let_go"]
    assert not _banned_in("always_cleaned")


# --- the gate

Function = ast.FunctionDef | ast.AsyncFunctionDef
TESTS = sorted((ROOT / "tests").glob("**/*.py"))
#: These marks exclude tests from the default suite; ``gate`` includes them again.
OUTSIDE = {"root", "machine", "backend", "browser", "spark", "node", "proof"}
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "time", "current_time"}
DEADLINES = {"fail_after", "move_on_after", "fail_at", "move_on_at"}
#: Time-out keywords, and calls with a positional time-out.
TIME_OUTS = {"timeout", "timeout_seconds", "relative_deadline"}
WAITS = {"wait", "join", "communicate", "settimeout", "alarm"}
MOCK_CLOCKS = {"autojump_clock", "mock_clock"}

#: Gate files with a clock or a deadline, and why slow machines do not fail them.
READS_A_CLOCK = {
    "tests/beds/logind.py": "asks logind for a shutdown at a moment of the wall clock",
    "tests/beds/machine.py": "a command in the machine that does not answer is begun anew",
    "tests/waiting.py": "the watchdog itself",
    "tests/actors/edges/cri/test_client.py": "a pause between two polls",
    "tests/actors/edges/kubernetes/write_fake.py": "the mock clock of the tests that use it",
    "tests/otel/delivery/test_exporter_worlds.py": "on the mock clock of a world",
    "tests/actors/runner_parts.py": "Trio's mock clock, of the tests that use it",
    "tests/outage/test_brake.py": "its cluster, on the mock clock of each test",
    "tests/long_run.py": "how long a person lets seeds run",
    "tests/world/clock.py": "Trio's mock clock, on which each world runs",
    "tests/world/daemon.py": "Trio's mock clock, on which each world runs",
    "tests/world/edge.py": "Trio's mock clock, on which each world runs",
    "tests/world/world.py": "Trio's mock clock, on which each world runs",
    "tests/outage_bed/runs.py": "figures of a run; none is asserted",
    "tests/outage_bed/scenarios.py": "a time in which nothing may happen; proofs but for `plain`",
    "tests/outage_bed/stage.py": "figures of a run; none is asserted",
    "tests/node/bare.py": "StopContainer's field `timeout`",
    "tests/node/bringing_up.py": "figures for a person",
    "tests/node/inside.py": "when a unit was started, as the service manager says it",
    "tests/node/shutdowns.py": "measures a shutdown for the side-by-side proof",
}


def _marks(nodes: list[ast.expr]) -> set[str]:
    """Without those of single parameters: the gate runs the other ones."""
    every = [node for each in nodes for node in ast.walk(each)]
    ones = [node for node in every if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.param"]
    of_one = {node for each in ones for node in ast.walk(each)}
    found = [node for node in every if isinstance(node, ast.Attribute) and node not in of_one]
    return {node.attr for node in found if ast.unparse(node.value) == "pytest.mark"}


def _in_gate(marks: set[str]) -> bool:
    return "gate" in marks or not marks & OUTSIDE


def _gate_functions(tree: ast.Module) -> list[Function]:
    """A file's functions that the gate runs on the real clock: tests, fixtures, helpers.

    If every test takes a mock clock, the helpers do too.
    """
    assigned = [each for each in tree.body if isinstance(each, ast.Assign)]
    file_marks = _marks([each.value for each in assigned if ast.unparse(each.targets[0]) == "pytestmark"])
    functions = list(_functions(tree))
    tests = [each for each in functions if each.name.startswith("test_")]
    in_gate = [each for each in tests if _in_gate(file_marks | _marks(each.decorator_list))]
    if tests and all(_arguments(test) & MOCK_CLOCKS for test in in_gate):
        return []
    run = [each for each in functions if each in in_gate or each not in tests]
    return [each for each in run if not _arguments(each) & MOCK_CLOCKS]


def _arguments(function: Function) -> set[str]:
    return {each.arg for each in (*function.args.args, *function.args.kwonlyargs)}


def _bounds(function: Function) -> Iterator[ast.expr]:
    """Real clock reads, deadlines other than the watchdog's, and sleeps of a test."""
    arguments = function.args.posonlyargs + function.args.args
    defaults = [*zip(reversed(arguments), reversed(function.args.defaults), strict=False)]
    defaults += [*zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)]
    patient = {each.arg for each, value in defaults if value and ast.unparse(value) == "WATCHDOG_SECONDS"}
    for node in ast.walk(function):
        # Also a clock that is not called here, but gets another name.
        if isinstance(node, ast.Attribute) and _is_clock(node):
            yield node
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        if name == "sleep" and function.name.startswith("test_") and _is_number(node.args[0]):
            yield node
        times = [word.value for word in node.keywords if word.arg in TIME_OUTS]
        times += node.args[:1] if name in DEADLINES else []
        times += [word.value for word in node.keywords if word.arg == "seconds" and name in ("until", "ask")]
        times += [each for each in node.args if name in WAITS and _is_seconds(each)]
        if any(ast.unparse(each) not in {"WATCHDOG_SECONDS", "None", *patient} for each in times):
            yield node


def _is_clock(node: ast.Attribute) -> bool:
    owners = ("time", "trio", "trio.lowlevel.current_clock()")
    return node.attr.removesuffix("_ns") in CLOCKS and ast.unparse(node.value) in owners


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _is_seconds(node: ast.expr) -> bool:
    return _is_number(node) or "SECONDS" in ast.unparse(node)


def _hidden_clocks(tree: ast.Module) -> Iterator[ast.stmt]:
    """Renaming imports that would hide a clock from `_bounds`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "trio"):
            if any(
                each.name.removesuffix("_ns") in CLOCKS | DEADLINES | {"sleep", "*"} for each in node.names
            ):
                yield node
        elif isinstance(node, ast.Import) and any(
            each.name in ("time", "trio") and each.asname for each in node.names
        ):
            yield node


def _imported_tests(tree: ast.Module) -> Iterator[Path]:
    """The files below ``tests`` that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tests":
            folder = ROOT / str(node.module).replace(".", "/")
            candidates = [folder.with_suffix(".py"), *(folder / f"{each.name}.py" for each in node.names)]
            yield from (each for each in candidates if each.exists())


def _gate_files() -> dict[Path, tuple[ast.Module, list[Function]]]:
    """Gate test files, their conftests and imports, with the functions that the gate runs."""
    trees = {path: ast.parse(path.read_text()) for path in TESTS}
    files = {path: (tree, _gate_functions(tree)) for path, tree in trees.items()}
    waiting = [path for path, (_, run) in files.items() if path.name.startswith("test_") and run]
    folders = {folder for path in waiting for folder in path.parents}
    waiting += [path for path in files if path.name == "conftest.py" and path.parent in folders]
    found: dict[Path, tuple[ast.Module, list[Function]]] = {}
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = files[path]
            waiting += _imported_tests(trees[path])
    return found


def test_no_gate_test_depends_on_the_speed_of_the_machine() -> None:
    """The gate asserts order, content and counts. Benchmarks measure speed (docs/testing.md)."""
    found: dict[str, list[int]] = {}
    for path, (tree, run) in sorted(_gate_files().items()):
        lines = {node.lineno for function in run for node in _bounds(function)}
        lines |= {node.lineno for node in _hidden_clocks(tree)}
        if lines:
            found[str(path.relative_to(ROOT))] = sorted(lines)
    others = {name: lines for name, lines in found.items() if name not in READS_A_CLOCK}
    assert not others, f"wait with tests/waiting.py, use the mock clock, or mark it proof: {others}"
    assert set(READS_A_CLOCK) <= set(found), "take off the list what reads no clock any more"


def test_a_bound_on_the_real_clock_is_found() -> None:
    """Clocks, deadlines and time-outs, also in helpers; a test's sleeps. The mock clock is exempt."""
    text = """
def helper(): return time.monotonic()
async def test_one():
    with trio.fail_after(5): pass
    run(timeout=3)
async def test_two(autojump_clock):
    with trio.fail_after(5): pass
@pytest.mark.proof
def test_three(): run(timeout=3)
def test_four(): run(timeout=WATCHDOG_SECONDS)
def test_five(): process.wait(5)
def test_six(): ", ".join(names)
def test_seven(): now = time.monotonic
def test_eight(): time.sleep(1)
@pytest.mark.parametrize("each", [1, pytest.param(2, marks=pytest.mark.proof)])
def test_nine(each): run(timeout=3)
from time import perf_counter
import time as clock
from trio import *
"""
    tree = ast.parse(text)
    assert sorted(each.lineno for f in _gate_functions(tree) for each in _bounds(f)) == [
        2,
        4,
        5,
        11,
        13,
        14,
        16,
    ]
    assert [each.lineno for each in _hidden_clocks(tree)] == [17, 18, 19]


# --- prose

#: Phrases that hide a sentence's subject. Name the component instead.
HIDING = {
    "a clause as the noun": r"\b(?:that of|what is|those that|of which|of whom)\b",
    "an impersonal passive": r"\b(?:is|are|was|be) (?:said|told|given|known)\b",
    "no component named": r"\b(?:nobody|somebody|nothing|whoever)\b",
}
HIDING_PER_1000_WORDS_MAX = 0.6


@pytest.mark.parametrize("pattern", HIDING.values(), ids=HIDING)
def test_the_pages_name_their_subjects(pattern: str) -> None:
    """For readers whose second language is English."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    texts = {page.name: page.read_text() for page in pages if page.name != "CHANGELOG.md"}
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, text in sorted(texts.items())
        for number, line in enumerate(text.splitlines(), 1)
        for _ in re.finditer(pattern, line.lower())
    ]
    words = sum(len(text.split()) for text in texts.values())
    assert len(found) <= HIDING_PER_1000_WORDS_MAX * words / 1000, "\n".join(found)


# --- layers


def test_layers() -> None:
    """Imports point downwards; no package imports ebbtide (see the contracts in pyproject)."""
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as c; c()",
        "--no-cache",
    ]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
