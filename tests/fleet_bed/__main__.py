"""What Spark costs above the same calls in one process, in the same run; and that it says the same.

python -m tests.fleet_bed [--nodes 2000] [--keep]

Each rate is a ratio: processor time of this process for a call without an engine, over that of the
executors' Pythons on a cluster of one-core workers, once they have imported what they need. The last ones are
kept in benchmarks/results/fleet_spark.json.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from benchmarks.report import Figure, conclude, parser, say
from ebbtide import fleet
from ebbtide.config.loading import load
from tests.beds.inside import PROJECT
from tests.beds.rootfs import Unavailable
from tests.fleet_bed import one_machine
from tests.fleet_bed.cluster import Driver, cluster, driver
from tests.fleet_bed.conftest import NEW
from tests.fleet_bed.processes import executors, peak_mib, python_peak_mib, python_times, spent, times

NODES, SOME, FEW = 2000, 400, 8
TABLES_SHARE_MIN, VERIFY_SHARE_MIN, WHAT_IF_SHARE_MIN = 0.85, 0.8, 0.9
TWO_WORKERS_MAX = 1.1
PYTHON_MIB_MAX, HEAP_MIB = 256, 512


class Work(NamedTuple):
    """What is asked: of Spark by ``command`` and ``words``, here by ``alone``."""

    name: str
    url: str
    command: str
    words: dict[str, Any]
    alone: Callable[[], pa.Table]
    share_min: float


class Took(NamedTuple):
    """Processor seconds of the executors' Pythons and of all that they are, and the clock's."""

    python: float
    all: float
    wall: float
    digest: str


def work_on(folder: Path) -> list[Work]:
    whole, some = (folder / "fleet").as_uri(), (folder / "some").as_uri()
    config = folder / "new.yaml"
    config.write_text(NEW)
    settings = msgspec.msgpack.encode(load([config]).settings)
    verify = partial(one_machine.verb, whole, "verify")
    what_if = partial(one_machine.verb, some, "what-if", settings=settings)
    pods = partial(one_machine.table, whole, "pods")
    asked = {"verb": "what-if", "settings": settings.hex()}
    return [
        Work("pods", whole, "rows", {"table": "pods"}, pods, TABLES_SHARE_MIN),
        Work("verify", whole, "verb", {"verb": "verify"}, verify, VERIFY_SHARE_MIN),
        Work("what-if", some, "verb", asked, what_if, WHAT_IF_SHARE_MIN),
    ]


def simulate(folder: Path, nodes: int) -> None:
    argv = (sys.executable, "-c", "from ebbtide.cli import main; main()", "simulate")
    words = ("--seeds", f"1..{nodes}", "--journal", str(folder / "fleet"))
    subprocess.run([*argv, *words], cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)
    for name, count in (("some", SOME), ("few", FEW)):
        (folder / name).mkdir()
        for node in sorted((folder / "fleet").iterdir())[:count]:
            (folder / name / node.name).symlink_to(node)


def alone(work: Work) -> Took:
    gc.collect()
    began, wall = time.process_time(), time.perf_counter()
    table = work.alone()
    took = time.process_time() - began
    return Took(took, took, time.perf_counter() - wall, one_machine.digest(table))


def mean(before: Took, after: Took) -> Took:
    """Of a call before Spark's and one after it: a shared machine is not equally fast all the time."""
    assert before.digest == after.digest
    figures = [(one + two) / 2 for one, two in zip(before[:3], after[:3], strict=True)]
    return Took(*figures, before.digest)


def on_spark(found: Any, on: Driver, work: Work, into: Path) -> Took:
    python, every, wall = python_times(found), times(found), time.perf_counter()
    on.call(work.command, url=work.url, into=str(into), **work.words)
    wall = time.perf_counter() - wall
    return Took(
        spent(python, python_times(found)),
        spent(every, times(found)),
        wall,
        one_machine.digest(one_machine.stored(into)),
    )


def measure(folder: Path, nodes: int) -> list[Figure]:
    simulate(folder, nodes)
    works = work_on(folder)
    took: dict[tuple[str, int], Took] = {}
    with cluster(folder, workers=2) as found:
        heap = python_mib = 0.0
        for cores in (1, 2):
            with driver(found, folder, cores=cores) as on:
                for work in works:
                    before = alone(work) if cores == 1 else None
                    # Every class is loaded, every module imported: neither is of the journals. Anew for each,
                    # since Spark ends a Python that had nothing to do for a minute.
                    few = {"options": {"partitionJournals": "1"}} if work.command == "rows" else {}
                    few |= {"url": (folder / "few").as_uri(), "into": str(folder / "warm")}
                    on.call(work.command, **(work.words | few))
                    took[work.name, cores] = on_spark(found, on, work, folder / f"{work.name}-{cores}")
                    python_mib = max(python_mib, python_peak_mib(found))
                    if before is not None:
                        took[work.name, 0] = mean(before, alone(work))
                    say(f"{work.name}, {cores} workers: {took[work.name, cores]}; alone {took[work.name, 0]}")
                heap = max(heap, peak_mib(executors(found)))
    figures = []
    for work in works:
        count = len(fleet.journals(work.url))
        one, spark, two = (took[work.name, cores] for cores in (0, 1, 2))
        rates = f"{count / spark.python:.0f} against {count / one.python:.0f} journals/s"
        wall = f"{spark.wall:.1f} and {two.wall:.1f} seconds by the clock"
        same = one.digest == spark.digest == two.digest
        name, share, two_over_one = work.name, one.python / spark.python, two.python / spark.python
        figures += [
            Figure(f"{name}: a core's rate over one process's", share, work.share_min, "x", rates, True),
            Figure(f"{name}: that with the executors' JVMs counted in", one.all / spark.all, None, "x"),
            Figure(f"{name}: processor time, 2 workers over 1", two_over_one, TWO_WORKERS_MAX, "x", wall),
            Figure(
                f"{name}: the same rows, one process, 1 and 2 workers",
                int(same),
                1,
                "",
                f"{count} journals",
                True,
            ),
        ]
    return [
        *figures,
        Figure("an executor's Python, at its largest", python_mib, PYTHON_MIB_MAX, "MiB"),
        Figure(f"an executor's JVM, at its largest, with a heap of {HEAP_MIB} MiB", heap, None, "MiB"),
    ]


def main() -> int:
    """The exit code: 1 when a figure is missed, 2 where there is no cluster to be had."""
    options = parser(__doc__)
    options.add_argument("--nodes", type=int, default=NODES, help=f"default {NODES}")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="ebbtide-fleet.") as folder:
        try:
            found = measure(Path(folder), arguments.nodes)
        except Unavailable as why:
            say(str(why))
            return 2
    return conclude("fleet_spark", arguments, found, {"command": "tests.fleet_bed"})


if __name__ == "__main__":
    sys.exit(main())
