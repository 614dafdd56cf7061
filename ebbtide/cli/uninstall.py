"""``ebbtide uninstall``: the node as it was before, with an account of each step.

In this order: the host's unit, stopped and disabled, so that nothing arms this node again; logind's
drop-in; the Node in the API (`ebbtide.cli.uninstall_node`); the kubelet's unit, if it was a shutdown of
ours that stopped it and nobody has started it since; the state of this boot and, if asked, the journal.
Only names that Ebbtide gives itself are removed, whatever folder somebody names: a folder goes when it is
empty. A shutdown that runs is not cut off: whoever asked for it is waiting for pods that would then be
killed.
"""

from __future__ import annotations

import fnmatch
import shutil
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import click
import trio
from jeepney import DBusAddress

from ebbtide.actors.edges.kubelet import KubeletUnit
from ebbtide.actors.edges.linux.bus import Bus, BusError, BusRefused, ask_once, system_bus_address
from ebbtide.actors.edges.linux.proc import boot_id
from ebbtide.actors.edges.logind.drop_ins import DROP_IN_FOLDERS, DROP_IN_NAME, DropIns
from ebbtide.actors.edges.logind.edge import PAUSES_SECONDS, SIGHUP
from ebbtide.actors.edges.logind.manager import (
    LOGIND_UNIT,
    read_grant_ns,
    read_preparing,
)
from ebbtide.actors.edges.service_manager import SYSTEMD
from ebbtide.cli.common.options import config_option, journal_option, output_option, runtime_option
from ebbtide.doctor.gather import running_pods
from ebbtide.events.base import Event
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import StartKubelet, StopKubelet
from ebbtide.events.facts import DaemonStarted
from ebbtide.events.reader import History

if TYPE_CHECKING:
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
@click.option("--kubeconfig", metavar="PATH", help="As for 'ebbtide run'.")
@click.option("--node-name", metavar="NAME", help="As for 'ebbtide run'.")
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
    from ebbtide.cli.common.guard import DONE, NOT_SO, Refused
    from ebbtide.cli.common.output import show, show_json, table
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
    return DONE if all_done(steps) else NOT_SO


async def _uninstall_steps(
    node: LocalNode, parts: NodeParts | str, dry_run: bool, purge: bool, node_only: bool
) -> list[Step]:
    from ebbtide.modes import kubelet_unit, lasting_folder

    options, loaded = node.options, node.configuration
    journals = [options.journal, *map(Path, loaded.options.journal_fallbacks)]
    if node_only:
        return [await _restore_node(node, parts, dry_run)]
    # Not in a shutdown, and not under a daemon that the unit does not run: it would arm again.
    from ebbtide.cli.common.guard import Refused
    from ebbtide.host import runtime_lock_owner

    if await in_shutdown():
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
    steps.append(remove_boot_state(options.runtime, dry_run))
    if purge:
        steps += remove_journals(journals, lasting_folder(options), dry_run)
    return steps


def _find_parts(node: LocalNode, named: bool) -> NodeParts | str:
    """Or why the Node cannot be asked here; nothing is changed before this is known. ``named``: somebody says
    which Node, or who asks. Raises Refused.
    """
    from ebbtide.cli.common.guard import Refused
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
        # Needs the extra ``node``, which is there: `_find_parts` has looked.
        from ebbtide.cli.uninstall_node import restore_node

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


# One step of the way back: what it is about, and how it ended.


#: ``nothing``: there was nothing to do; ``would``: a dry run, or it is left on purpose; see the reason.
StepResult = Literal["done", "nothing", "would", "kept", "failed"]


class Step(NamedTuple):
    """``target`` is a unit, a path or a Node; ``reason`` says why, or what to do."""

    what: str
    target: str
    result: StepResult
    reason: str = ""


def all_done(steps: list[Step]) -> bool:
    """Is the node as it was, or would it be?"""
    return all(step.result != "failed" for step in steps)


OWN_UNIT = "ebbtide.service"
UNIT_INTERFACE = "org.freedesktop.systemd1.Unit"
#: A plain stop leaves pods alone and takes a fraction of a second; a disk that hangs gets its bounds.
STOP_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.05
ENDED_STATES = ("inactive", "failed")
ABSENT_STATES = ("not-found", "")
ENABLED_STATES = ("enabled", "enabled-runtime", "linked", "linked-runtime")

T = TypeVar("T")


class UnitState:
    """What the service manager says of the unit."""

    def __init__(self, load: str, active: str, enabled: str) -> None:
        self.is_there = load not in ABSENT_STATES
        self.is_active = self.is_there and active not in ENDED_STATES
        self.is_enabled = self.is_there and enabled in ENABLED_STATES


async def ask_system_bus(work: Callable[[Bus], Awaitable[T]]) -> T:
    """One conversation on the system bus. Raises BusError."""
    return await ask_once(system_bus_address(), work)


async def in_shutdown() -> bool:
    """Whether logind prepares one; without logind nobody does."""
    try:
        return await ask_system_bus(read_preparing)
    except BusError:
        return False


async def own_unit_state() -> UnitState:
    """Raises BusError, but for a unit that is not there."""
    try:
        return await ask_system_bus(_read_unit_state)
    except BusRefused as error:
        if error.name.endswith(("NoSuchUnit", "UnknownMethod")):
            return UnitState("", "", "")
        raise


async def _read_unit_state(bus: Bus) -> UnitState:
    (path,) = await bus.method(SYSTEMD, "LoadUnit", "s", OWN_UNIT)
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
        await ask_system_bus(_stop_and_disable)
        return Step("unit", OWN_UNIT, "done", "stopped and disabled")
    except (BusError, trio.TooSlowError) as error:
        why = str(error) or f"it has not ended after {STOP_SECONDS_MAX:g} s"
        return Step("unit", OWN_UNIT, "failed", why)


async def _stop_and_disable(bus: Bus) -> None:
    await bus.method(SYSTEMD, "DisableUnitFiles", "asb", [OWN_UNIT], False)
    await bus.method(SYSTEMD, "Reload", "")
    await bus.method(SYSTEMD, "StopUnit", "ss", OWN_UNIT, "replace")
    with trio.fail_after(STOP_SECONDS_MAX):
        while (await _read_unit_state(bus)).is_active:
            await trio.sleep(LOOK_SECONDS)


# What Ebbtide wrote on this machine: logind's drop-in, the state of this boot, and, if asked, its journal.


#: In the runtime folder; a journal that had to move there is a journal.
BOOT_FILES = ("daemon.lock", "ebbtide.sock", "metrics.sock", "cri", "process")
#: In a journal's folder (events.storage, otel.metrics.kept, otel.delivery.cursor).
JOURNAL_FILES = ("*.ebj", "lock", "reserve", "metrics", "traces.json", "logs.json", "traces.lock")
#: Beside it, for the next boot.
LASTING_FILES = ("pods.json",)


async def remove_drop_in(dry_run: bool, root: Path = Path("/")) -> list[Step]:
    """Take the drop-in away, wherever a configuration had it, and have logind read its files again."""
    ours = [
        path for folder in DROP_IN_FOLDERS if (path := root / folder.lstrip("/") / DROP_IN_NAME).is_file()
    ]
    if not ours:
        return [
            Step(
                "drop-in",
                str(root / DROP_IN_FOLDERS[1].lstrip("/") / DROP_IN_NAME),
                "nothing",
                "it is not there",
            )
        ]
    if dry_run:
        return [
            Step("drop-in", str(path), "would", "remove it; logind reads its files again") for path in ours
        ]
    steps = [_remove_path("drop-in", path) for path in ours]
    if all(step.result == "done" for step in steps):
        steps.append(await _reload_logind(DropIns(root)))
    return steps


async def _reload_logind(files: DropIns) -> Step:
    async def work(bus: Bus) -> bool:
        await bus.method(SYSTEMD, "KillUnit", "ssi", LOGIND_UNIT, "all", SIGHUP)
        for pause_seconds in PAUSES_SECONDS:
            if await read_grant_ns(bus) == files.effective_ns():
                return True
            await trio.sleep(pause_seconds)
        return await read_grant_ns(bus) == files.effective_ns()

    try:
        if await ask_system_bus(work):
            return Step("logind's limit", LOGIND_UNIT, "done", "as its other files say")
        return Step(
            "logind's limit", LOGIND_UNIT, "failed", f"it kept the old one: systemctl restart {LOGIND_UNIT}"
        )
    except BusError as error:
        return Step(
            "logind's limit", LOGIND_UNIT, "failed", f"{error}; the old one is kept until it reads its files"
        )


def remove_boot_state(runtime: Path, dry_run: bool) -> Step:
    """The state of this boot. Local pods that still run are known from there alone."""
    if running_pods(runtime):
        return Step(
            "state of this boot", str(runtime), "kept", "pods of mode process run: they are left alone"
        )
    return _clear_folder("state of this boot", runtime, BOOT_FILES, dry_run)


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
        return Step(
            what, str(folder), "would" if ours else "nothing", f"remove {len(ours)} files and folders"
        )
    failed = [step for step in (_remove_path(what, path) for path in ours) if step.result == "failed"]
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


# A daemon does that itself at the end of a shutdown after which the machine stays up. One that somebody has
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
