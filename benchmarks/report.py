"""A measured figure beside its limit, and the machine it was measured on.

Every script gives a list of `Figure`; they are printed as a table and kept in ``results/NAME.json``, from
which ``docs/performance.md`` is made.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).with_name("results")
LABEL_WIDTH = 74


class Figure(NamedTuple):
    """One row: ``measured`` and ``limit`` are in ``unit``; ``at_least``: the limit is a lower one.

    ``basis`` says what the limit was made of, where it was measured in the same run.
    """

    what: str
    measured: float
    limit: float | None
    unit: str
    basis: str = ""
    at_least: bool = False

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return ""
        good = self.measured >= self.limit if self.at_least else self.measured <= self.limit
        return "reached" if good else "missed"


def number(value: float) -> str:
    """Three significant digits, thousands apart."""
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"


def cells(figure: Figure) -> tuple[str, str, str, str]:
    """What, limit, measured, verdict, as a person reads them."""
    sign = "≥" if figure.at_least else "≤"
    limit = "" if figure.limit is None else f"{sign} {number(figure.limit)} {figure.unit}"
    basis = f" ({figure.basis})" if figure.basis else ""
    return figure.what, limit + basis, f"{number(figure.measured)} {figure.unit}", figure.verdict


def machine() -> dict[str, str]:
    """Where and when."""
    return {
        "cpu": f"{os.cpu_count()} x {_cpu()}",
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` of all do not exceed (nearest rank)."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, max(0, -(-int(share * 100) * len(ranked) // 100) - 1))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def show(figures: Sequence[Figure]) -> None:
    for figure in figures:
        what, limit, measured, verdict = cells(figure)
        print(f"{what:<{LABEL_WIDTH}} {measured:>16}  {verdict:<8} {limit}", flush=True)


def keep(name: str, figures: Sequence[Figure], extra: dict[str, object] | None = None) -> None:
    """Write ``results/NAME.json``; ``extra`` holds series, such as those of a plot."""
    RESULTS.mkdir(exist_ok=True)
    document = {
        "name": name,
        "machine": machine(),
        "figures": [figure._asdict() | {"verdict": figure.verdict} for figure in figures],
        **(extra or {}),
    }
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    (RESULTS / f"{name}.json").write_text(text)


def parser(doc: str | None) -> argparse.ArgumentParser:
    """``--help`` shows the module's docstring; ``--keep`` writes the results file."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--keep", action="store_true", help="write benchmarks/results/NAME.json")
    return made


def conclude(
    name: str,
    arguments: argparse.Namespace,
    figures: Sequence[Figure],
    extra: dict[str, object] | None = None,
) -> int:
    """Show, keep if asked, and the exit code: 1 when a figure is missed."""
    show(figures)
    if arguments.keep:
        keep(name, figures, extra)
    return int(any(figure.verdict == "missed" for figure in figures))


Script = Callable[[], int]
