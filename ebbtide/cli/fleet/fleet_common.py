"""What the fleet's verbs share: their options, the plan, and an engine's answers with progress on a terminal.

Nothing of the fleet is loaded before a verb runs: it needs packages that a help can do without.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from ebbtide.cli.common.guard import CORRUPT, DIVERGED, DONE, INCOMPATIBLE, TORN, WRONG, Refused
from ebbtide.events.messages import plural
from ebbtide.extras import require

if TYPE_CHECKING:
    from collections import Counter

    import pyarrow as pa

    from ebbtide.fleet import HasBytesT, Ref

Answer = TypeVar("Answer")

#: More are a slip of the keyboard: each takes some 100 MiB.
JOBS_MAX = 256

journals_option = click.option(
    "--journals",
    "url",
    required=True,
    metavar="URL",
    help="Where they lie, at any depth: a folder, or s3://BUCKET/PREFIX, gs://…, az://….",
)

jobs_option = click.option(
    "--jobs",
    type=click.IntRange(1, JOBS_MAX),
    metavar="N",
    help="Processes; the result is the same for any number.  [default: one a processor]",
)


class Engine(NamedTuple):
    """What asks the journals: this machine, by so many processes (None: one a processor), or Spark."""

    name: str = "local"
    jobs: int | None = None


def engine_options(command: Callable[..., int]) -> Callable[..., int]:
    """``--jobs`` and ``--engine``, as one ``engine``."""

    @jobs_option
    @click.option(
        "--engine",
        type=click.Choice(["local", "spark"]),
        default="local",
        show_default=True,
        help="Who asks them: this machine, or the executors of Apache Spark; the result is the same.",
    )
    @wraps(command)
    def with_engine(*arguments: Any, engine: str, jobs: int | None, **more: Any) -> int:
        if engine == "spark" and jobs:
            raise Refused("--jobs counts processes of this machine: leave it out, and set spark.cores.max")
        return command(*arguments, engine=Engine(engine, jobs), **more)

    return with_engine


#: Exit codes of what became of a journal, or of a shutdown that was asked about.
CODES = {
    "intact": DONE,
    "identical": DONE,
    "not-asked": DONE,
    "unread": WRONG,
    "torn": TORN,
    "diverged": DIVERGED,
    "corrupt": CORRUPT,
    "incompatible": INCOMPATIBLE,
}


def plan(url: str, verb: str, engine: Engine) -> list[Ref]:
    """What lies there. Raises Refused, PackagesMissing."""
    if engine.name == "spark":
        require("spark", f"fleet {verb} --engine spark (on Java 17)")
    require("fleet", f"fleet {verb}")
    from ebbtide.fleet import BadUrl, StoreFailed, journals

    try:
        refs = journals(url)
    except (BadUrl, StoreFailed) as error:
        raise Refused(str(error)) from None
    if not refs:
        raise Refused(
            f"no journal below {url}: name the folder, or the prefix, that holds the nodes' .ebj files"
        )
    return refs


def answers(
    work: Callable[[Sequence[HasBytesT]], Answer], refs: Sequence[HasBytesT], engine: Engine
) -> Iterator[Answer]:
    """What ``work`` says of each bin, in order. Raises Refused."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ebbtide.fleet.pool import WorkerLost, over_bins, processors

    # In a pipe nobody waits for it.
    columns = (TextColumn("journals"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    to = Console(stderr=True)
    with ExitStack() as stack:
        try:
            if engine.name == "spark":
                from ebbtide.fleet.spark_pool import context, over_spark

                found = over_spark(context(), work, refs)
            else:
                found = over_bins(work, refs, min(engine.jobs or processors(), len(refs)))
            progress = Progress(*columns, console=to, transient=True, disable=not sys.stderr.isatty())
            task = stack.enter_context(progress).add_task("", total=len(refs))
            for size, answer in found:
                yield answer
                progress.advance(task, size)
        except WorkerLost as error:
            raise Refused(str(error)) from None


def rows(verb: str, refs: Sequence[Ref], engine: Engine, **asked: Any) -> Iterator[dict[str, Any]]:
    """The rows of one of `ebbtide.fleet.VERBS`, journal by journal. Raises Refused."""
    from functools import partial

    from ebbtide.fleet.pool import verb_batches

    for batches in answers(partial(verb_batches, verb, asked), refs, engine):
        for batch in batches:
            yield from batch.to_pylist()


def journals_text(count: int) -> str:
    return plural(count, "journal")


def not_whole(journals: pa.RecordBatch, codes: Counter[int]) -> list[str]:
    """A line a journal that is not wholly in the tables, by its table. Counts the code of each journal."""
    from ebbtide.fleet import not_whole_text

    found = journals.to_pylist()
    codes.update(row["exit_code"] for row in found)
    return [text for row in found if (text := not_whole_text(row))]


# --- node pools --------------------------------------------------------------------------------

#: As kubectl prints a label that is not there.
NO_LABEL = "<none>"
#: Signs that make a name a pattern.
_PATTERN_SIGNS = "*?["


class Pools:
    """Which node is of which pool, as somebody has told."""

    def __init__(self, lines: Iterable[tuple[str, str]]) -> None:
        self._names: dict[str, str] = {}
        self._patterns: list[tuple[str, str]] = []
        for node, pool in lines:
            if any(sign in node for sign in _PATTERN_SIGNS):
                self._patterns.append((node, pool))
            else:
                self._names.setdefault(node, pool)

    @classmethod
    def of(cls, path: Path) -> Pools:
        """A file's. Raises Refused, OSError."""
        found, known = list[tuple[str, str]](), dict[str, str]()
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise Refused(f"{path} is no text: a line of --pools is a node's name and its pool") from None
        for number, line in enumerate(text.splitlines(), 1):
            words = line.partition("#")[0].split()
            if words and len(words) != 2:
                raise Refused(f"{path}:{number}: a line of --pools is a node's name and its pool: {line!r}")
            if not words or words[1] == NO_LABEL:
                continue
            if known.setdefault(words[0], words[1]) != words[1]:
                raise Refused(f"{path}:{number}: {words[0]} is of pool {known[words[0]]} by a line before it")
            found.append((words[0], words[1]))
        return cls(found)

    def pool(self, node: str) -> str | None:
        """None: nobody has told."""
        if node in self._names:
            return self._names[node]
        return next((pool for pattern, pool in self._patterns if fnmatchcase(node, pattern)), None)


#: Of a verb's help.
POOLS_EPILOG = """
A journal knows its node and no node pool. A line of --pools is a node's name and its pool, as 'kubectl get
nodes --no-headers -o custom-columns=:.metadata.name,:.metadata.labels.POOL-LABEL' prints them; a name may
be a pattern (batch-*), for nodes that are gone. The first pattern that fits counts, and a name before all.
"""


def pools_option(command: Callable[..., int]) -> Callable[..., int]:
    """``--pools``, as ``pools``; None: nobody has told of any."""

    @click.option(
        "--pools",
        "pools_file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Which node is of which pool: a line a node, its name and its pool.",
    )
    @wraps(command)
    def with_pools(*arguments: Any, pools_file: Path | None, **more: Any) -> int:
        pools = None if pools_file is None else Pools.of(pools_file)
        return command(*arguments, pools=pools, **more)

    return with_pools
