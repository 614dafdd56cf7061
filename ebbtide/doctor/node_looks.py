"""The look at a Kubernetes node for the doctor and the plan: kubelet, runtime and API server side by side.

Each look only reads, has a bound, and reports a silent part as a problem. gRPC and the API's client may be
missing: import them late.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio
from jeepney import DBusAddress

from ebbtide.actors.edges.cri.cri_pods import PodEntry, PodTable, known_pod_of, pod_view
from ebbtide.actors.edges.kubernetes import known_pods
from ebbtide.actors.edges.kubernetes.api_calls import (
    HTTP_FORBIDDEN,
    HTTP_NOT_FOUND,
    JSON,
    MERGE_PATCH,
    SELF_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_REVIEW,
    SELF_SUBJECT_REVIEWS,
    Answer,
    ApiCaller,
    ApiNode,
    JsonObject,
    Unanswered,
    access_review,
    node_path,
    pods_path,
    reviewed,
)
from ebbtide.actors.edges.kubernetes.credentials import UnusableCredentials, in_cluster, read_kubeconfig
from ebbtide.actors.edges.kubernetes.node_writes import TAINT
from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.bus import (
    Bus,
    BusError,
    BusRefused,
    ask_once,
    side_by_side,
    system_bus_address,
)
from ebbtide.actors.edges.linux.proc import cgroups_of, forecast_signal
from ebbtide.actors.edges.pod_spec import ProcessSpec
from ebbtide.actors.edges.service_manager import SYSTEMD
from ebbtide.actors.policy.grace_periods import effective_periods, requested_seconds
from ebbtide.config import ConfigError, load
from ebbtide.config.schema import NodeSection
from ebbtide.doctor import rules
from ebbtide.doctor.gather import FoundPods, targets_of_containers
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.units import span_s
from ebbtide.extras import missing_packages
from ebbtide.manifests import Manifest
from ebbtide.modes import OWN_UID, ModeUnavailable, NodeParts, find_node_parts, lasting_folder
from ebbtide.options import RunOptions

UNIT_INTERFACE = "org.freedesktop.systemd1.Unit"
NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"
UNIT_NOT_FOUND = "not-found"
ACTIVE_STATES = ("active", "activating", "reloading")
#: systemd answers in milliseconds.
UNITS_SECONDS_MAX = 3.0

#: Without ``--config``.
KUBELET_CONFIG = Path("/var/lib/kubelet/config.yaml")
COMMAND_BYTES_MAX = 64 * 1024
KUBELET = "kubelet"


async def look_at_kubelet(unit: str, node: str) -> rules.KubeletState:
    """Without a service manager, only its process."""
    seen = kubelet_process(node)._replace(unit=unit)

    async def look_at_units(bus: Bus) -> rules.KubeletState:
        loaded, active = await unit_state(bus, unit)
        others = [other for other in rules.SINGLE_UNIT_DISTRIBUTIONS if other != unit]
        beside = tuple([other for other in others if (await unit_state(bus, other))[1]])
        return seen._replace(loaded=loaded, active=active, beside=beside)

    with suppress(BusError), trio.move_on_after(UNITS_SECONDS_MAX):
        return await ask_once(system_bus_address(), look_at_units)
    return seen


async def unit_state(bus: Bus, unit: str) -> tuple[bool | None, bool | None]:
    """Whether it is installed, and active; None: unknown. Raises BusError."""

    async def unit_property(name: str) -> Any:
        with suppress(BusRefused):
            return await bus.get(DBusAddress(path, SYSTEMD.bus_name, UNIT_INTERFACE), name)

    # GetUnit misses an installed unit that was never started. LoadUnit also loads a missing unit: LoadState
    # says so.
    try:
        (path,) = await bus.method(SYSTEMD, "LoadUnit", "s", unit, answer="o")
    except BusRefused as error:
        return (False, False) if error.name == NO_SUCH_UNIT else (None, None)
    if await unit_property("LoadState") == UNIT_NOT_FOUND:
        return False, False
    state = await unit_property("ActiveState")
    return True, None if state is None else state in ACTIVE_STATES


def commands() -> Iterator[tuple[int, list[str]]]:
    """Without kernel threads."""
    for pid in proc.all_pids():
        if data := proc.read_bytes(f"/proc/{pid}/cmdline", COMMAND_BYTES_MAX):
            yield pid, os.fsdecode(data).rstrip("\0").split("\0")


def kubelet_process(node: str) -> rules.KubeletState:
    """With this node's name on its command line, else without any: a machine with clusters in containers
    shows all their kubelets.
    """
    found = [(pid, argv) for pid, argv in commands() if argv[0].rpartition("/")[2] == KUBELET]
    for name in (node, ""):
        for pid, argv in found:
            if command_line_flag(argv, "hostname-override").lower() == name:
                config, grace_ns = kubelet_settings(pid, argv)
                return rules.KubeletState(pid=pid, config=config, grace_ns=grace_ns)
    return rules.KubeletState()


def command_line_flag(argv: list[str], name: str) -> str:
    """``--name=value`` or ``--name value``; the last one counts, as in Go."""
    value = ""
    for at, word in enumerate(argv):
        if word.startswith(f"--{name}="):
            value = word.partition("=")[2]
        elif word == f"--{name}" and at + 1 < len(argv):
            value = argv[at + 1]
    return value


def kubelet_settings(pid: int, argv: list[str]) -> tuple[str, int | None]:
    """Its file, and the graceful shutdown in it; None: unreadable."""
    name = command_line_flag(argv, "config") or str(KUBELET_CONFIG)
    folder = command_line_flag(argv, "config-dir")
    # In the process's own mount namespace.
    root = Path(f"/proc/{pid}/root")
    paths = [root / name.lstrip("/")]
    if folder:
        paths += sorted((root / folder.lstrip("/")).glob("*.conf"))
    try:
        settings = load(paths).settings
    except ConfigError:
        return name, None
    return name, requested_seconds(effective_periods(settings)) * NS_PER_SECOND


#: A list, and three calls for each pod: a hundred pods take some 200 ms.
RUNTIME_SECONDS_MAX = 10.0


async def look_at_runtime(socket: Path | None) -> tuple[rules.RuntimeState, tuple[PodEntry, ...]]:
    """With the running sandboxes but our own, oldest first; their descriptors are closed."""
    from ebbtide.actors.edges.cri.cri_client import CallFailed, CriClient, probe_runtime
    from ebbtide.actors.edges.cri.cri_runtime import Listing, pods_of_cgroups

    if socket is None:
        return rules.RuntimeState(problem="no socket is named or found"), ()
    # gRPC would only report "unavailable".
    problem = ""
    if not socket.exists():
        problem = "nothing listens there"
    elif not socket.is_socket():
        problem = "it is not a socket"
    elif not os.access(socket, os.W_OK):
        problem = "permission denied: use sudo"
    if problem:
        return rules.RuntimeState(str(socket), problem=problem), ()
    endpoint = f"unix://{socket}"
    probed = await probe_runtime(endpoint)
    state = rules.RuntimeState(str(socket), probed.name, probed.version, probed.problem)
    if not probed.name:
        return state, ()
    try:
        with trio.fail_after(RUNTIME_SECONDS_MAX):
            link, table = CriClient(endpoint), PodTable()
            async with trio.open_nursery() as nursery:
                await nursery.start(link.run)
                # It holds a descriptor of each first process.
                try:
                    await Listing(link, table, lambda _: None, lambda _: None).refresh()
                finally:
                    table.close()
                    nursery.cancel_scope.cancel()
            # The daemon's own pod is in no wave.
            own = pods_of_cgroups(table.entries(), cgroups_of(os.getpid())) | {os.environ.get(OWN_UID, "")}
            pods = tuple(pod for pod in table.pods.values() if pod.running and pod.uid not in own)
    except (CallFailed, trio.TooSlowError) as error:
        return state._replace(problem=str(error) or f"no list within {span_s(RUNTIME_SECONDS_MAX)}"), ()
    return state, pods


# Each call is a read, a review or a dry run.

#: For a shutdown a slower server is away.
API_SECONDS_MAX = 5.0
FOREIGN_LABEL = {"metadata": {"labels": {"ebbtide.dev/never": "set"}}}

HTTP_UNAUTHORIZED, HTTP_INVALID = 401, 422
#: More than a node has.
PODS_MAX = 1000


class _Pods(msgspec.Struct):
    items: list[known_pods.PodObject] = []


async def look_at_api_server(
    kubeconfig: Path | None, node: str
) -> tuple[rules.ApiServerState, tuple[known_pods.KnownPod, ...]]:
    """``kubeconfig`` None: our own pod's service account."""
    from ebbtide.actors.edges.kubernetes.api_client import ApiClient, ClientMissing

    found = rules.ApiServerState(source="in-cluster" if kubeconfig is None else str(kubeconfig))
    try:
        await trio.to_thread.run_sync(
            in_cluster if kubeconfig is None else partial(read_kubeconfig, kubeconfig)
        )
    except UnusableCredentials as error:
        return found._replace(problem=str(error)), ()
    link = ApiClient(kubeconfig)
    async with trio.open_nursery() as nursery:
        try:
            await nursery.start(link.run)
        except ClientMissing as error:
            return found._replace(problem=str(error)), ()
        try:
            return await examine_api_server(link, found, node)
        finally:
            nursery.cancel_scope.cancel()


async def examine_api_server(
    caller: ApiCaller, found: rules.ApiServerState, node: str
) -> tuple[rules.ApiServerState, tuple[known_pods.KnownPod, ...]]:
    try:
        who = await ask_bounded(caller, "POST", SELF_SUBJECT_REVIEWS, SELF_SUBJECT_REVIEW)
        if who.code == HTTP_UNAUTHORIZED:
            return found._replace(
                problem="401 Unauthorized: the token or certificate is wrong or too old"
            ), ()
        # Before 1.28 servers have no such review: our name stays unknown.
        found = found._replace(user=reviewed(who).user_info.username)
        denied, (known, taint), foreign, pods = await side_by_side(
            Unanswered,
            lambda: _denied_rights(caller, node, found.user),
            lambda: _node_and_taint(caller, node),
            lambda: ask_bounded(
                caller, "PATCH", f"{node_path(node)}/status?dryRun=All", FOREIGN_LABEL, MERGE_PATCH
            ),
            lambda: ask_bounded(caller, "GET", pods_path(node, limit=PODS_MAX)),
        )
        listed = known_pods_of(pods.body) if pods.ok else ()
    except (Unanswered, ValueError) as error:
        return found._replace(problem=str(error)), ()
    # A dry run that the role allows and the policy refuses; None where the role refuses it.
    confined = False if foreign.ok else True if foreign.code == HTTP_INVALID else None
    is_known = True if known.ok else False if known.code == HTTP_NOT_FOUND else None
    return found._replace(denied=denied, taint=taint, confined=confined, known=is_known), listed


def known_pods_of(body: bytes) -> tuple[known_pods.KnownPod, ...]:
    """Pods that have not ended. Raises ValueError."""
    try:
        listed = msgspec.json.decode(body, type=_Pods).items
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its list of pods cannot be read: {error}") from None
    return tuple(
        known_pods.project_pod(each) for each in listed if each.status.phase not in known_pods.FINAL_PHASES
    )


async def ask_bounded(
    caller: ApiCaller, method: str, path: str, body: object = None, content_type: str = JSON
) -> Answer:
    """Raises Unanswered."""
    return await caller.call(method, path, body=body, content_type=content_type, seconds_max=API_SECONDS_MAX)


async def _denied_rights(caller: ApiCaller, node: str, user: str) -> tuple[rules.Right, ...]:
    """A failed review counts as no denial."""
    asked = [
        each
        for each in rules.RIGHTS
        if each != rules.RIGHT_NOT_OF_NODES or not user.startswith(rules.NODE_USER)
    ]
    questions = []
    for right in asked:
        # As a shutdown asks: a list with its selector, a Node by its name. A node's identity may not ask
        # about all nodes.
        spec: JsonObject = {"verb": right.verb, "resource": right.resource, "group": right.group}
        if right.subresource:
            spec["subresource"] = right.subresource
        if right.resource == "nodes":
            spec["name"] = node
        if right.verb in ("list", "watch"):
            only = {"key": "spec.nodeName", "operator": "In", "values": [node]}
            spec["fieldSelector"] = {"requirements": [only]}
        ask = partial(ask_bounded, caller, "POST", SELF_SUBJECT_ACCESS_REVIEWS, access_review(spec))
        questions.append(ask)
    answers = await side_by_side(Unanswered, *questions)
    pairs = zip(asked, answers, strict=True)
    return tuple(right for right, answer in pairs if reviewed(answer).allowed is False)


async def _node_and_taint(caller: ApiCaller, node: str) -> tuple[Answer, bool | None]:
    """The Node, and whether we may taint it."""
    known = await ask_bounded(caller, "GET", node_path(node))
    # Only a dry run goes through admission, where NodeRestriction or our policy refuses the taint. The patch
    # replaces all taints, so it contains the others too.
    taints = msgspec.json.decode(known.body, type=ApiNode).spec.taints if known.ok else []
    ours = [each for each in taints if each.get("key") != known_pods.TAINT_KEY] + [TAINT]
    body = {"spec": {"taints": ours}}
    answer = await ask_bounded(caller, "PATCH", f"{node_path(node)}?dryRun=All", body, MERGE_PATCH)
    refused = answer.code in (HTTP_FORBIDDEN, HTTP_INVALID)
    return known, True if answer.ok else False if refused else None


def look_at_node(options: RunOptions, section: NodeSection) -> FoundPods:
    """``options.mode`` is one of the node's. Does not raise."""
    blank = rules.NodeSnapshot(options.mode, options.node_name or "")
    if missing := missing_packages("node"):
        return FoundPods(seen=blank._replace(missing=missing))
    unfit = ""
    try:
        parts = find_node_parts(options, section)
    except ModeUnavailable as error:
        unfit = str(error)
    try:
        parts = parts if not unfit else find_node_parts(options._replace(mode="auto"), section)
    except ModeUnavailable:
        return FoundPods(seen=blank._replace(unfit=unfit))
    return trio.run(_look_at_parts, options, parts, unfit)


async def _look_at_parts(options: RunOptions, parts: NodeParts, unfit: str) -> FoundPods:
    async def look_at_cluster() -> tuple[rules.ApiServerState, tuple[known_pods.KnownPod, ...]]:
        if not parts.has_api:
            return rules.ApiServerState(), ()
        return await look_at_api_server(parts.kubeconfig, parts.node)

    kubelet, (runtime, entries), (api, listed) = await side_by_side(
        Exception,
        lambda: look_at_kubelet(parts.kubelet_unit, parts.node),
        lambda: look_at_runtime(parts.cri_socket),
        look_at_cluster,
    )
    # As the daemon has them: running sandboxes with names from the list, the cache or a manifest.
    store = known_pods.PodStore()
    store.restore(known_pods.PodCache(lasting_folder(options), parts.node, lambda level, line: None).load())
    store.set_manifests(known_pods.read_manifests(parts.static_pods, parts.node))
    # Newer than the daemon's cache.
    if api.answers:
        store.replace(listed, resource_version="")
    pods = [pod_view(entry, known_pod_of(entry, store)) for entry in entries]
    return FoundPods(
        manifests=tuple(
            Manifest(pod=pod, spec=ProcessSpec(uid=pod.uid, containers=()), source="the container runtime")
            for pod in pods
        ),
        forecasts=tuple(
            found
            for pod in entries
            for name, each in pod.containers.items()
            if each.pid and (found := forecast_signal(pod.uid, name, each.pid, each.spec.stop_signal))
        ),
        targets=tuple(target for entry in entries for target in targets_of_containers(entry)),
        seen=rules.NodeSnapshot(options.mode, parts.node, (), kubelet, runtime, api, unfit),
        known=listed,
        container=next((each.id for entry in entries for each in entry.containers.values()), ""),
        parts=parts,
    )
