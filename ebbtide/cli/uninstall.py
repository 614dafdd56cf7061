"""``ebbtide uninstall``: for the removal of a package. The order of its steps keeps the node from being armed
again.
"""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import click
import trio

from ebbtide.actors.edges.linux.bus import BusError, ask_once, system_bus_address
from ebbtide.actors.edges.logind_edge import SIGHUP
from ebbtide.actors.edges.logind_reading import DROP_IN_FOLDERS, DROP_IN_NAME, LOGIND_UNIT, DropIns
from ebbtide.actors.edges.service_manager import SYSTEMD
from ebbtide.cli.common.guard import DONE, NOT_SO, Refused
from ebbtide.cli.common.output import show, table
from ebbtide.cli.common.shared_options import run_options
from ebbtide.doctor.node_looks import unit_state
from ebbtide.options import RunOptions

if TYPE_CHECKING:
    from ebbtide.actors.edges.kubernetes.api_calls import ApiNode, JsonObject
    from ebbtide.modes import NodeParts
    from ebbtide.node import LocalNode

OWN_UNIT = "ebbtide.service"
#: A plain stop leaves pods alone and takes a fraction of a second; a hanging disk gets its bounds.
STOP_SECONDS_MAX = 30.0
#: A person waits.
API_SECONDS_MAX = 10.0
#: Their daemon marks the Node.
ANNOUNCING_MODES = ("auto", "api", "cri")

EPILOG = """\b
Examples:
  sudo ebbtide uninstall
  ebbtide uninstall --node-only --node-name worker-3 --kubeconfig ~/.kube/config   # from anywhere
"""


class Step(NamedTuple):
    """``target``: a unit, a file or a Node. ``reason``: why, or the cure."""

    result: Literal["done", "nothing", "failed"]
    what: str
    target: str
    reason: str = ""


@click.command(epilog=EPILOG)
@click.option("--node-only", is_flag=True, help="Only the Node in the API: for a machine that is gone.")
@run_options("kubeconfig", "node_name", "config", "journal", "runtime")
def uninstall(node_only: bool, options: RunOptions) -> int:
    """Stop and disable the unit, remove logind's drop-in, and take Ebbtide's marks off the Node. Pods,
    configuration and journal stay. A package's removal calls this.

    Exit code 1: something remains, or the Node could not be read; run it again.
    """
    from ebbtide.node import LocalNode

    # Before the unit stops: the daemon knows its configuration and journal best.
    node = LocalNode(options._replace(mode="auto"))
    parts = find_parts(node)
    if isinstance(parts, str) and (node_only or options.kubeconfig or options.node_name):
        raise Refused(parts)
    steps = []
    if not node_only:
        logind, _ = node.logind
        # A stop in mid-shutdown would release the lock, and the machine would not wait for the pods.
        if logind is not None and logind.preparing:
            raise Refused("this machine is going down: uninstall when it is up again")
        steps = [remove_unit(), remove_drop_in()]
    name = node.options.node_name or ""
    if not isinstance(parts, str):
        steps.append(trio.run(restore_node, parts.kubeconfig, parts.node))
    elif node.journal.mode in ANNOUNCING_MODES:
        steps.append(Step("failed", "Node", name, f"its marks there are unknown: {parts}"))
    else:
        # The daemon had no Node's name, and changed none.
        steps.append(Step("nothing", "Node", name, parts))
    show(table(("RESULT", "WHAT", "WHERE", "REASON"), steps))
    return NOT_SO if any(step.result == "failed" for step in steps) else DONE


def remove_unit() -> Step:
    """Its files belong to the package."""
    try:
        loaded, _ = trio.run(ask_once, system_bus_address(), partial(unit_state, unit=OWN_UNIT))
        if not loaded:
            return Step("nothing", "unit", OWN_UNIT, "there is no such unit")
        words = ("systemctl", "disable", "--now", OWN_UNIT)
        done = subprocess.run(words, capture_output=True, text=True, timeout=STOP_SECONDS_MAX, check=False)
    except (BusError, OSError, subprocess.TimeoutExpired) as error:
        return Step("failed", "unit", OWN_UNIT, str(error))
    if done.returncode:
        return Step("failed", "unit", OWN_UNIT, done.stderr.strip())
    return Step("done", "unit", OWN_UNIT, "stopped and disabled")


def remove_drop_in(root: Path = Path("/")) -> Step:
    """From any configured folder, and let logind read its files again."""
    step = Step("done", "drop-in", DROP_IN_NAME, "removed; logind reads its files again")
    try:
        if not sum(DropIns(root, folder).remove() for folder in DROP_IN_FOLDERS):
            return Step("nothing", "drop-in", DROP_IN_NAME, "it is not there")
        kill = ("KillUnit", "ssi", LOGIND_UNIT, "all", SIGHUP)
        trio.run(ask_once, system_bus_address(), lambda bus: bus.method(SYSTEMD, *kill))
    except OSError as error:
        return step._replace(result="failed", reason=str(error))
    except BusError as error:
        return step._replace(result="failed", reason=f"{error}: systemctl restart {LOGIND_UNIT}")
    return step


# The daemon removes its marks itself, after a cancel and at the next boot; this is for a daemon that never
# came back. Import the extra ``node`` late: the rest works without it.


def find_parts(node: LocalNode) -> NodeParts | str:
    """The Node's parts, or why it cannot be read from here."""
    from ebbtide.extras import PackagesMissing
    from ebbtide.modes import ModeUnavailable, find_node_parts

    try:
        parts = find_node_parts(node.options, node.configuration.config.node)
    except (ModeUnavailable, PackagesMissing) as error:
        return str(error)
    path = parts.kubeconfig
    if path is None or path.exists():
        return parts
    return f"no credentials for the API server: {path} does not exist; name a file with --kubeconfig PATH"


async def restore_node(kubeconfig: Path | None, name: str) -> Step:
    """``kubeconfig`` None: as our own pod."""
    from ebbtide.actors.edges.kubernetes.api_calls import (
        HTTP_NOT_FOUND,
        ApiCall,
        Unanswered,
        node_path,
    )
    from ebbtide.actors.edges.kubernetes.api_client import ApiClient
    from ebbtide.actors.edges.kubernetes.node_writes import (
        LAST_BOOT_ANNOTATION,
        RESTORE_PATCHES,
        NodePatch,
        NodeWriter,
    )

    def without_last_boot(node: ApiNode) -> JsonObject | None:
        gone: JsonObject = {"metadata": {"annotations": {LAST_BOOT_ANNOTATION: None}}}
        return gone if LAST_BOOT_ANNOTATION in node.metadata.annotations else None

    heard: list[str] = []
    link = ApiClient(kubeconfig, lambda level, line: heard.append(line))
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        try:
            call, writer = ApiCall(link, API_SECONDS_MAX, ""), NodeWriter(link, name)
            if (await call.until_answered("GET", node_path(name))).code == HTTP_NOT_FOUND:
                return Step("nothing", "Node", name, "there is no such Node")
            patches = (*RESTORE_PATCHES, NodePatch(without_last_boot))
            # All of them, also after an error: a Node with only an old condition accepts pods.
            problems = [problem for patch in patches if (problem := await writer.change(call, patch))]
        except Unanswered as error:
            # The client's first line is the cause.
            problems = heard[:1] or [f"{error}: run this again when the API server answers"]
        finally:
            nursery.cancel_scope.cancel()
    if problems:
        return Step("failed", "Node", name, "; ".join(problems))
    return Step("done", "Node", name, "none of Ebbtide's marks is left")
