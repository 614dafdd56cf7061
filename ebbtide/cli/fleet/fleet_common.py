"""Shared by the fleet's verbs: options, the plan, node pools, and an engine's answers.

Load the fleet's packages only when a verb runs: a help can do without.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import click
from msgspec import Struct

from ebbtide.cli.common.guard import CORRUPT, DIVERGED, DONE, INCOMPATIBLE, TORN, WRONG, Refused
from ebbtide.cli.common.output import Heading, remark
from ebbtide.events.messages import plural
from ebbtide.extras import require

if TYPE_CHECKING:
    from collections import Counter

    import pyarrow as pa

    from ebbtide.fleet.fleet_journals import HasBytesT, Ref
    from ebbtide.fleet.fleet_verbs import Answer as FleetAnswer

Answer = TypeVar("Answer")

#: Each process takes some 100 MiB.
JOBS_MAX = 256

journals_option = click.option(
    "--journals",
    "url",
    required=True,
    metavar="URL",
    help="A folder, or s3://BUCKET/PREFIX, gs://…, az://…, with journals at any depth.",
)

jobs_option = click.option(
    "--jobs",
    type=click.IntRange(1, JOBS_MAX),
    metavar="N",
    help="Processes; the result is the same for any number.  [default: one for each processor]",
)


class Engine(NamedTuple):
    """``jobs``: processes of this machine; None: one a processor."""

    name: str = "local"
    jobs: int | None = None


def engine_options(command: Callable[..., int]) -> Callable[..., int]:
    """As one ``engine``."""

    @jobs_option
    @click.option(
        "--engine",
        type=click.Choice(["local", "spark"]),
        default="local",
        show_default=True,
        help="This machine, or the executors of Apache Spark; the result is the same.",
    )
    @wraps(command)
    def with_engine(*arguments: Any, engine: str, jobs: int | None, **more: Any) -> int:
        if engine == "spark" and jobs:
            raise Refused("--jobs counts processes of this machine: leave it out, and set spark.cores.max")
        return command(*arguments, engine=Engine(engine, jobs), **more)

    return with_engine


#: Exit codes by the state of a journal, or of a shutdown that was decided again.
CODES = {
    "": DONE,
    "intact": DONE,
    "identical": DONE,
    "not-asked": DONE,
    "unread": WRONG,
    "torn": TORN,
    "diverged": DIVERGED,
    "corrupt": CORRUPT,
    "incompatible": INCOMPATIBLE,
}


class Problem(Struct, frozen=True, kw_only=True, rename="camel"):
    """A journal that is not whole, or a ``shutdown`` of it that could not be used."""

    node: Annotated[str, Heading("NODE")]
    shutdown: Annotated[str | None, Heading("SHUTDOWN")] = None
    state: Annotated[str, Heading("STATE")]
    journal_id: Annotated[str, Heading("JOURNAL")]
    location: Annotated[str, Heading("LOCATION")]
    why: Annotated[str, Heading("WHY", wraps=True)]

    @classmethod
    def of(cls, answer: FleetAnswer, shutdown: str = "", *, state: str = "", why: str = "") -> Problem:
        return cls(
            node=answer.node,
            shutdown=shutdown or None,
            state=state or answer.state,
            journal_id=answer.journal_id,
            location=answer.location,
            why=why or answer.error,
        )


def planned_journals(url: str, verb: str, engine: Engine) -> list[Ref]:
    """Raises Refused, PackagesMissing."""
    if engine.name == "spark":
        require("spark", f"fleet {verb} --engine spark (on Java 17)")
    require("fleet", f"fleet {verb}")
    from ebbtide.fleet.fleet_journals import BadUrl, StoreFailed, journals

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
    """Of each bin, in order. Raises Refused."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ebbtide.fleet.pool import WorkerLost, over_bins, processors

    columns = (TextColumn("journals"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    to = Console(stderr=True)
    with ExitStack() as stack:
        try:
            if engine.name == "spark":
                from ebbtide.fleet.pool import context, over_spark

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


def table_answers(
    refs: Sequence[Ref], engine: Engine, codes: Counter[int], *, settled: bool = False
) -> Iterator[list[tuple[str, pa.RecordBatch]]]:
    """The tables of each bin. Counts exit codes, and names each journal that is not wholly in them."""
    from functools import partial

    from ebbtide.fleet.fleet_rows import JOURNALS, not_whole_text, table_batches

    for batches in answers(partial(table_batches, settled=settled), refs, engine):
        for name, batch in batches:
            for row in batch.to_pylist() if name == JOURNALS.name else ():
                codes[row["exit_code"]] += 1
                if text := not_whole_text(row):
                    remark(f"ebbtide: {text}")
        yield batches


def journals_text(count: int) -> str:
    return plural(count, "journal")


#: kubectl's text for an absent label.
NO_LABEL = "<none>"


class Pools:
    def __init__(self, path: Path) -> None:
        """Raises Refused, OSError."""
        self._names: dict[str, str] = {}
        self._patterns: dict[str, str] = {}
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise Refused(f"{path} is no text: write a node's name and its pool in each line") from None
        for number, line in enumerate(text.splitlines(), 1):
            words = line.partition("#")[0].split()
            # Refuse a configuration's line: no node's name has a colon.
            if words and (len(words) != 2 or ":" in words[0]):
                raise Refused(f"{path}:{number}: write a node's name and its pool, in place of {line!r}")
            if words and words[1] != NO_LABEL:
                to = self._patterns if any(sign in words[0] for sign in "*?[") else self._names
                to.setdefault(*words)

    def pool(self, node: str) -> str | None:
        """None: in no pool."""
        if node in self._names:
            return self._names[node]
        return next((pool for pattern, pool in self._patterns.items() if fnmatchcase(node, pattern)), None)


POOLS_EPILOG = """
Journals do not name node pools. A line of --pools has a node's name and its pool, as 'kubectl get
nodes --no-headers -o custom-columns=:.metadata.name,:.metadata.labels.POOL-LABEL' prints them; a name may be
a pattern (batch-*), for deleted nodes. A name wins over a pattern, an earlier pattern over a later one.
"""


def pools_option(command: Callable[..., int]) -> Callable[..., int]:
    """None: not given."""

    @click.option(
        "--pools",
        "pools_file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Node pools: a node's name and its pool in each line.",
    )
    @wraps(command)
    def with_pools(*arguments: Any, pools_file: Path | None, **more: Any) -> int:
        pools = None if pools_file is None else Pools(pools_file)
        return command(*arguments, pools=pools, **more)

    return with_pools
