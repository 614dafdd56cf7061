"""Journals of outages in the API server, named ``configmaps:NAMESPACE/NODE`` in place of a directory.

NODE is the Node's name or its UID. The journal is read once, into memory; nothing is written. Credentials
are kubectl's: the first existing file of KUBECONFIG, ``~/.kube/config``, the service account of our own
pod.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ebbtide.cli.common.guard import Refused
from ebbtide.cli.common.shared_options import SCHEME, is_stored
from ebbtide.events.units import span_s

if TYPE_CHECKING:
    from ebbtide.events.catalog import Source

#: For the help of an option.
FORM = f"{SCHEME}NAMESPACE/NODE"

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
    from ebbtide.extras import require

    namespace, slash, node = name.removeprefix(SCHEME).partition("/")
    if not (namespace and slash and node) or "/" in node:
        raise Refused(f"{name}: write {FORM}, with the Node's name or UID")
    require("node", FORM)
    import trio

    kubeconfig = find_kubeconfig()
    try:
        return trio.run(_ask, kubeconfig, namespace, node)
    except (LookupError, OSError) as error:
        text = error.args[0] if isinstance(error, LookupError) else error.strerror or str(error)
        raise Refused(f"{name}: {text}") from None


def find_kubeconfig() -> Path | None:
    """kubectl's choice; None: the service account of our own pod. Raises Refused."""
    from ebbtide.modes import in_a_pod

    # kubectl merges the files of KUBECONFIG; in one file a context has its plain meaning.
    named = [Path(each) for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    for path in named or [Path.home() / ".kube" / "config"]:
        if path.is_file():
            return path
    if in_a_pod() and not named:
        return None
    places = ", ".join(map(str, named)) or "~/.kube/config"
    raise Refused(f"no kubeconfig at {places}: name one with KUBECONFIG=FILE")


async def _ask(kubeconfig: Path | None, namespace: str, node: str) -> Source:
    import trio

    from ebbtide.actors.edges.kubernetes.api_client import ApiClient
    from ebbtide.actors.edges.kubernetes.config_maps import ConfigMapSource, read_journal

    source: ConfigMapSource | None = None
    error: Exception | None = None
    # The error also has the client's text about an unreachable server.
    link = ApiClient(kubeconfig)
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        with trio.move_on_after(READ_SECONDS_MAX):
            # Catch it here: out of a nursery it would come in a group.
            try:
                source = await read_journal(link, namespace, node)
            except (LookupError, OSError) as raised:
                error = raised
        nursery.cancel_scope.cancel()
    if source is None:
        raise error or OSError(f"the API server does not answer within {span_s(READ_SECONDS_MAX)}")
    return source


def refuse_following(journals: tuple[Path, ...]) -> None:
    """It is read once, so it cannot be followed. Raises Refused."""
    for place in journals:
        if is_stored(place):
            raise Refused(f"{place} is read once, and cannot be followed: leave -f out, and ask again")
