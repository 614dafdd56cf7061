"""Which edge ends this node's pods: local processes, or containers through the runtime's socket."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from actors.interfaces import Edge
from ebbtide.config import Loaded
from ebbtide.options import RunOptions
from ebbtide.surroundings import Tell
from events.model import Pod

#: Where runtimes listen, in the order in which the kubelet's own tools look.
SOCKETS = (
    Path("/run/containerd/containerd.sock"),
    Path("/run/crio/crio.sock"),
    Path("/run/k3s/containerd/containerd.sock"),
)
#: What the extra ``node`` brings.
NEEDED = ("grpc", "google.protobuf", "trio_asyncio")


class PodRuntime(Edge, Protocol):
    """An edge that has pods."""

    def active(self) -> list[Pod]:
        """The pods that a shutdown would have to end."""

    def pass_on(self, context: Callable[[str], str]) -> None:
        """Give each order's trace context, by its key, to whatever it calls."""


class NoRuntime(Exception):
    """Mode cri cannot be had here; the text says what to do."""


def state_folder(options: RunOptions) -> Path:
    """What the edges of a mode keep until the boot ends."""
    return options.runtime / options.mode


def runtime_of(options: RunOptions, loaded: Loaded, tell: Tell) -> PodRuntime:
    """Raises OSError, NoRuntime."""
    return _RUNTIMES[options.mode](options, loaded, tell)


def _process(options: RunOptions, loaded: Loaded, tell: Tell) -> PodRuntime:
    from actors.edges.process.edge import ProcessEdge
    from ebbtide.manifests import local_pods

    read = partial(local_pods, allow_zero_sleep=loaded.settings.gate("PodLifecycleSleepActionAllowZero"))
    return ProcessEdge(
        state_folder(options), manifests=options.pods, load=read, capture_lines=options.capture_lines
    )


def _cri(options: RunOptions, loaded: Loaded, tell: Tell) -> PodRuntime:
    from actors.edges.cri.edge import CriEdge

    path = cri_socket(options.cri)
    if not path.exists():
        tell(4, f"nothing listens at {path} yet: its pods are known when the container runtime comes")
    return CriEdge(f"unix://{path}", state_folder(options), tell=tell)


def cri_socket(given: Path | None) -> Path:
    """The runtime's socket: the given one, or the first that is there. Raises NoRuntime.

    The given one may come later: a node whose runtime is slow to start is to be armed all the same.
    """
    missing = [name for name in NEEDED if find_spec(name.partition(".")[0]) is None]
    if missing:
        raise NoRuntime(f"mode cri needs {', '.join(missing)}: pip install 'ebbtide[node]'")
    if given is not None and given.exists() and not given.is_socket():
        raise NoRuntime(f"{given} is not a socket: name the container runtime's with --cri PATH")
    found = given or next((path for path in SOCKETS if path.is_socket()), None)
    if found is None:
        looked = ", ".join(map(str, SOCKETS))
        raise NoRuntime(f"no container runtime listens at {looked}: name its socket with --cri PATH")
    return found.absolute()


_RUNTIMES: dict[str, Callable[[RunOptions, Loaded, Tell], PodRuntime]] = {"process": _process, "cri": _cri}
