"""A whole Kubernetes node: etcd, control plane, containerd, kubelet, kube-proxy, beside a real logind.

It runs in its own namespaces (`tests.node.inside`); sockets, logs and configuration are in one folder
outside. The machine's loopback reaches the API server; sockets reach CRI and the bus. Use `Bed.enter` and
`Bed.network` for the nodes' files and network.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import trio

from tests.beds.inside import Inside
from tests.beds.logind import Inhibitor, LogindBed
from tests.node import image, parts, programs, remains
from tests.node.client import POLL_SECONDS, Api, Refused, condition
from tests.node.identities import ADMIN, Secrets
from tests.node.inside import CONTROL
from tests.node.parts import Member, Part
from tests.waiting import WATCHDOG_SECONDS, until

UNSHARE = ("unshare", "--mount", "--propagation", "private", "--net", "--pid", "--fork", "--kill-child", "--")
#: Log lines about the lock, if a kubelet has none.
LOCK_LINES = 20
CLONE_NEWNET = 0x40000000


class Bed:
    """The parts, each to start and stop. ``api`` is the administrator; ``times`` has the seconds of each step
    since the start.

    `open` creates everything; `close` removes everything, whatever happened.
    """

    def __init__(self, folder: Path, bus: LogindBed, listening: socket.socket, names: Sequence[str]) -> None:
        self.folder, self.logind = folder, bus
        self.members = {name: Member(name, at, folder) for at, name in enumerate(names, 1)}
        self.programs = programs.all_kubernetes()
        for name in ("state", "log", "secrets"):
            (folder / name).mkdir()
        self.secrets = Secrets(folder / "secrets")
        self.secrets.write(tuple(names), [member.address for member in self.members.values()])
        self.server = f"https://127.0.0.1:{listening.getsockname()[1]}"
        self.kubeconfig = self.secrets.kubeconfig(ADMIN, self.server, "admin")
        self.api = Api(self.server, self.secrets.authority, ADMIN.token)
        self.group = folder.name
        self.times: dict[str, float] = {}
        #: By node: wraps the kubelet's start (`tests.node.machines`).
        self.around: dict[str, Callable[[Part], Part]] = {}
        self._listening = listening
        self._inside: Inside | None = None

    def open(self) -> None:
        """Create the namespaces. They inherit logind's files, so logind must run."""
        descriptor = self._listening.fileno()
        self._inside = Inside(
            "tests.node.inside",
            self.folder,
            self.group,
            str(descriptor),
            str(parts.API_PORT),
            namespace=(*self.logind.enter, *UNSHARE),
            pass_fds=(descriptor,),
        )
        self._listening.close()

    async def name_units(self) -> None:
        """Register the kubelets as units of the service manager: `Member.unit`."""
        units = {member.unit: f"kubelet-{member.name}" for member in self.members.values()}
        await self.logind.do("units", control=str(self.folder / CONTROL), units=units)

    def close(self) -> None:
        if self._inside is not None:
            self._inside.close()
        remains.remove(self.group)

    @property
    def inside(self) -> Inside:
        assert self._inside is not None, "the bed is not open"
        return self._inside

    @property
    def pid(self) -> int:
        """The node's first process, as the machine counts."""
        children = Path(f"/proc/{self.inside.pid}/task/{self.inside.pid}/children").read_text()
        return int(children.split()[0])

    @property
    def root(self) -> Path:
        """The node's files, seen from the machine."""
        return Path(f"/proc/{self.pid}/root")

    def place(self, path: Path) -> Path:
        """A node's path, seen from the machine."""
        return self.root / path.relative_to("/")

    @property
    def enter(self) -> list[str]:
        """A command prefix that enters the node."""
        return ["nsenter", "-t", str(self.pid), "-m", "-n", "-p", "--"]

    @contextlib.contextmanager
    def network(self) -> Iterator[None]:
        """Sockets created in the block stay in the node's network. Never wait inside: new threads would
        stay there.
        """
        with open("/proc/thread-self/ns/net") as ours, open(f"/proc/{self.pid}/ns/net") as theirs:
            _enter_network(theirs.fileno())
            try:
                yield
            finally:
                _enter_network(ours.fileno())

    async def connect(self, address: str, port: int) -> trio.SocketStream:
        """Connect to a pod, a service, or a part of the node."""
        with self.network():
            made = trio.socket.socket()
        try:
            await made.connect((address, port))
        except BaseException:
            made.close()
            raise
        return trio.SocketStream(made)

    async def fetch(self, address: str, port: int) -> str:
        """The body of the HTTP answer."""
        async with await self.connect(address, port) as stream:
            await stream.send_all(b"GET / HTTP/1.0\r\n\r\n")
            answer = b"".join([bytes(piece) async for piece in stream])
        return answer.partition(b"\r\n\r\n")[2].decode(errors="replace")

    def log(self, name: str) -> str:
        return (self.folder / "log" / f"{name}.log").read_text(errors="replace")

    async def run(self, *argv: str) -> str:
        """Run a short command in the node; returns its output. Raises RuntimeError."""
        return str(await self.inside.do("run", argv=list(argv)))

    def mount_over(self, file: Path, place: Path) -> None:
        """Mount a file over the node's path. Raises CalledProcessError."""
        enter = ["nsenter", "-t", str(self.pid), "-m", "--"]
        subprocess.run([*enter, "mount", "--bind", str(file), str(place)], check=True, capture_output=True)

    async def start(self, part: Part) -> None:
        await self.inside.do("start", name=part.name, argv=part.argv, environ=part.environ)

    async def stop(self, name: str, **how: int) -> None:
        """Send SIGKILL, or ``signal_number``, and wait for the end."""
        await self.inside.do("stop", name=name, **how)

    async def start_api(self) -> None:
        """Start the API server and wait until it is ready."""
        program = self.programs["kube-apiserver"]
        await self.start(parts.api_server(program, self.secrets, self.folder / "state"))
        await self.ready("kube-apiserver", self._api_answers)

    async def start_containerd(self, member: Member) -> None:
        """With its network, and wait until it answers."""
        net = self.place(member.state / "net.d")
        net.mkdir(parents=True, exist_ok=True)
        (net / "pods.conflist").write_text(parts.network(member))
        part = parts.containerd(member)
        await self.start(part)
        await self.ready(part.name, lambda: self._said("ctr", "-a", str(member.socket), "version"))

    async def start_kubelet(self, member: Member, **changes: Any) -> None:
        """Start with changed settings. The kubelet takes its lock before the node is Ready."""
        self.place(member.state / parts.MANIFESTS).mkdir(parents=True, exist_ok=True)
        await self.inside.do("group", name=f"{self.group}/{member.name}")
        program = self.programs["kubelet"]
        part = parts.kubelet_part(program, self.secrets, member, self.group, self.logind.address, changes)
        # kubeadm's place, where other programs read the kubelet's settings.
        settings = self.place(member.state / "kubelet" / "config.yaml")
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_bytes((member.folder / f"kubelet-{member.number}.json").read_bytes())
        around = self.around.get(member.name)
        await self.start(around(part) if around else part)

    async def node_ready(self, member: Member) -> None:
        await self.ready(f"kubelet-{member.name}", lambda: self._is_ready(member))

    async def locks(self, count: int) -> None:
        """Wait until that many kubelets hold a lock. Raises AssertionError."""
        rows: list[Inhibitor] = []

        async def held() -> bool:
            rows[:] = [row for row in await self.logind.list_inhibitors() if row.who == "kubelet"]
            return len(rows) == count

        def why() -> str:
            logs = {name: self.log(f"kubelet-{name}").splitlines() for name in self.members}
            lines = [
                f"{name}: {each}" for name, log in logs.items() for each in log if "shutdown" in each.lower()
            ]
            return "\n".join((f"not {count} locks of kubelets but {rows}", *lines[-LOCK_LINES:]))

        await until(held, why)

    async def start_over(self, **changes: Any) -> None:
        """Restart as after a reboot: logind without the shutdown, fresh kubelets, all Ready.

        A kubelet never gets its lock while logind still prepares.
        """
        for member in self.members.values():
            await self.stop(f"kubelet-{member.name}")
        await self.logind.reset()
        for member in self.members.values():
            await self.start_kubelet(member, **changes)
        for member in self.members.values():
            await self.node_ready(member)

    async def load_image(self, member: Member) -> None:
        # One file each: they start in parallel, and a partial archive is invalid.
        archive = self.folder / f"image-{member.name}.tar"
        if not archive.exists():
            await trio.to_thread.run_sync(image.pack, archive)
        await self.run("ctr", "-a", str(member.socket), "-n", "k8s.io", "images", "import", str(archive))

    async def runs_nothing(self, member: Member) -> None:
        """Wait until its runtime has no process. Raises AssertionError.

        A forced delete removes a pod's object before its processes.
        """

        async def idle() -> bool:
            return not await self._said("ctr", "-a", str(member.socket), "-n", "k8s.io", "tasks", "ls", "-q")

        await until(idle, f"the runtime of {member.name} still runs something")

    async def ready(self, name: str, answers: Callable[[], Awaitable[bool]]) -> None:
        """Wait until a part answers. Raises Unready with its log's end."""
        with trio.move_on_after(WATCHDOG_SECONDS):
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


class Unready(Exception):
    """A part did not become ready; has its last log lines."""


def _enter_network(descriptor: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
