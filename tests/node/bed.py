"""A whole real Kubernetes node: etcd, control plane, containerd, kubelet, kube-proxy, beside a real logind.

All of it runs in namespaces of its own (`tests.node.inside`), with sockets, logs and configurations in one
folder outside. The API server is reached on the machine's loopback, CRI and the bus on their sockets; what
needs the nodes' network or files enters them (`Bed.enter`, `Bed.network`).
"""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import trio

from tests.beds import logind
from tests.beds.inside import Inside
from tests.beds.logind import LogindBed, logind_bed
from tests.beds.rootfs import Unavailable
from tests.node import groups, image, parts, programs
from tests.node.client import POLL_SECONDS, Api, Refused, condition
from tests.node.identities import ADMIN, Secrets
from tests.node.parts import Member, Part

#: Not under a folder that the node has a layer over, and short: a socket's path has 108 bytes.
BASE = Path("/tmp")
UNSHARE = ("unshare", "--mount", "--propagation", "private", "--net", "--pid", "--fork", "--kill-child", "--")
START_SECONDS_MAX = 60
CLONE_NEWNET = 0x40000000


class Bed:
    """A bed that is up. ``api`` asks as the administrator; ``times`` has the seconds that each step took."""

    def __init__(
        self, folder: Path, inside: Inside, bus: LogindBed, server: str, names: Sequence[str]
    ) -> None:
        self.folder, self.inside, self.logind, self.server = folder, inside, bus, server
        self.members = {name: Member(name, at, folder) for at, name in enumerate(names, 1)}
        self.programs = programs.all_kubernetes()
        self.secrets = Secrets(folder / "secrets")
        self.secrets.folder.mkdir()
        self.secrets.write(tuple(names))
        self.kubeconfig = self.secrets.kubeconfig(ADMIN, server, "admin")
        self.api = Api(server, self.secrets.authority, ADMIN.token)
        self.group = groups.name_for(folder)
        self.times: dict[str, float] = {}

    @property
    def pid(self) -> int:
        """The node's first process, as the machine counts."""
        children = Path(f"/proc/{self.inside.pid}/task/{self.inside.pid}/children").read_text()
        return int(children.split()[0])

    @property
    def root(self) -> Path:
        """The node's files, seen from the machine."""
        return Path(f"/proc/{self.pid}/root")

    @property
    def enter(self) -> list[str]:
        """Put before a command, it runs in the node."""
        return ["nsenter", "-t", str(self.pid), "-m", "-n", "-p", "--"]

    @contextlib.contextmanager
    def network(self) -> Iterator[None]:
        """Sockets that this thread opens inside the block are in the node's network."""
        with open("/proc/thread-self/ns/net") as ours, open(f"/proc/{self.pid}/ns/net") as theirs:
            _enter_network(theirs.fileno())
            try:
                yield
            finally:
                _enter_network(ours.fileno())

    def log(self, name: str) -> str:
        return (self.folder / "log" / f"{name}.log").read_text(errors="replace")

    async def run(self, *argv: str) -> str:
        """What a command says that runs in the node and ends by itself. Raises RuntimeError."""
        return str(await self.inside.do("run", argv=list(argv)))

    async def start(self, part: Part) -> None:
        await self.inside.do("start", name=part.name, argv=part.argv, environ=part.environ)

    async def stop(self, name: str, **how: int) -> None:
        """SIGKILL, or another ``signal_number``; waits until it has gone."""
        await self.inside.do("stop", name=name, **how)

    async def start_api(self) -> None:
        """The API server, and wait until it is ready."""
        program = self.programs["kube-apiserver"]
        await self.start(parts.api_server(program, self.secrets, self.folder / "state"))
        await self.ready("kube-apiserver", self._api_answers)

    async def start_containerd(self, member: Member) -> None:
        """With its network, and wait until it answers."""
        net = self.root / str(member.state / "net.d").lstrip("/")
        net.mkdir(parents=True, exist_ok=True)
        (net / "pods.conflist").write_text(parts.network(member))
        part = parts.containerd(member)
        await self.start(part)
        await self.ready(part.name, lambda: self._said("ctr", "-a", str(member.socket), "version"))

    async def start_kubelet(self, member: Member, **changes: Any) -> None:
        """With these settings changed, and wait until the node is Ready."""
        (self.root / str(member.state / parts.MANIFESTS).lstrip("/")).mkdir(parents=True, exist_ok=True)
        group = groups_of(self.group, member)
        await self.inside.do("group", name=group)
        program = self.programs["kubelet"]
        bus = self.logind.address
        await self.start(parts.kubelet_part(program, self.secrets, member, self.group, bus, changes))

    async def node_ready(self, member: Member) -> None:
        await self.ready(f"kubelet-{member.name}", lambda: self._is_ready(member))

    async def load_image(self, member: Member) -> None:
        archive = self.folder / "image.tar"
        if not archive.exists():
            await trio.to_thread.run_sync(image.pack, archive)
        await self.run("ctr", "-a", str(member.socket), "-n", "k8s.io", "images", "import", str(archive))

    async def ready(self, name: str, answers: Any) -> None:
        """Wait until a part answers. Raises Unready with the end of its log."""
        with trio.move_on_after(START_SECONDS_MAX):
            while await self.inside.do("exited", name=name) is None:
                if await answers():
                    return
                await trio.sleep(POLL_SECONDS)
        raise Unready(f"{name} does not get ready:\n{self.log(name)[-3000:]}")

    async def _api_answers(self) -> bool:
        with contextlib.suppress(OSError, Refused):
            return bool(await self.api.get("/readyz"))
        return False

    async def _is_ready(self, member: Member) -> bool:
        with contextlib.suppress(OSError, Refused):
            return condition(await self.api.get(f"/api/v1/nodes/{member.name}"), "Ready") == "True"
        return False

    async def _said(self, *argv: str) -> bool:
        with contextlib.suppress(RuntimeError):
            return bool(await self.run(*argv))
        return False

    async def bring_up(self, changes: dict[str, Any]) -> None:
        """All parts, each as soon as what it needs is there."""
        began = time.monotonic()
        state = self.folder / "state"
        await self.run("ip", "link", "set", "lo", "up")
        for member in self.members.values():
            await self.run("ip", "address", "add", f"{member.address}/32", "dev", "lo")
        await self.start(parts.etcd(state))
        async with trio.open_nursery() as nursery:
            for member in self.members.values():
                nursery.start_soon(self._bring_runtime_up, member)
            await self.start_api()
            self.times["api"] = time.monotonic() - began
            await self._start_control_plane()
        self.times["containerd"] = time.monotonic() - began
        for member in self.members.values():
            await self.start_kubelet(member, **changes)
        for member in self.members.values():
            await self.node_ready(member)
        self.times["ready"] = time.monotonic() - began

    async def _bring_runtime_up(self, member: Member) -> None:
        await self.start_containerd(member)
        await self.load_image(member)

    async def _start_control_plane(self) -> None:
        first = next(iter(self.members.values()))
        await self.start(parts.controllers(self.programs["kube-controller-manager"], self.secrets))
        await self.start(parts.scheduler(self.programs["kube-scheduler"], self.secrets))
        await self.start(parts.proxy(self.programs["kube-proxy"], self.secrets, first))


class Unready(Exception):
    """A part of the node did not get ready; says which, and what it logged last."""


def groups_of(group: str, member: Member) -> str:
    return f"{group}/{member.name}"


def _enter_network(descriptor: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def need() -> None:
    """Raises Unavailable: why no node can be had here."""
    if reason := logind.missing():
        raise Unavailable(reason)
    programs.need_packages()
    programs.all_kubernetes()


@contextlib.asynccontextmanager
async def node_bed(names: Sequence[str] = ("node-1",), **kubelet: Any) -> AsyncIterator[Bed]:
    """A node (or several) that is Ready; ``kubelet`` changes its settings.

    Leaving ends and removes all of it. Raises Unavailable, Unready.
    """
    await trio.to_thread.run_sync(need)
    groups.sweep()
    async with logind_bed() as bus:
        folder = Path(tempfile.mkdtemp(prefix="node.", dir=BASE))
        for name in ("state", "log"):
            (folder / name).mkdir()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            server = f"https://127.0.0.1:{listening.getsockname()[1]}"
            words = (groups.name_for(folder), str(listening.fileno()), str(parts.API_PORT))
            namespace = (*bus.enter, *UNSHARE)
            fds = (listening.fileno(),)
            inside = Inside("tests.node.inside", folder, *words, namespace=namespace, pass_fds=fds)
        try:
            bed = Bed(folder, inside, bus, server, names)
            await bed.bring_up(kubelet)
            yield bed
        finally:
            inside.close()
            groups.remove(groups.name_for(folder))
            shutil.rmtree(folder, ignore_errors=True)
