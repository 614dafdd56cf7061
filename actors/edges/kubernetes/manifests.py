"""Static pods as their manifests have them: for a node whose API server has never shown their mirrors.

A control plane's own API server is a static pod. With it gone, and no cache, the kubelet's folder still says
which of the running pods are critical.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import trio
import yaml

from actors.edges.inotify import FolderWatch
from actors.edges.kubernetes.calling import Known
from actors.edges.kubernetes.projection import PodObject, known

#: A manifest is a few KiB; a folder of static pods holds a handful.
MANIFEST_BYTES_MAX = 1024 * 1024
MANIFESTS_MAX = 250
#: Without inotify the folder is looked at again so often.
LOOK_SECONDS = 30.0


def read(path: Path, node: str) -> list[Known]:
    """The static pods of a manifest, or of a folder of them, named as the kubelet names their mirrors.

    What cannot be read is passed over: the kubelet does not run it either. For a thread.
    """
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
    except OSError:
        return []
    found = [_read(file, node) for file in files if not file.name.startswith(".")]
    return [each for each in found if each is not None][:MANIFESTS_MAX]


def _read(file: Path, node: str) -> Known | None:
    try:
        with open(file, "rb") as opened:
            document = yaml.load(opened.read(MANIFEST_BYTES_MAX), Loader=_Loader)
        pod = msgspec.convert(document, PodObject)
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        return None
    return _named(known(pod), node) if pod.metadata.name else None


def _named(pod: Known, node: str) -> Known:
    """Its UID is a hash that the kubelet makes, so it is found by name. Static pods tolerate everything."""
    return msgspec.structs.replace(
        pod,
        namespace=pod.namespace or "default",
        name=f"{pod.name}-{node.lower()}",
        static=True,
        tolerates_all=True,
        uid="",
        api_uid="",
    )


class _Loader(yaml.SafeLoader):
    """Times stay text, as in JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


async def follow(path: Path, node: str, take: Callable[[list[Known]], None]) -> None:
    """Read at once and again whenever the folder changes, until cancelled."""
    folder = path if path.is_dir() else path.parent
    try:
        watch: FolderWatch | None = FolderWatch([folder])
    except OSError:
        watch = None
    try:
        while True:
            take(await trio.to_thread.run_sync(read, path, node, abandon_on_cancel=True))
            with trio.move_on_after(LOOK_SECONDS if watch is None else float("inf")):
                await (trio.sleep_forever() if watch is None else watch.changed())
    finally:
        if watch is not None:
            watch.close()
