"""Write the figures of ``docs/performance.md`` between two marks; the prose stays.

The page has each figure with its limit in parentheses; ``results/`` has every figure, its basis and its
machine.
Run as ``python -m benchmarks.page``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.node import ROOT
from benchmarks.report import RESULTS, Figure, cells

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- results: made by benchmarks/page.py -->", "<!-- end of results -->"

#: `node_obedient` has these figures too.
REPEATED = re.compile(r"^105 pods, ebbtide, mode \w+: (fates|final)")
#: Figures without a limit that the page needs: the ratios are to them.
BASELINE = re.compile(r"one process|105 pods, the kubelet's graceful")

#: A row does not repeat its section's title.
SHORTER = (
    (r"the kubelet's graceful node shutdown", "the kubelet"),
    (r"ebbtide, mode ", "mode "),
    (r"^(.+ pods), one stubborn in each 10 s wave\b[,:]? ?", ""),
    (r"^of them rejected there", "pods of DaemonSets rejected on the node"),
    (r"bare calls with the final statuses beside them", "bare calls with statuses"),
    (r"of what that loop does", "against the bare loop"),
    (r"^signal on the bus to first SIGTERM, |^first line of the demo, |^start to armed with ", ""),
    (r"^verified replay of |^growth over 200 shutdowns: |^in the report: |^report, ", ""),
    (r"^the same, (?:exported|shipped) ", ""),
)

#: These share a line where they share a limit.
ALIKE = (
    (r"mode (cri|api)", "cri; api"),
    (r"\b(dead|slow|nonsense|good)\b", "dead; slow; nonsense; good"),
    (r"^(descriptors|threads|tasks|groups|files|marks|leases)$", "counts"),
)

NODE_FIGURES = "A real node: requests, DaemonSets, a small grant, a kill, the start"
TITLES = {
    "first_signal": "From the signal on the bus to the first SIGTERM",
    "first_line": "The first line of the demo",
    "start": "From the start of the process to armed",
    "idle": "While nothing happens",
    "waves": "A whole shutdown of 300 pods in three waves",
    "journal": "The journal",
    "verify": "Verified replay",
    "command": "Verified replay, as a command",
    "proofs": "What the replay proves",
    "browsing": "The report of 1 000 pods",
    "simulate": "Simulated shutdowns",
    "what_if": "What if, and advice",
    "traces": "Traces from the journal",
    "exporting": "A shutdown while its trace is exported",
    "exporting_many": "Many spans through the exporter",
    "exporting_cut": "Traces of shutdowns that were cut short",
    "scale": "Cost against the number of pods",
    "fleet": "A fleet by a pool of processes",
    "fleet_scale": "A fleet of 100 000 journals",
    "shipping": "A shutdown while its segments are shipped",
    "node_obedient": "A real node beside the kubelet: pods that end at once",
    "node_crowd": "A real node: 500 pods against 105",
    "node_stubborn": "A real node beside the kubelet: one pod in each 10 s wave ignores SIGTERM",
    "node_requests": NODE_FIGURES,
    "node_daemonset": NODE_FIGURES,
    "node_grant": NODE_FIGURES,
    "node_killed": NODE_FIGURES,
    "node_runtime_killed": NODE_FIGURES,
    "node_runtime_hung": NODE_FIGURES,
    "node_start": NODE_FIGURES,
    "node_week": "A real node: growth of one daemon over 200 cancelled shutdowns",
}


def sections() -> str:
    """The results that are there, in the order of `TITLES`. A title has one section."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, title in TITLES.items():
        if (path := RESULTS / f"{name}.json").exists():
            found.setdefault(title, []).append(json.loads(path.read_text()))
    return "\n".join(line for title, documents in found.items() for line in _section(title, documents))


def _section(title: str, documents: list[dict[str, Any]]) -> list[str]:
    commands = [each.get("command", f"benchmarks.{each['name']}") for each in documents]
    command = commands[0] if len(documents) == 1 else commands[0].split()[0]
    days = sorted({each["machine"]["day"] for each in documents})
    shown = set(Figure._fields) - {"basis"}
    figures = [Figure(**{key: row[key] for key in shown}) for each in documents for row in each["figures"]]
    return [
        f"### {title}",
        "",
        f"`{command}`, {' and '.join(days)}:",
        "",
        *_rows(filter(_shown, figures)),
        "",
    ]


def _rows(figures: Iterable[Figure]) -> Iterator[str]:
    rows: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for figure in figures:
        what, limit, measured, verdict = cells(figure)
        name, limit = _short(what), limit.removesuffix(f" {figure.unit}")
        cell = f"{measured}{', **missed**' if verdict == 'missed' else ''}"
        joined = name
        for pattern, names in ALIKE:
            joined = re.sub(pattern, names, joined)
        rows.setdefault((joined, limit), []).append((name, cell))
    for (joined, limit), found in rows.items():
        name = joined if len(found) > 1 else found[0][0]
        beside = f" ({limit})" if limit else ""
        yield f"* {name}: {'; '.join(cell for _, cell in found)}{beside}"


def _short(what: str) -> str:
    for pattern, replacement in SHORTER:
        what = re.sub(pattern, replacement, what)
    return what


def _shown(figure: Figure) -> bool:
    limited = figure.limit is not None and not REPEATED.search(figure.what)
    return limited or BASELINE.search(figure.what) is not None


def write() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{sections()}\n{END}{after}")


if __name__ == "__main__":
    write()
