"""``ebbtide drill``: measure what a shutdown would need on the live node; does the budget hold?

The measurements are a sync where the journal lives, a call to logind, a process, a connection to each hook,
and on a Kubernetes node those of `ebbtide.cli.drill_node`. Nothing is signalled, no hook is run, and the
one file that is written is taken away again.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import trio

from ebbtide.actors.edges.linux.bus import Bus, BusError, ask_once, system_bus_address
from ebbtide.actors.edges.logind.manager import read_preparing
from ebbtide.actors.edges.process.start import CannotStart, spawn
from ebbtide.actors.policy.grace_periods import measured_margins
from ebbtide.actors.policy.plan import Plan
from ebbtide.cli.common.options import (
    config_option,
    grant_option,
    journal_option,
    node_options,
    output_option,
    refuse_unfit,
    run_options,
    runtime_option,
)
from ebbtide.control import MEASURED_NS_MAX, ControlError, ask
from ebbtide.doctor.gather import FoundPods, HookTarget
from ebbtide.events.base import BARRIER_NS_MAX, NS_PER_SECOND
from ebbtide.events.facts import NodeMeasured
from ebbtide.events.units import json_seconds, span, span_s

if TYPE_CHECKING:
    from ebbtide.node import LocalNode

DRILL_VERSION = 1
MILLISECOND = 1_000_000

EPILOG = """\b
Examples:
  sudo ebbtide drill
  sudo ebbtide drill --mode cri --cri /run/containerd/containerd.sock
  sudo ebbtide drill -o json | jq '.measurements[] | select(.good | not)'
"""


@click.command(epilog=EPILOG)
@config_option
@journal_option
@runtime_option
@grant_option
@node_options
@output_option("table", "json")
def drill(
    configs: tuple[Path, ...],
    journal: Path,
    runtime: Path,
    grant: int | None,
    mode: str | None,
    cri: Path | None,
    kubeconfig: str | None,
    node_name: str | None,
    output: str,
) -> int:
    """Measure syncs, logind, process starts and hook targets, and on a Kubernetes node the API server, the
    container runtime and the kubelet's unit. Nothing is ended, no hook is run; what would change something
    at the API server is a dry run. The daemon that runs keeps what was measured: what its next shutdowns keep
    free at their end follows from it.

    Exit code 1: the budget does not hold, or something that a shutdown needs does not answer.
    """
    from rich.text import Text

    from ebbtide.cli.common.guard import DONE, NOT_SO
    from ebbtide.cli.common.output import remark, show, show_json, table
    from ebbtide.events.record.format import visible
    from ebbtide.node import LocalNode
    from ebbtide.plan import build_plan
    from ebbtide.status import margins_json, margins_text

    options = run_options(
        mode,
        cri=cri,
        kubeconfig=kubeconfig,
        node_name=node_name,
        config=configs,
        journal=journal,
        runtime=runtime,
    )
    node = LocalNode(options)
    settings, pods = node.configuration.settings, node.pods
    refuse_unfit(pods.seen, looked=pods.parts is not None)
    if node.source:
        remark(f"measured {node.source}")
    # As raised: the daemon asks logind for more at its start, so that is what a shutdown would have.
    plan = build_plan(settings, pods.manifests, node.grant_ns(grant, as_raised=True))
    measured = []
    for each in measure(node.options.journal, pods):
        remark(f"measured: {each.what} {each.target}")
        measured.append(each)
    budget = judge_budget(plan, measured)
    figures = worst_calls(measured) | {"measured_wall_ns": time.time_ns()}
    untold = tell_daemon(node, figures)
    margins = margins_json(measured_margins(NodeMeasured(asked_by=os.getuid(), **figures)))
    if output == "json":
        more = {"mode": pods.mode, "margins": margins, "untold": untold or None}
        show_json(drill_document(plan, measured, budget) | more)
        return DONE if budget.holds else NOT_SO
    headings = ("MEASURED", "TARGET", "MEDIAN", "WORST", "LIMIT", "VERDICT")
    show(table(headings, map(_measured_row, measured), right=("MEDIAN", "WORST", "LIMIT")))
    for each in measured:
        if each.error and not each.needed:
            show(Text(visible(f"not needed: {each.what} {each.target}: {each.error}"), style="dim"))
    for line in budget.missing:
        show(Text(visible(line), style="yellow"))
    show(Text(visible(f"kept free at a shutdown's end: {margins_text(margins)}")))
    if untold:
        show(Text(visible(f"the daemon does not go by that: {untold}"), style="yellow"))
    if not plan.enabled:
        needed = span(budget.overhead_ns)
        show(Text(f"no budget to hold: a shutdown would need {needed} beside its waves", style="yellow"))
        return NOT_SO
    verdict = "holds" if budget.holds else "does not hold"
    room = "" if budget.slack_ns is None else f" of {span(budget.slack_ns)} beside the waves"
    needed = f"a shutdown would need {span(budget.overhead_ns)}{room}"
    show(Text(f"the budget {verdict}: {needed}", style="green" if budget.holds else "red"))
    return DONE if budget.holds else NOT_SO


def drill_document(plan: Plan, measured: Sequence[Measured], budget: Budget) -> dict[str, Any]:
    """``kind: Drill``; times in milliseconds, ``slackSeconds`` null when graceful shutdown is off."""
    return {
        "kind": "Drill",
        "version": DRILL_VERSION,
        "holds": budget.holds,
        "budgetSeconds": plan.budget_seconds,
        "overheadSeconds": json_seconds(budget.overhead_ns),
        "slackSeconds": json_seconds(budget.slack_ns),
        "missing": list(budget.missing),
        "measurements": [
            {
                "what": each.what,
                "target": each.target,
                "samples": len(each.samples_ns),
                "medianMs": each.median_ns / MILLISECOND,
                "worstMs": each.worst_ns / MILLISECOND,
                "limitMs": each.limit_ns / MILLISECOND,
                "good": each.good,
                "error": each.error or None,
                "needed": each.needed,
            }
            for each in measured
        ],
    }


def _measured_row(each: Measured) -> tuple[str, ...]:
    limit = span(each.limit_ns)
    if each.error:
        return each.what, each.target, "-", "-", limit, "failed"
    median, worst = span(each.median_ns), span(each.worst_ns)
    return each.what, each.target, median, worst, limit, "ok" if each.good else "slow"


#: Enough for a median and a bad case, few enough for a second in all.
SAMPLES = 20
#: What one step writes: an order and its outcome of some hundred bytes, rounded up to a page.
WRITE_BYTES = 4096
#: A hook's connection that is not there after this is as good as refused.
CONNECT_SECONDS_MAX = 1.0
#: A local bus that needs longer than this makes arming and release slow.
BUS_NS_MAX = 50_000_000
#: Starting the smallest process; more is taken from every exec hook's grace.
EXEC_NS_MAX = 100_000_000
CONNECT_NS_MAX = 100_000_000

NO_OP = ("true",)


class Measured(NamedTuple):
    """``samples_ns`` are sorted; empty with ``error`` where it could not be measured. Over ``limit_ns``
    a shutdown would suffer. ``needed`` False: the mode has another way.
    """

    what: str
    target: str
    samples_ns: tuple[int, ...]
    limit_ns: int
    error: str = ""
    needed: bool = True

    @property
    def median_ns(self) -> int:
        return self.samples_ns[len(self.samples_ns) // 2] if self.samples_ns else 0

    @property
    def worst_ns(self) -> int:
        return self.samples_ns[-1] if self.samples_ns else 0

    @property
    def good(self) -> bool:
        return not self.error and self.median_ns <= self.limit_ns


def measure(journal: Path, pods: FoundPods) -> Iterator[Measured]:
    """Each measurement as it is made."""
    yield measure_sync(journal)
    yield measure_logind()
    yield measure_exec()
    if pods.parts is not None:
        from ebbtide.cli.drill_node import measure_node

        yield from measure_node(pods.mode, pods.parts, pods.known)
    yield from map(measure_connection, pods.targets)


def sampled(once: Callable[[], object], samples: int = SAMPLES) -> tuple[int, ...]:
    taken = []
    for _ in range(samples):
        began_ns = time.monotonic_ns()
        once()
        taken.append(time.monotonic_ns() - began_ns)
    return tuple(sorted(taken))


def measure_sync(journal: Path) -> Measured:
    """A page appended and synced, as orders that outlive the boot wait for it."""
    # A journal that is not there yet will be made below what is: on the same disk, most likely.
    place = next(folder for folder in (journal.absolute(), *journal.absolute().parents) if folder.is_dir())
    made = Measured("journal sync", str(place), (), BARRIER_NS_MAX)
    try:
        with tempfile.TemporaryFile(dir=place, prefix=".drill-", buffering=0) as file:

            def append_page() -> None:
                os.write(file.fileno(), bytes(WRITE_BYTES))
                os.fdatasync(file.fileno())

            return made._replace(samples_ns=sampled(append_page))
    except OSError as error:
        return made._replace(error=f"cannot write: {error.strerror}")


def measure_logind() -> Measured:
    """A property of logind, read over one connection."""
    address = system_bus_address()
    made = Measured("logind call", address, (), BUS_NS_MAX)

    async def ask(connection: Bus) -> tuple[int, ...]:
        taken = []
        for _ in range(SAMPLES):
            began_ns = time.monotonic_ns()
            await read_preparing(connection)
            taken.append(time.monotonic_ns() - began_ns)
        return tuple(sorted(taken))

    try:
        return made._replace(samples_ns=trio.run(ask_once, address, ask))
    except BusError as error:
        return made._replace(error=str(error))


def measure_exec() -> Measured:
    """A hook that does nothing, started as hooks are, and waited for."""
    made = Measured("exec", NO_OP[0], (), EXEC_NS_MAX)
    try:
        with open(os.devnull, "wb") as output:

            def run_no_op() -> None:
                child = spawn(NO_OP, os.environ, "", output.fileno())
                os.close(child.pidfd)
                os.waitpid(child.pid, 0)

            return made._replace(samples_ns=sampled(run_no_op))
    except CannotStart as error:
        return made._replace(error=str(error))


def measure_connection(target: HookTarget) -> Measured:
    """Only a connection, no request: a hook would begin to drain the pod."""
    made = Measured("httpGet target", target.name, (), CONNECT_NS_MAX, target.error)
    if target.error:
        return made

    def connect() -> None:
        socket.create_connection((target.host, target.port), CONNECT_SECONDS_MAX).close()

    try:
        # Once: it is somebody's server, and twenty connections in a row may count as an attack there.
        return made._replace(samples_ns=sampled(connect, samples=1))
    except OSError as error:
        return made._replace(error=error.strerror or str(error))


# --- what the daemon is told -------------------------------------------------------------------

#: What a shutdown's end waits for, by what a measurement is called, or begins with (`NodeMeasured`).
FIGURE_BY_KIND = {
    "journal": "sync_ns",
    "logind": "logind_ns",
    "exec": "exec_ns",
    "CRI": "runtime_ns",
    "API": "api_ns",
}


def worst_calls(measured: Sequence[Measured]) -> dict[str, int]:
    """The worst call of each kind; none of a kind that could not be measured."""
    worst: dict[str, int] = {}
    for each in measured:
        name = FIGURE_BY_KIND.get(each.what.partition(" ")[0])
        if name is not None and each.samples_ns:
            worst[name] = max(worst.get(name, 0), min(each.worst_ns, MEASURED_NS_MAX))
    return worst


def tell_daemon(node: LocalNode, figures: dict[str, int]) -> str:
    """Why the daemon was not told; empty: it was."""
    # What another disk or another runtime was measured for says nothing of its shutdowns.
    if why := node.not_the_daemons:
        return why
    try:
        ask("measured", node.options.control_socket, measured=figures)
    except ControlError as error:
        return str(error)
    return ""


# --- does the budget hold? ---------------------------------------------------------------------


#: Synced records on the way of a shutdown: the announcement, each wave's statuses, and the release.
SYNCS_PER_WAVE = 2
SYNCS_BESIDE = 2
#: Calls to logind on the way: the inventory's none, the release's and its proof.
LOGIND_CALLS = 3
#: Once a wave, since its pods are asked for side by side: what goes before its first signal or delete.
MEASURED_ONCE_A_WAVE = ("exec", "CRI container status", "API dry-run patch", "API dry-run delete")
#: Once a shutdown.
MEASURED_ONCE = ("CRI list of sandboxes", "kubelet unit")


class Budget(NamedTuple):
    """``overhead_ns``: what syncs, calls and process starts would take beside the waves' periods, at the
    worst that was measured. ``slack_ns``: what is granted on top of the periods, 0 where not even they are.
    ``missing``: why it does not hold, each in a line.
    """

    overhead_ns: int
    slack_ns: int | None
    missing: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.missing


def judge_budget(plan: Plan, measured: Sequence[Measured]) -> Budget:
    """Pure. The grant is the plan's; where it is not known the reserve counts as granted."""
    waves, worst = len(plan.waves), {each.what: each.worst_ns for each in measured}
    # What has not been measured, or not been had, counts nothing here: where it is needed its error is in
    # ``missing``, and a time that is made up would hide by how much the others are too slow.
    overhead_ns = (
        (SYNCS_BESIDE + SYNCS_PER_WAVE * waves) * worst.get("journal sync", 0)
        + LOGIND_CALLS * worst.get("logind call", 0)
        + sum(waves * worst.get(each, 0) for each in MEASURED_ONCE_A_WAVE)
        + sum(worst.get(each, 0) for each in MEASURED_ONCE)
    )
    slack_ns = plan.reserve_seconds * NS_PER_SECOND
    if plan.grant_seconds is not None:
        slack_ns = min(slack_ns, (plan.grant_seconds - plan.requested_seconds) * NS_PER_SECOND)
    missing = [f"{each.what} {each.target}: {each.error}" for each in measured if each.error and each.needed]
    if not plan.enabled:
        return Budget(overhead_ns, None, ("graceful shutdown is off: set shutdownGracePeriod", *missing))
    if slack_ns < 0:
        missing.append(
            f"logind grants {span_s(plan.grant_seconds)} of the {span_s(plan.requested_seconds)} that"
            " the waves need"
        )
    elif overhead_ns > slack_ns:
        missing.append(
            f"{span(overhead_ns)} of overhead do not fit into {span(slack_ns)} of reserve: raise reserve"
        )
    return Budget(overhead_ns, max(0, slack_ns), tuple(missing))
