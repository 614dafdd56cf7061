"""``ebbtide uninstall``: the node as it was before, with an account of each step.

In this order: the host's unit, stopped and disabled, so that nothing arms this node again; logind's
drop-in; the Node in the API; the kubelet's unit, if it was a shutdown of
ours that stopped it and nobody has started it since; the state of this boot and, if asked, the journal.
Only names that Ebbtide gives itself are removed, whatever folder somebody names: a folder goes when it is
empty. A shutdown that runs is not cut off: whoever asked for it is waiting for pods that would then be
killed.
"""

from __future__ import annotations

import fnmatch
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click
import trio
from jeepney import DBusAddress

from ebbtide.actors.edges.kubelet import KubeletUnit
from ebbtide.actors.edges.linux.bus import Bus, BusError, BusRefused, ask_once, system_bus_address
from ebbtide.actors.edges.linux.proc import boot_id
from ebbtide.actors.edges.logind.drop_ins import DROP_IN_FOLDERS, DROP_IN_NAME, DropIns
from ebbtide.actors.edges.logind.edge import PAUSES_SECONDS, SIGHUP
from ebbtide.actors.edges.logind.manager import LOGIND_UNIT, read_grant_ns, read_preparing
from ebbtide.actors.edges.service_manager import SYSTEMD
from ebbtide.cli.common.guard import DONE, NOT_SO, Refused
from ebbtide.cli.common.options import (
    config_option,
    journal_option,
    kubeconfig_option,
    node_name_option,
    output_option,
    runtime_option,
)
from ebbtide.cli.common.output import show, show_json, table
from ebbtide.doctor.gather import running_pods
from ebbtide.events.base import Event, Fact
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import AnnounceNode, PublishLastBoot, StartKubelet, StopKubelet
from ebbtide.events.facts import DaemonStarted
from ebbtide.events.reader import History
from ebbtide.events.units import span_s

if TYPE_CHECKING:
    from ebbtide.actors.edges.kubernetes.calls import ApiNode
    from ebbtide.modes import NodeParts
    from ebbtide.node import LocalNode


UNINSTALL_VERSION = 1

NODE_STEP = "Node"
#: Modes whose daemon shows the Node as going down.
ANNOUNCING_MODES = ("auto", "api", "cri")

EPILOG = """\b
Examples:
  sudo ebbtide uninstall --dry-run            # what would be done
  sudo ebbtide uninstall                      # the journal stays
  sudo ebbtide uninstall --purge
  ebbtide uninstall --node-only --node-name worker-3 --kubeconfig ~/.kube/config   # from anywhere
"""


@click.command(epilog=EPILOG)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option("--purge", is_flag=True, help="Remove the journal too: the account of every shutdown.")
@click.option("--node-only", is_flag=True, help="Only the Node in the API: for a machine that is gone.")
@kubeconfig_option
@node_name_option
@config_option
@journal_option
@runtime_option
@output_option("table", "json")
def uninstall(
    dry_run: bool,
    purge: bool,
    node_only: bool,
    kubeconfig: str | None,
    node_name: str | None,
    configs: tuple[Path, ...],
    journal: Path,
    runtime: Path,
    output: str,
) -> int:
    """Stop and disable the unit, take logind's drop-in away and what stands on the Node, start a kubelet that
    a shutdown of ours had stopped, and leave the journal. Pods are left alone, packages and unit files are
    removed as they came.

    Exit code 1: something could not be taken back, or the Node could not be asked; run it again.
    """
    from ebbtide.node import LocalNode
    from ebbtide.options import RunOptions

    if node_only and purge:
        raise Refused("--node-only touches no file of this machine: leave --purge out")
    # Asked before the unit is stopped: the daemon knows its configuration and its journal best.
    node = LocalNode(
        RunOptions(configs, None, journal, runtime, mode="auto", kubeconfig=kubeconfig, node_name=node_name)
    )
    parts = _find_parts(node, named=node_only or bool(kubeconfig or node_name))
    steps = trio.run(_uninstall_steps, node, parts, dry_run, purge, node_only)
    if output == "json":
        show_json(uninstall_document(steps, dry_run))
    else:
        rows = [(step.result, step.what, step.target, step.reason) for step in steps]
        show(table(("RESULT", "WHAT", "WHERE", "REASON"), rows))
    return NOT_SO if any(step.result == "failed" for step in steps) else DONE


async def _uninstall_steps(
    node: LocalNode, parts: NodeParts | str, dry_run: bool, purge: bool, node_only: bool
) -> list[Step]:
    from ebbtide.host import runtime_lock_owner
    from ebbtide.modes import kubelet_unit, lasting_folder

    options, loaded = node.options, node.configuration
    journals = [options.journal, *map(Path, loaded.options.journal_fallbacks)]
    if node_only:
        return [await _restore_node(node, parts, dry_run)]
    # Not in a shutdown, and not under a daemon that the unit does not run: it would arm again. Without logind
    # nobody prepares a shutdown.
    with suppress(BusError):
        if await ask_once(system_bus_address(), read_preparing):
            raise Refused("this machine is going down: uninstall when it is up again")
    try:
        by_unit = (await own_unit_state()).is_active
    except BusError:
        by_unit = False
    owner = runtime_lock_owner(options.runtime)
    if owner and not by_unit:
        raise Refused(
            f"ebbtide (process {owner}) runs here, and not as the unit: end it first (a DaemonSet: delete it)"
        )
    steps = [await remove_unit(dry_run), *await remove_drop_in(dry_run)]
    steps.append(await _restore_node(node, parts, dry_run))
    steps.append(await start_kubelet(kubelet_unit(loaded.options.node), journals, dry_run))
    if running_pods(options.runtime):
        # From there alone the next daemon knows the local pods that still run.
        why = "pods of mode process run: they are left alone"
        steps.append(Step("state of this boot", str(options.runtime), "kept", why))
    else:
        steps.append(_clear_folder("state of this boot", options.runtime, BOOT_FILES, dry_run))
    if purge:
        steps += remove_journals(journals, lasting_folder(options), dry_run)
    return steps


def _find_parts(node: LocalNode, named: bool) -> NodeParts | str:
    """Or why the Node cannot be asked here; nothing is changed before this is known. ``named``: somebody says
    which Node, or who asks. Raises Refused.
    """
    from ebbtide.extras import PackagesMissing
    from ebbtide.modes import ModeUnavailable, find_node_parts

    try:
        parts = find_node_parts(node.options, node.configuration.options.node)
    except (ModeUnavailable, PackagesMissing) as error:
        if named:
            raise Refused(str(error)) from None
        return str(error)
    path = parts.kubeconfig
    if path is None or path.exists():
        return parts
    if named:
        raise Refused(f"there is no kubeconfig {path}: name one with --kubeconfig PATH")
    return f"no identity for the API is here ({path} is not there): name one with --kubeconfig PATH"


async def _restore_node(node: LocalNode, parts: NodeParts | str, dry_run: bool) -> Step:
    """``parts``: why the Node cannot be asked, where it cannot. Then a machine whose daemon was never a
    node's has changed nothing there, and on any other it is not known what is left.
    """
    if not isinstance(parts, str):
        return await restore_node(parts.kubeconfig, parts.node, dry_run)
    name = node.options.node_name or ""
    if node.journal.mode in ANNOUNCING_MODES:
        return Step(NODE_STEP, name, "failed", f"what is left there is not known: {parts}")
    return Step(NODE_STEP, name, "nothing", parts)


def uninstall_document(steps: list[Step], dry_run: bool) -> dict[str, Any]:
    return {
        "kind": "Uninstall",
        "version": UNINSTALL_VERSION,
        "dryRun": dry_run,
        "steps": [step._asdict() for step in steps],
    }


#: ``nothing``: there was nothing to do; ``would``: a dry run, or it is left on purpose; see the reason.
StepResult = Literal["done", "nothing", "would", "kept", "failed"]


class Step(NamedTuple):
    """``target`` is a unit, a path or a Node; ``reason`` says why, or what to do."""

    what: str
    target: str
    result: StepResult
    reason: str = ""


OWN_UNIT = "ebbtide.service"
UNIT_INTERFACE = "org.freedesktop.systemd1.Unit"
#: A plain stop leaves pods alone and takes a fraction of a second; a disk that hangs gets its bounds.
STOP_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.05
ENDED_STATES = ("inactive", "failed")
ABSENT_STATES = ("not-found", "")
ENABLED_STATES = ("enabled", "enabled-runtime", "linked", "linked-runtime")


class UnitState:
    """What the service manager says of the unit."""

    def __init__(self, load: str, active: str, enabled: str) -> None:
        self.is_there = load not in ABSENT_STATES
        self.is_active = self.is_there and active not in ENDED_STATES
        self.is_enabled = self.is_there and enabled in ENABLED_STATES


async def own_unit_state() -> UnitState:
    """Raises BusError, but for a unit that is not there."""
    try:
        return await ask_once(system_bus_address(), _read_unit_state)
    except BusRefused as error:
        if error.name.endswith(("NoSuchUnit", "UnknownMethod")):
            return UnitState("", "", "")
        raise


async def _read_unit_state(bus: Bus) -> UnitState:
    (path,) = await bus.method(SYSTEMD, "LoadUnit", "s", OWN_UNIT, answer="o")
    unit = DBusAddress(path, SYSTEMD.bus_name, UNIT_INTERFACE)
    values = [str(await bus.get(unit, name)) for name in ("LoadState", "ActiveState", "UnitFileState")]
    return UnitState(*values)


async def remove_unit(dry_run: bool) -> Step:
    """Stop it and take it out of the boot; its files are the package's."""
    try:
        found = await own_unit_state()
        if not found.is_active and not found.is_enabled:
            return Step("unit", OWN_UNIT, "nothing", "it neither runs nor is enabled")
        if dry_run:
            return Step("unit", OWN_UNIT, "would", "stop and disable it")
        await ask_once(system_bus_address(), _stop_and_disable)
        return Step("unit", OWN_UNIT, "done", "stopped and disabled")
    except (BusError, trio.TooSlowError) as error:
        why = str(error) or f"it has not ended after {span_s(STOP_SECONDS_MAX)}"
        return Step("unit", OWN_UNIT, "failed", why)


async def _stop_and_disable(bus: Bus) -> None:
    # Disabled first: should this end halfway, the next boot at least does not arm the node again.
    await bus.method(SYSTEMD, "DisableUnitFiles", "asb", [OWN_UNIT], False)
    await bus.method(SYSTEMD, "Reload", "")
    await bus.method(SYSTEMD, "StopUnit", "ss", OWN_UNIT, "replace")
    with trio.fail_after(STOP_SECONDS_MAX):
        while (await _read_unit_state(bus)).is_active:
            await trio.sleep(LOOK_SECONDS)


# --- what Ebbtide wrote on this machine: logind's drop-in, the state of this boot, its journal ---


#: In the runtime folder; a journal that had to move there is a journal.
BOOT_FILES = ("daemon.lock", "ebbtide.sock", "metrics.sock", "view", "cri", "process")
#: In a journal's folder (`events.disk`, `otel.meters`, `otel.delivery.cursor`, `ebbtide.shipping.cursor`).
JOURNAL_FILES = (
    *("*.ebj", "lock", "reserve", "metrics"),
    *("traces.json", "logs.json", "traces.lock", "shipped.json", "shipped.lock"),
)
#: Beside it, for the next boot.
LASTING_FILES = ("pods.json", "process.token", "alive", "alive.part")


async def remove_drop_in(dry_run: bool, root: Path = Path("/")) -> list[Step]:
    """Take the drop-in away, wherever a configuration had it, and have logind read its files again."""
    ours = [
        path for folder in DROP_IN_FOLDERS if (path := root / folder.lstrip("/") / DROP_IN_NAME).is_file()
    ]
    if not ours:
        place = root / DROP_IN_FOLDERS[1].lstrip("/") / DROP_IN_NAME
        return [Step("drop-in", str(place), "nothing", "it is not there")]
    if dry_run:
        would = "remove it; logind reads its files again"
        return [Step("drop-in", str(path), "would", would) for path in ours]
    steps = [_remove_path("drop-in", path) for path in ours]
    if any(step.result != "done" for step in steps):
        # With a file left, what logind would read is not what was there before.
        return steps
    files = DropIns(root)

    async def reload(bus: Bus) -> bool:
        # logind answers at once and reads its files some time later: only its limit shows when.
        await bus.method(SYSTEMD, "KillUnit", "ssi", LOGIND_UNIT, "all", SIGHUP)
        for pause_seconds in PAUSES_SECONDS:
            if await read_grant_ns(bus) == files.effective_ns():
                return True
            await trio.sleep(pause_seconds)
        return await read_grant_ns(bus) == files.effective_ns()

    limit = Step("logind's limit", LOGIND_UNIT, "done", "as its other files say")
    try:
        if not await ask_once(system_bus_address(), reload):
            why = f"it kept the old one: systemctl restart {LOGIND_UNIT}"
            limit = limit._replace(result="failed", reason=why)
    except BusError as error:
        why = f"{error}; the old one is kept until it reads its files"
        limit = limit._replace(result="failed", reason=why)
    return [*steps, limit]


def remove_journals(journals: Sequence[Path], lasting: Path, dry_run: bool) -> list[Step]:
    """The account itself: it cannot be had again."""
    steps = [_clear_folder("journal", path, JOURNAL_FILES, dry_run) for path in journals]
    return [*steps, _clear_folder("what was known of pods", lasting, LASTING_FILES, dry_run)]


def _clear_folder(what: str, folder: Path, names: Sequence[str], dry_run: bool) -> Step:
    try:
        ours = [
            path
            for path in sorted(folder.iterdir())
            if any(fnmatch.fnmatchcase(path.name, pattern) for pattern in names)
        ]
    except (FileNotFoundError, NotADirectoryError):
        return Step(what, str(folder), "nothing", "it is not there")
    if dry_run:
        result: StepResult = "would" if ours else "nothing"
        return Step(what, str(folder), result, f"remove {len(ours)} files and folders")
    failed = [step for step in (_remove_path(what, path) for path in ours) if step.result == "failed"]
    # With anything else in it the folder is somebody's, and stays.
    with suppress(OSError):
        folder.rmdir()
    return failed[0] if failed else Step(what, str(folder), "done" if ours else "nothing")


def _remove_path(what: str, path: Path) -> Step:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        return Step(what, str(path), "failed", error.strerror or str(error))
    return Step(what, str(path), "done")


# --- the kubelet -------------------------------------------------------------------------------

# A daemon starts it itself at the end of a shutdown after which the machine stays up. One that somebody has
# stopped for reasons of their own is left alone, so the journal is asked who it was.

KUBELET_STEP = "kubelet"


async def start_kubelet(unit: str, journals: Sequence[Path], dry_run: bool) -> Step:
    """Bounded as the daemon's own start of it."""
    kubelet = KubeletUnit(system_bus_address(), unit)
    sources = [DirectorySource(path) for path in journals if path.is_dir()]
    events = (record.event for record in History(sources).records())
    if not stopped_by_us(events, boot_id()) or await kubelet.active() is not False:
        return Step(KUBELET_STEP, unit, "nothing", "no shutdown of ours keeps it stopped")
    if dry_run:
        return Step(KUBELET_STEP, unit, "would", "start it: a shutdown of ours had stopped it")
    ended = await kubelet.start()
    if ended.result == "done":
        return Step(KUBELET_STEP, unit, "done", "started: a shutdown of ours had stopped it")
    return Step(KUBELET_STEP, unit, "failed", f"{ended.reason}: systemctl start {unit}")


def stopped_by_us(events: Iterable[Event], boot: str) -> bool:
    """In this boot, and not started by us since."""
    here, stopped = False, False
    for event in events:
        if isinstance(event, DaemonStarted):
            here = event.boot_id == boot
        elif isinstance(event, (StopKubelet, StartKubelet)):
            stopped = here and isinstance(event, StopKubelet)
    return here and stopped


# --- the Node in the API: exactly what we changed is taken back, by the daemon's own code for it ---

# A daemon does so itself after a cancel and at the next boot. What is left for here is a node whose daemon
# never came back. All that needs the extra ``node`` is imported in these functions: the rest of an uninstall
# has to work without it.


#: A person waits.
API_SECONDS_MAX = 10.0
ABSENT = 404


class NoOutlet:
    """An outlet that nobody reads."""

    async def put(self, *facts: Fact) -> None:
        """Nothing that is found out here is on record: there is no journal any more."""


async def restore_node(kubeconfig: Path | None, node: str, dry_run: bool) -> Step:
    """``kubeconfig`` None: as the pod that we run in."""
    import msgspec

    from ebbtide.actors.edges.kubernetes.calls import ApiNode, Unanswered, node_path
    from ebbtide.actors.edges.kubernetes.client import ApiClient
    from ebbtide.actors.edges.kubernetes.pods import PodStore
    from ebbtide.actors.edges.kubernetes.runtime import Writes
    from ebbtide.actors.interfaces import Ending

    heard: list[str] = []
    link = ApiClient(kubeconfig, lambda level, line: heard.append(line))
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        try:
            answer = await link.call("GET", node_path(node), seconds_max=API_SECONDS_MAX)
            if answer.code == ABSENT:
                return Step(NODE_STEP, node, "nothing", "there is no such Node")
            if not answer.ok:
                return Step(NODE_STEP, node, "failed", f"it cannot be read: HTTP {answer.code}")
            changes = ", ".join(our_changes(msgspec.json.decode(answer.body, type=ApiNode)))
            if not changes:
                return Step(NODE_STEP, node, "nothing", "nothing there is ours")
            if dry_run:
                return Step(NODE_STEP, node, "would", f"take back {changes}")
            said: list[str] = []
            writes = Writes(link, PodStore(), node, tell=lambda level, line: said.append(line))
            # The order of a daemon whose machine is up again: it takes back what a shutdown has announced.
            orders = (
                AnnounceNode(key="uninstall", ready=True),
                PublishLastBoot(key="uninstall", boot_id="", ending="unknown"),
            )
            with trio.move_on_after(API_SECONDS_MAX):
                for order in orders:
                    ending = writes.effects[type(order)](order, NoOutlet())
                    ended = ending if isinstance(ending, Ending) else await ending
                    if ended.result != "done":
                        said.append(ended.reason)
                        break
                else:
                    return Step(NODE_STEP, node, "done", f"took back {changes}")
            why = said[-1] if said else f"not done in {span_s(API_SECONDS_MAX)}"
            return Step(NODE_STEP, node, "failed", why)
        except Unanswered as error:
            # What the client has said first is the cause; that nobody answers is what follows from it.
            why = heard[0] if heard else f"{error}: run this again when the API server answers"
            return Step(NODE_STEP, node, "failed", why)
        finally:
            nursery.cancel_scope.cancel()


def our_changes(node: ApiNode) -> list[str]:
    """What on a Node is ours, in words."""
    from ebbtide.actors.edges.kubernetes.node_writes import (
        CERTIFICATE_ANNOTATION,
        LAST_BOOT_ANNOTATION,
        is_tainted,
        read_note,
    )

    changed = read_note(node)
    found = {
        "the taint": is_tainted(node),
        "unschedulable": changed.unschedulable,
        **{f"the condition {kind}": True for kind in changed.conditions},
        "the certificate": CERTIFICATE_ANNOTATION in node.metadata.annotations,
        "how the last boot ended": LAST_BOOT_ANNOTATION in node.metadata.annotations,
    }
    return [words for words, stands in found.items() if stands]
