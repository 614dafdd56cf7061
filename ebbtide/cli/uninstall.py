"""``ebbtide uninstall``: the node as it was before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ebbtide.cli.options import config_option, journal_option, output_option, runtime_option

if TYPE_CHECKING:
    from ebbtide.config import Loaded
    from ebbtide.options import RunOptions
    from ebbtide.places import Places
    from ebbtide.uninstall.steps import Step

UNINSTALL_VERSION = 1

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
    import trio

    from ebbtide.cli.guard import DONE, NOT_SO, Refused
    from ebbtide.cli.output import show_json
    from ebbtide.config import default_paths, load
    from ebbtide.options import RunOptions
    from ebbtide.uninstall.steps import holds

    if node_only and purge:
        raise Refused("--node-only touches no file of this machine: leave --purge out")
    options = RunOptions(
        configs, None, journal, runtime, mode="auto", kubeconfig=kubeconfig, node_name=node_name
    )
    loaded = load(configs or default_paths())
    places = _places(options, loaded, named=node_only or bool(kubeconfig or node_name))
    steps = trio.run(_all, options, loaded, places, dry_run, purge, node_only)
    if output == "json":
        show_json(document(steps, dry_run))
    else:
        _tell(steps)
    return DONE if holds(steps) else NOT_SO


async def _all(
    options: RunOptions, loaded: Loaded, places: Places | str, dry_run: bool, purge: bool, node_only: bool
) -> list[Step]:
    from ebbtide.places import kubelet_unit
    from ebbtide.runtimes import lasting_folder
    from ebbtide.uninstall import files, kubelet, unit

    journals = [options.journal, *map(Path, loaded.options.journal_fallbacks)]
    if node_only:
        return [await _node(options, places, dry_run)]
    await _refuse(options.runtime)
    steps = [await unit.remove(dry_run), *await files.lower_limit(dry_run)]
    steps.append(await _node(options, places, dry_run))
    steps.append(await kubelet.start(kubelet_unit(loaded.options.node), journals, dry_run))
    steps.append(files.clear_boot(options.runtime, dry_run))
    if purge:
        steps += files.purge(journals, lasting_folder(options), dry_run)
    return steps


async def _refuse(runtime: Path) -> None:
    """Not in a shutdown, and not under a daemon that the unit does not run: it would arm again."""
    from actors.edges.bus import BusError
    from ebbtide.claim import claimed_by
    from ebbtide.cli.guard import Refused
    from ebbtide.uninstall import unit

    if await unit.in_shutdown():
        raise Refused("this machine is going down: uninstall when it is up again")
    try:
        by_unit = (await unit.state()).is_active
    except BusError:
        by_unit = False
    owner = claimed_by(runtime)
    if owner and not by_unit:
        raise Refused(
            f"ebbtide (process {owner}) runs here, and not as the unit: end it first (a DaemonSet: delete it)"
        )


def _places(options: RunOptions, loaded: Loaded, named: bool) -> Places | str:
    """Or why the Node cannot be asked here; nothing is changed before this is known. ``named``: somebody says
    which Node, or who asks. Raises Refused.
    """
    from ebbtide.cli.guard import Refused
    from ebbtide.places import Unfit, find

    try:
        places = find(options, loaded.options.node)
    except Unfit as error:
        if named:
            raise Refused(str(error)) from None
        return str(error)
    path = places.kubeconfig
    if path is None or path.exists():
        return places
    if named:
        raise Refused(f"there is no kubeconfig {path}: name one with --kubeconfig PATH")
    return f"no identity for the API is here ({path} is not there): name one with --kubeconfig PATH"


async def _node(options: RunOptions, places: Places | str, dry_run: bool) -> Step:
    """A machine whose daemon was never a node's changed nothing there."""
    from ebbtide.doctor.gather import look_at_journal
    from ebbtide.uninstall.cluster import WHAT, changed_by, restore
    from ebbtide.uninstall.steps import Step

    if not isinstance(places, str):
        return await restore(places.kubeconfig, places.node, dry_run)
    if changed_by(look_at_journal(options.journal).mode):
        return Step(WHAT, options.node_name or "", "failed", f"what stands there is not known: {places}")
    return Step(WHAT, options.node_name or "", "nothing", places)


def document(steps: list[Step], dry_run: bool) -> dict[str, Any]:
    return {
        "kind": "Uninstall",
        "version": UNINSTALL_VERSION,
        "dryRun": dry_run,
        "steps": [step._asdict() for step in steps],
    }


def _tell(steps: list[Step]) -> None:
    from ebbtide.cli.output import show, table

    rows = [(step.result, step.what, step.target, step.reason) for step in steps]
    show(table(("RESULT", "WHAT", "WHERE", "REASON"), rows))
