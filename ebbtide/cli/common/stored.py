"""Journals of outages in the API server, named ``configmaps:NAMESPACE/NODE`` in place of a directory.

NODE is the Node's name or its UID. The journal is read once, into memory; nothing is written. Credentials
are kubectl's.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ebbtide.cli.common.guard import Refused
from ebbtide.cli.common.shared_options import SCHEME, is_stored
from ebbtide.events.units import span_s

if TYPE_CHECKING:
    from ebbtide.cli.outage.outage_common import Cluster
    from ebbtide.events.catalog import Source

#: A journal of some MiB takes a second.
READ_SECONDS_MAX = 30.0


def stored_source(place: Path) -> Source:
    """The journal at a command's first call; later calls return the same. Raises Refused."""
    context = click.get_current_context(silent=True)
    # A command reads a journal several times, and must see the same records each time.
    read: dict[str, Source] = {} if context is None else context.meta.setdefault(__name__, {})
    name = str(place)
    if name not in read:
        read[name] = _read(name)
    return read[name]


def _read(name: str) -> Source:
    from ebbtide.cli.outage.outage_common import ask_cluster, chosen_kubeconfig

    namespace, slash, node = name.removeprefix(SCHEME).partition("/")
    if not (namespace and slash and node) or "/" in node:
        raise Refused(f"{name}: write {SCHEME}NAMESPACE/NODE, with the Node's name or UID")

    async def look(cluster: Cluster) -> Source | str:
        import trio

        from ebbtide.actors.edges.kubernetes.config_maps import read_journal

        with trio.move_on_after(READ_SECONDS_MAX):
            try:
                return await read_journal(cluster.caller, namespace, node)
            except (LookupError, OSError) as error:
                return str(error.args[0]) if isinstance(error, LookupError) else error.strerror or str(error)
        return f"the API server does not answer within {span_s(READ_SECONDS_MAX)}"

    found = ask_cluster(chosen_kubeconfig(None), look)
    if isinstance(found, str):
        raise Refused(f"{name}: {found}")
    return found


def refuse_following(journals: tuple[Path, ...]) -> None:
    """It is read once, so it cannot be followed. Raises Refused."""
    for place in journals:
        if is_stored(place):
            raise Refused(f"{place} is read once, and cannot be followed: leave -f out, and ask again")
