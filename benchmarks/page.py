"""Write the tables of ``docs/performance.md`` between two marks; the prose stays.

The page has each figure with a limit. ``results/`` has every figure, its basis and its machine.
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

#: Figures without a limit that the page needs: the ratios are to them.
BASELINE = re.compile(r"one process|105 pods, the kubelet's graceful")

#: The page names the kubelet, our modes and the pods more briefly than the results do.
SHORTER = (
    (r"the kubelet's graceful node shutdown", "the kubelet"),
    (r"ebbtide, mode ", "mode "),
    (r"^(.+ pods), one stubborn in each 10 s wave\b[,:]? ?", ""),
    (r"^of them rejected there", "pods of DaemonSets rejected on the node"),
    (r"bare calls with the final statuses beside them", "bare calls with statuses"),
    (r"^killed in mid-shutdown: |^growth over 200 shutdowns: |^the same: |^in the report: ", ""),
)

TITLES = {
    "first_signal": "From the signal to the first SIGTERM",
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
    "node_requests": "A real node beside the kubelet: requests through a Service",
    "node_daemonset": "A real node beside the kubelet: what DaemonSets make on it",
    "node_grant": "A real node beside the kubelet: 10 s granted of 30 s",
    "node_killed": "A real node beside the kubelet: killed in mid-shutdown",
    "node_runtime_killed": "A real node beside the kubelet: the container runtime is killed three times",
    "node_runtime_hung": "A real node beside the kubelet: the container runtime hangs",
    "node_start": "A real node: from the start of the process to armed",
    "node_week": "A real node: growth of one daemon over 200 cancelled shutdowns",
}


def tables() -> str:
    """One section for each result that is there, in the order of `TITLES`."""
    paths = [(title, RESULTS / f"{name}.json") for name, title in TITLES.items()]
    return "\n".join(
        line
        for title, path in paths
        if path.exists()
        for line in _section(title, json.loads(path.read_text()))
    )


def _section(title: str, document: dict[str, Any]) -> list[str]:
    where = document["machine"]
    command = document.get("command", f"benchmarks.{document['name']}")
    shown = set(Figure._fields) - {"basis"}
    figures = [Figure(**{key: row[key] for key in shown}) for row in document["figures"]]
    return [
        f"### {title}",
        "",
        f"| `python -m {command}`, {where['day']} | measured | limit |",
        "|---|---|---|",
        *_rows(filter(_shown, figures)),
        "",
    ]


def _rows(figures: Iterable[Figure]) -> Iterator[str]:
    """Both modes share a row where they share a limit."""
    rows: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for what, limit, measured, verdict in map(cells, figures):
        name = _short(what)
        cell = f"{measured}{', **missed**' if verdict == 'missed' else ''}"
        both = re.sub(r"mode (cri|api)", "cri; api", name)
        rows.setdefault((both, limit), []).append((name, cell))
    for (both, limit), found in rows.items():
        name = both if len(found) > 1 else found[0][0]
        yield f"| {name} | {'; '.join(cell for _, cell in found)} | {limit} |"


def _short(what: str) -> str:
    for pattern, replacement in SHORTER:
        what = re.sub(pattern, replacement, what)
    return what


def _shown(figure: Figure) -> bool:
    return figure.limit is not None or BASELINE.search(figure.what) is not None


def write() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables()}\n{END}{after}")


if __name__ == "__main__":
    write()
