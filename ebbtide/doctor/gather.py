"""The doctor's look at configuration, daemon, logind, journal and pods. It changes nothing."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import trio
from jeepney import DBusAddress
from msgspec.structs import replace

from ebbtide.actors.edges import logind_reading
from ebbtide.actors.edges.http_request import BadHook, request_of
from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.bus import Bus as Connection
from ebbtide.actors.edges.linux.bus import BusError, ask_once, system_bus_address
from ebbtide.actors.edges.linux.proc import SignalForecast, forecast_signal
from ebbtide.actors.edges.logind_reading import read_preparing
from ebbtide.actors.edges.pod_spec import ContainerSpec, HttpGetAction
from ebbtide.actors.edges.process.process_pods import RECORD_VERSION, PodRecord
from ebbtide.actors.edges.service_manager import SYSTEMD
from ebbtide.actors.policy.grace_periods import as_counted
from ebbtide.config import ConfigError
from ebbtide.config.schema import NodeSection
from ebbtide.doctor.rules import JournalState, LogindState, NodeSnapshot, Snapshot
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.codec import plain_payload
from ebbtide.events.facts import DaemonStarted
from ebbtide.events.reader import History
from ebbtide.events.units import span_s
from ebbtide.machine_lock import machine_holder, peer_of
from ebbtide.manifests import Manifest, plan_of
from ebbtide.modes import KUBECONFIGS, SOCKETS, NodeParts, first_existing
from ebbtide.node import LocalNode
from ebbtide.options import MODES, PROCESS, RunOptions

if TYPE_CHECKING:
    from ebbtide.actors.edges.cri.cri_pods import PodEntry
    from ebbtide.actors.edges.kubernetes.known_pods import KnownPod
    from ebbtide.events.values import TerminationMode


#: logind answers in under a millisecond.
LOGIND_SECONDS_MAX = 3.0


def gather(node: LocalNode, *, measure: bool = False) -> Snapshot:
    """``measure``: time a shutdown's calls too. Raises PermissionError for a folder of root's."""
    loaded, config_error = None, ""
    try:
        loaded = node.configuration
        node.check_files()
    except ConfigError as error:
        config_error = str(error)
    (status, status_error, foreign, _), (bus, bus_error), store = node.status, node.logind, node.journal
    section = loaded.config.node if loaded is not None else NodeSection()
    pods = look_at_pods(node.options, section, node.status.mode or store.mode)
    raise_grant = loaded is not None and loaded.settings.raise_grant
    # The daemon may raise the limit: it cuts no pod.
    grant_ns, now_ns = None if bus is None or raise_grant else bus.grant_ns, time.monotonic_ns()
    protector = machine_holder(system_bus_address())
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(os.fspath(node.options.control_socket))
        # The daemon at this socket protects the machine. Another one has separate folders.
        if protector is not None and peer_of(client).pid == protector.pid:
            protector = None
    snapshot = Snapshot(
        config_error=config_error,
        raise_grant=raise_grant,
        plan=None
        if loaded is None
        else plan_of(loaded.settings, pods.counted(bus), grant_ns, now_ns, pods.termination_mode(bus)),
        status=status,
        status_error=status_error,
        foreign=foreign,
        bus=bus,
        bus_error=bus_error,
        files=logind_reading.DropIns().read(),
        store=store,
        forecasts=pods.forecasts,
        labels={found.pod.uid: found.pod.label for found in pods.manifests},
        node=pods.seen,
        protector=protector,
    )
    if measure:
        from ebbtide.doctor.measure import measure_calls

        snapshot = snapshot._replace(measured=trio.run(measure_calls, snapshot, pods))
    return snapshot


def look_at_logind() -> tuple[LogindState | None, str]:
    """None with the reason."""

    async def look() -> LogindState | None:
        with trio.move_on_after(LOGIND_SECONDS_MAX):
            return await ask_once(system_bus_address(), _ask_logind)
        return None

    try:
        found = trio.run(look)
    except BusError as error:
        return None, str(error)
    return found, "" if found is not None else f"no answer within {span_s(LOGIND_SECONDS_MAX)}"


async def _ask_logind(bus: Connection) -> LogindState:
    limit, preparing, (rows,), key, version = await logind_reading.ask_all(
        bus,
        logind_reading.read_grant_ns,
        read_preparing,
        lambda bus: bus.method(logind_reading.MANAGER, "ListInhibitors", answer=logind_reading.INHIBITORS),
        partial(_read_text, logind_reading.MANAGER, "HandlePowerKey"),
        partial(_read_text, SYSTEMD, "Version"),
    )
    return LogindState(
        grant_ns=limit,
        preparing=preparing,
        our_lock=any(
            logind_reading.is_delay_lock(row) and row[1] == logind_reading.INHIBIT_WHO for row in rows
        ),
        kubelet_lock=any(map(logind_reading.is_kubelet_lock, rows)),
        holders=logind_reading.other_holders(row for row in rows if not logind_reading.is_kubelet_lock(row)),
        power_key=key,
        systemd=version,
    )


async def _read_text(address: DBusAddress, name: str, bus: Connection) -> str:
    """Empty without an answer, as from an old logind."""
    try:
        return str(await bus.get(address, name))
    except BusError:
        return ""


def look_at_journal(path: Path) -> JournalState:
    # The directory, or the nearest parent, where it will be made.
    absolute = path.absolute()
    existing = next(folder for folder in (absolute, *absolute.parents) if folder.exists())
    try:
        room = os.statvfs(existing)
        history = History([DirectorySource(path)])
        starts = [raw for raw in history.raw() if raw.tag == DaemonStarted.__name__]
        verdict = history.verdict if history.path.segments or history.path.tail else None
    except OSError as error:
        return JournalState(str(path), error=f"{error.filename or path}: {error.strerror}")
    started = plain_payload(starts[-1].payload) if starts else None
    mode = started.get("mode") if isinstance(started, dict) else None
    return JournalState(
        str(path),
        exists=path.is_dir(),
        writable=os.access(existing, os.W_OK),
        free_bytes=room.f_bavail * room.f_frsize,
        verdict=verdict,
        # A simulated or a later version's journal may have another one.
        mode=str(mode) if mode in MODES else "",
    )


AUTO_MODE = "auto"


class FoundPods(NamedTuple):
    """``targets``: of httpGet hooks. Only of a Kubernetes node: ``seen``, ``known`` (the API server's list),
    ``container`` (a running one's id), ``parts``.
    """

    manifests: tuple[Manifest, ...] = ()
    forecasts: tuple[SignalForecast, ...] = ()
    targets: tuple[HookTarget, ...] = ()
    seen: NodeSnapshot | None = None
    known: tuple[KnownPod, ...] = ()
    container: str = ""
    parts: NodeParts | None = None

    def termination_mode(self, bus: LogindState | None) -> TerminationMode:
        """In mode auto ``api``, which gives the pods less time."""
        if self.seen is None:
            return ""
        if self.seen.mode == "observe" or (bus is not None and bus.kubelet_lock):
            return "observe"
        return "cri" if self.seen.mode == "cri" else "api"

    def counted(self, bus: LogindState | None) -> tuple[Manifest, ...]:
        """With the priorities that the kubelet counts, if it would end the pods."""
        means = self.termination_mode(bus)
        return tuple(replace(each, pod=as_counted(each.pod, means)) for each in self.manifests)


def look_at_pods(options: RunOptions, section: NodeSection, running: str) -> FoundPods:
    """``running``: the daemon's mode, if ``options`` has none. Raises PermissionError."""
    mode = options.mode or running
    # An option for a part of a node means a node.
    names_part = any((options.cri, options.kubeconfig, options.node_name))
    if names_part and not options.mode and running in ("", PROCESS):
        mode = AUTO_MODE
    mode = mode or detect_mode(section, options.runtime)
    if mode == PROCESS:
        manifests, forecasts, targets = list[Manifest](), list[SignalForecast | None](), list[HookTarget]()
        for found in running_pods(options.runtime):
            pod, spec = found.pod, found.spec
            manifests.append(Manifest(pod=pod, spec=spec, source=str(options.runtime)))
            targets += _targets_of(pod.label, (*spec.init, *spec.containers), LOOPBACK_ADDRESS)
            signals = {container.name: container.stop_signal for container in pod.containers}
            forecasts += [
                forecast_signal(pod.uid, each.name, each.pid, signals.get(each.name, "SIGTERM"))
                for each in found.containers
                if proc.is_same_process(each.pid, each.start_ticks)
            ]
        return FoundPods(tuple(manifests), tuple(filter(None, forecasts)), tuple(targets))
    # With YAML, gRPC and the API's client.
    from ebbtide.doctor.node_looks import look_at_node

    return look_at_node(options._replace(mode=mode), section)


def detect_mode(section: NodeSection, runtime: Path) -> str:
    """A runtime's socket alone proves no node: Docker has one."""
    if running_pods(runtime):
        return PROCESS
    named = section.cri_socket or section.kubeconfig or section.node_name
    root = Path(section.kubelet_root)
    kubelet = first_existing([root]) and first_existing(SOCKETS, Path.is_socket)
    return AUTO_MODE if named or kubelet or first_existing(KUBECONFIGS) else PROCESS


LOOPBACK_ADDRESS = "127.0.0.1"


class HookTarget(NamedTuple):
    """``name``: pod and container. ``error``: why the hook makes no request."""

    name: str
    host: str = ""
    port: int = 0
    error: str = ""


def targets_of_containers(pod: PodEntry) -> Iterator[HookTarget]:
    """A pod in the node's network has the node's address."""
    from ebbtide.actors.edges.cri.cri_runtime import node_address  # with gRPC: only where pods are containers

    specs = [entry.spec for entry in pod.containers.values()]
    return _targets_of(f"{pod.namespace}/{pod.name}", specs, pod.pod_ip or node_address())


def _targets_of(label: str, containers: Iterable[ContainerSpec], pod_ip: str) -> Iterator[HookTarget]:
    for container in containers:
        action = container.pre_stop
        if isinstance(action, HttpGetAction):
            name = f"{label} {container.name}"
            try:
                request = request_of(action, container, pod_ip)
            except BadHook as error:
                yield HookTarget(name, error=str(error))
            else:
                yield HookTarget(name, request.host, request.port)


_record_decoder = msgspec.msgpack.Decoder(PodRecord)


def running_pods(runtime: Path) -> list[PodRecord]:
    """Of this boot, oldest first. Raises PermissionError."""
    # A record may outlive its pod, and process ids are used again: the start time must match.
    folder = runtime / "process" / "pods"
    try:
        paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    records = []
    for path in paths:
        with suppress(FileNotFoundError, ValueError, RecursionError):
            records.append(_record_decoder.decode(path.read_bytes()))
    return [
        record
        for record in records
        if record.version == RECORD_VERSION
        and record.boot_id == proc.boot_id_with_dashes()
        and any(proc.is_same_process(each.pid, each.start_ticks) for each in record.containers)
    ]
