"""Pod manifests: ordinary Kubernetes Pod objects from files, folders, lists or standard input."""

from __future__ import annotations

import re
import stat
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from ebbtide.actors.edges import pod_spec
from ebbtide.actors.edges.documents import (
    NODES_MAX,
    OBJECT_NODES_MAX,
    REPEATED_MAX,
    DocumentError,
    Node,
    decode_text,
    one_line,
    parse_text,
    plain_value,
    quote,
    read_file,
)
from ebbtide.actors.edges.linux.proc import signal_number
from ebbtide.actors.policy.grace_periods import effective_periods
from ebbtide.actors.policy.planning import Plan, PlanWarning, first_names, make_plan, short_name
from ebbtide.config.fields import (
    DNS_LABEL,
    INT32_MAX,
    INT32_MIN,
    PORT_MAX,
    DocumentErrors,
    Kind,
    RuleError,
    describe,
    matching,
    node_name,
    read,
    rule_error,
)
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.units import size_text
from ebbtide.events.values import Container, Pod, Settings, TerminationMode

# The fields of a Pod object that matter to a shutdown, checked as the API server checks them.

UID_LENGTH_MAX = 128
#: More containers than any real pod has; keeps one pod's record small.
CONTAINERS_MAX = 128
#: Words of one command, and variables of one container.
ENTRIES_MAX = 4096
HEADERS_MAX = 128
#: Longest request target that servers commonly take.
URL_PART_LENGTH_MAX = 8192

_PORT_NAME = re.compile(r"|(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")
_SIGNAL = re.compile("SIG[A-Z0-9]+")
#: The API does not take all of Linux's 64 signals.
_REALTIME_SIGNAL = re.compile(r"SIGRTMIN\+([1-9]|1[0-5])|SIGRTMAX-([1-9]|1[0-4])|SIGRTMIN|SIGRTMAX")
_WINDOWS_SIGNALS = ("SIGTERM", "SIGKILL")
#: Without a zone a time would be the machine's own local time.
_RFC3339 = re.compile(r"[0-9-]{10}T[0-9:]{8}(\.[0-9]+)?(Z|[-+][0-9]{2}:[0-9]{2})")


def _stop_signal(text: str) -> str:
    names = _REALTIME_SIGNAL if text.startswith("SIGRT") else _SIGNAL
    if not names.fullmatch(text) or not signal_number(text):
        raise ValueError
    return text


def _time(text: str) -> str:
    if not _RFC3339.fullmatch(text):
        raise ValueError
    try:
        pod_spec.wall_ns(text)
    except ValueError:
        raise ValueError from None
    return text


def _printable(text: str) -> str:
    if len(text) > URL_PART_LENGTH_MAX or not text.replace("\t", " ").isprintable():
        raise ValueError
    return text


_LABEL = matching(
    DNS_LABEL,
    "at most 63 lower case letters, digits and '-', with a letter or digit at both ends",
)
_NAMESPACE = Kind(_LABEL.text, lambda text: _LABEL.parse(text) if text and _LABEL.parse else "default")
_POD_NAME = Kind(
    "at most 253 lower case letters, digits, '-' and '.', with a letter or digit at both ends",
    node_name,
)
_NAME_PREFIX = Kind("the begin of a name", lambda text: node_name(f"{text}0")[:-1])
#: Also a file name of the process edge: a path cannot hide in it.
_UID = matching(
    re.compile(rf"(?=.{{1,{UID_LENGTH_MAX}}}$)[A-Za-z0-9][-._A-Za-z0-9]*"), "letters, digits, '-', '.' or '_'"
)
_WORD = Kind("a word without NUL characters; put it in quotes", secret=True)
#: A line break could smuggle a second request.
_URL_PART = Kind(
    f"printable, without line breaks and control characters, and up to {URL_PART_LENGTH_MAX} characters",
    _printable,
    secret=True,
)
_HEADER = matching(
    re.compile(rf"[-0-9A-Za-z]{{1,{URL_PART_LENGTH_MAX}}}"), "a header's name: letters, digits and '-'"
)
_VARIABLE = matching(re.compile(r"[ -<>-~]+"), "a variable's name, of printable ASCII without '='")
_HOST = matching(re.compile(rf"[-._:\[\]%0-9A-Za-z]{{0,{URL_PART_LENGTH_MAX}}}"), "a host's name or address")

Int32 = Annotated[int, Meta(ge=INT32_MIN, le=INT32_MAX)]
Words = Annotated[tuple[Annotated[str, _WORD], ...], Meta(max_length=ENTRIES_MAX)]


class ObjectPart(msgspec.Struct, frozen=True, rename="camel"):
    """A mapping of a Kubernetes object."""


class EnvVar(ObjectPart, frozen=True):
    name: Annotated[str, _VARIABLE]
    value: Annotated[str, _WORD] = ""
    value_from: Any = None


class ContainerPort(ObjectPart, frozen=True):
    container_port: Annotated[int, Meta(ge=1, le=PORT_MAX)]
    name: Annotated[str, matching(_PORT_NAME, "up to 15 lower case letters, digits and '-'")] = ""


class ExecHook(ObjectPart, frozen=True):
    command: Words = ()

    def __post_init__(self) -> None:
        if not self.command:
            raise RuleError("it is empty: name a program", "command")


class Header(ObjectPart, frozen=True):
    name: Annotated[str, _HEADER]
    value: Annotated[str, _URL_PART] = ""


class TcpSocketHook(ObjectPart, frozen=True):
    """Accepted in old objects; fails when it runs. A name's port is looked up when the hook runs."""

    port: Annotated[int | str, Kind("a port or a port's name")]

    def __post_init__(self) -> None:
        port = self.port
        if isinstance(port, str) and port.isdecimal():
            raise RuleError(
                f"{quote(port)} in quotes is a name without a letter: take the quotes away", "port"
            )
        if not (port and _PORT_NAME.fullmatch(port) if isinstance(port, str) else 1 <= port <= PORT_MAX):
            raise RuleError(f"{quote(str(port))} is no port and no port's name: write one of them", "port")


class HttpGetHook(TcpSocketHook, frozen=True):
    host: Annotated[str, _HOST] = ""
    scheme: Annotated[str, matching(re.compile("|HTTPS?"), "HTTP or HTTPS")] = "HTTP"
    path: Annotated[str, _URL_PART] = ""
    http_headers: Annotated[tuple[Header, ...], Meta(max_length=HEADERS_MAX)] = ()


class SleepHook(ObjectPart, frozen=True):
    seconds: pod_spec.Int64


class PreStop(ObjectPart, frozen=True):
    exec: ExecHook | None = None
    http_get: HttpGetHook | None = None
    sleep: SleepHook | None = None
    tcp_socket: TcpSocketHook | None = None

    def __post_init__(self) -> None:
        pairs = zip(self.__struct_encode_fields__, msgspec.structs.astuple(self), strict=True)
        named = [name for name, handler in pairs if handler is not None]
        if len(named) != 1:
            found = f"it has more than one handler ({', '.join(named)})" if named else "it has no handler"
            raise ValueError(f"{found}: give one of {', '.join(self.__struct_encode_fields__)}")

    @property
    def action(self) -> pod_spec.HookAction:
        if self.exec:
            return pod_spec.ExecAction(argv=self.exec.command)
        if self.sleep:
            return pod_spec.SleepAction(seconds=self.sleep.seconds)
        if not self.http_get:
            return pod_spec.TcpSocketAction()
        get = self.http_get
        headers = tuple((each.name, each.value) for each in get.http_headers)
        return pod_spec.HttpGetAction(
            port=get.port, host=get.host, scheme=get.scheme, path=get.path, headers=headers
        )


class Lifecycle(ObjectPart, frozen=True):
    pre_stop: PreStop | None = None
    stop_signal: Annotated[str | None, Kind("a name such as SIGTERM or SIGRTMIN+3", _stop_signal)] = None


class ContainerObject(ObjectPart, frozen=True):
    name: Annotated[str, _LABEL]
    command: Words = ()
    args: Words = ()
    env: Annotated[tuple[EnvVar, ...], Meta(max_length=ENTRIES_MAX)] = ()
    env_from: Any = None
    lifecycle: Lifecycle | None = None
    restart_policy: Literal["Always", "Never", "OnFailure"] | None = None
    ports: Annotated[tuple[ContainerPort, ...], Meta(max_length=ENTRIES_MAX)] = ()
    working_dir: str = ""

    def __post_init__(self) -> None:
        names = [port.name for port in self.ports]
        for at, name in enumerate(names):
            if name and name in names[:at]:
                raise RuleError(f"two ports are called {quote(name)}: rename one", "ports", at, "name")


class ObjectMetadata(ObjectPart, frozen=True):
    name: Annotated[str, _POD_NAME] = ""
    generate_name: Annotated[str, _NAME_PREFIX] = ""
    namespace: Annotated[str, _NAMESPACE] = "default"

    def __post_init__(self) -> None:
        if not self.own_name:
            raise ValueError("it needs name")

    @property
    def own_name(self) -> str:
        """Without the letters that the API server adds to a generated one."""
        return self.name or self.generate_name.rstrip("-.")


class Metadata(ObjectMetadata, frozen=True):
    uid: Annotated[str | None, _UID] = None
    labels: dict[str, Annotated[str, _WORD]] = {}
    annotations: dict[str, Annotated[str, _WORD]] = {}
    deletion_timestamp: Annotated[str | None, Kind("a time such as 2026-01-31T12:00:00Z", _time)] = None
    deletion_grace_period_seconds: Annotated[int | None, Meta(ge=0, le=2**63 - 1)] = None


Containers = Annotated[tuple[ContainerObject, ...], Meta(max_length=CONTAINERS_MAX)]


class OperatingSystem(ObjectPart, frozen=True):
    name: Literal["linux", "windows"]


class Spec(ObjectPart, frozen=True):
    containers: Containers
    init_containers: Containers = ()
    os: OperatingSystem | None = None
    priority: Int32 | None = None
    priority_class_name: str = ""
    termination_grace_period_seconds: pod_spec.Int64 = pod_spec.GRACE_SECONDS_DEFAULT

    def __post_init__(self) -> None:
        if not self.containers:
            raise RuleError("add a container: a pod has at least one", "containers")
        names = set[str]()
        for field, containers in (("initContainers", self.init_containers), ("containers", self.containers)):
            for at, each in enumerate(containers):
                if each.name in names:
                    raise RuleError(
                        f"two containers are called {quote(each.name)}: rename one", field, at, "name"
                    )
                names.add(each.name)
                at_lifecycle = (field, at, "lifecycle")
                if each.lifecycle and field == "initContainers" and each.restart_policy != "Always":
                    raise RuleError("only a sidecar (restartPolicy: Always) may have it", *at_lifecycle)
                signal = each.lifecycle and each.lifecycle.stop_signal
                if signal and not self.os:
                    raise RuleError("it needs spec.os.name: linux", *at_lifecycle, "stopSignal")
                if signal not in (None, *_WINDOWS_SIGNALS) and self.os and self.os.name == "windows":
                    raise RuleError("on Windows it must be SIGTERM or SIGKILL", *at_lifecycle, "stopSignal")


class Status(ObjectPart, frozen=True):
    phase: str = ""


class PodObject(ObjectPart, frozen=True):
    metadata: Metadata
    spec: Spec
    status: Status = Status()


class PriorityClassObject(ObjectPart, frozen=True):
    metadata: Metadata
    value: Int32
    global_default: bool = False


#: Never changes: a pod keeps its UID from one start to the next.
_UID_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "pods.ebbtide.dev")


class ManifestError(ValueError):
    """One line: where, what, and how to correct it."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """``finished``: it has ended, and is in no plan. ``begun``: a kubelet has written its status.
    ``unplaced``: on no node yet. ``class_name``: a priority class without a known number. ``obstacles``: why
    it cannot run as local processes; a plan ignores them. Its deletion's times count from the reading, 0 ns.
    """

    pod: Pod
    spec: pod_spec.ProcessSpec
    source: str
    finished: bool = False
    begun: bool = False
    unplaced: bool = False
    node: str = ""
    class_name: str = ""
    obstacles: tuple[str, ...] = ()


# ``$(NAME)`` and ``$$`` in commands and variables, as in Kubernetes. Variables that double each other would
# fill the memory: growth is counted first.

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]{0,253})\))")

#: Longest argument or variable that Linux takes (MAX_ARG_STRLEN).
ARGUMENT_BYTES_MAX = 131_072

#: Over all pods of one text.
EXPANDED_BYTES_MAX = 64 * 2**20


class Expander:
    """One for each text."""

    def __init__(self) -> None:
        self._left = EXPANDED_BYTES_MAX

    def expand(self, text: str, variables: Mapping[str, str], *at: str | int) -> str:
        """Raises RuleError for a text that grows out of bounds."""

        def value(found: re.Match[str]) -> str:
            return "$" if found[1] is None else variables.get(found[1], found[0])

        growth = sum(len(value(found)) - len(found[0]) for found in _REFERENCE.finditer(text))
        if len(text) + growth >= ARGUMENT_BYTES_MAX:
            raise RuleError(f"it is longer than {size_text(ARGUMENT_BYTES_MAX)}: shorten it", *at)
        self._left -= max(0, growth)
        if self._left < 0:
            raise RuleError(
                f"variables add more than {size_text(EXPANDED_BYTES_MAX)} in all: shorten them", *at
            )
        return _REFERENCE.sub(value, text)


_TERMINAL = ("Succeeded", "Failed")


class ReadOptions(NamedTuple):
    """``expander`` None: the pods are only planned. Commands and variables are not expanded, and more
    fields are read (`_with_seen`).
    """

    #: The gate PodLifecycleSleepActionAllowZero.
    allow_zero_sleep: bool
    expander: Expander | None = None


def read_pod(node: Node, source: str, options: ReadOptions, path: str = "") -> Manifest:
    """Raises DocumentError."""
    found = read(node, PodObject, path)
    try:
        manifest = _manifest(found, source, options)
    except RuleError as error:
        raise rule_error(node, path, error) from None
    return manifest if options.expander else _with_seen(manifest, node)


def _manifest(found: PodObject, source: str, options: ReadOptions) -> Manifest:
    metadata, spec, obstacles = found.metadata, found.spec, list[str]()
    grace_seconds = spec.termination_grace_period_seconds
    containers: dict[str, list[pod_spec.ContainerSpec]] = {"initContainers": [], "containers": []}
    for field, objects in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for index, each in enumerate(objects):
            at = ("spec", field, index)
            sleep = each.lifecycle and each.lifecycle.pre_stop and each.lifecycle.pre_stop.sleep
            if sleep and (wrong := sleep_mistake(sleep.seconds, grace_seconds, options.allow_zero_sleep)):
                raise RuleError(wrong, *at, "lifecycle", "preStop", "sleep", "seconds")
            containers[field].append(_container(each, at, options.expander, obstacles))
    process = pod_spec.ProcessSpec(
        uid=metadata.uid or _derived_uid(metadata.namespace, metadata.own_name),
        init=tuple(containers["initContainers"]),
        containers=tuple(containers["containers"]),
    )
    priority, deletion = spec.priority, None
    if priority is None:
        priority = pod_spec.SYSTEM_PRIORITIES.get(spec.priority_class_name)
    if metadata.deletion_timestamp is not None:
        seconds = pod_spec.deletion_seconds(metadata.deletion_grace_period_seconds, grace_seconds)
        left_ns = pod_spec.wall_ns(metadata.deletion_timestamp) - time.time_ns()
        deletion = pod_spec.deletion_of(left_ns, seconds, now_ns=0)
    pod = Pod(
        uid=process.uid,
        namespace=metadata.namespace,
        name=metadata.own_name,
        priority=priority,
        # Old objects may have a negative one.
        grace_seconds=grace_seconds if grace_seconds >= 0 else 1,
        containers=tuple(
            Container(
                name=each.name,
                hook=pod_spec.hook_of(each.pre_stop),
                stop_signal=each.stop_signal,
                sidecar=each.sidecar,
            )
            for each in process.lasting
        ),
        deletion=deletion,
    )
    return Manifest(
        pod=pod,
        spec=process,
        source=source,
        finished=found.status.phase in _TERMINAL,
        class_name=spec.priority_class_name if priority is None else "",
        obstacles=tuple(obstacles),
    )


def _derived_uid(namespace: str, name: str) -> str:
    return str(uuid.uuid5(_UID_NAMESPACE, f"{namespace}/{name}"))


#: What `known_pods` reads beside the fields above.
_SEEN = {
    "metadata": ("name", "annotations", "labels", "ownerReferences"),
    "spec": ("nodeName", "tolerations", "volumes"),
    "status": ("phase", "containerStatuses", "initContainerStatuses"),
}


def _with_seen(manifest: Manifest, node: Node) -> Manifest:
    """Adds what a daemon on the node would know of the object. Raises DocumentError."""
    from ebbtide.actors.edges.kubernetes import known_pods  # late: mode process does without it

    parts = {name: node.get(name) for name in _SEEN}
    values = {
        name: {each: plain_value(at) for each, at in part.fields.items() if each in _SEEN[name]}
        for name, part in parts.items()
        if part.value is not None
    }
    try:
        found = msgspec.convert(values, known_pods.PodObject)
        seen = known_pods.project_pod(found)
    except msgspec.ValidationError as error:
        place = str(error).rpartition("`$.")[2].rstrip("`")
        raise DocumentError(f"{place} has another type than in the API", node.line) from error
    states = [(each.name, each.state) for each in found.status.containers if each.state]
    stopped = {name for name, state in states if not state.running}
    ended = {name: state.terminated for name, state in states if state.terminated}
    codes = {name: each.exit_code for name, each in ended.items() if each.reason != known_pods.UNKNOWN_REASON}
    pod = msgspec.structs.replace(
        manifest.pod,
        # A mirror's own UID is not the one that the runtime knows.
        uid=seen.uid or manifest.pod.uid,
        static=seen.static,
        daemon=seen.daemon,
        tolerates_all=seen.tolerates_all,
        volumes=seen.volumes,
        owner=seen.owner,
        deletion=None if seen.static else manifest.pod.deletion,
        # As `cri_pods.pod_view`: a container that ended well has no part in the pod's end.
        containers=tuple(
            msgspec.structs.replace(each, running=each.name not in stopped, exit_code=codes.get(each.name))
            for each in manifest.pod.containers
            if codes.get(each.name) != 0
        ),
    )
    node_name = found.spec.node_name or ""
    unplaced, begun = seen.phase == "Pending" and not node_name, seen.phase not in known_pods.CREATED_PHASES
    return msgspec.structs.replace(manifest, pod=pod, begun=begun, unplaced=unplaced, node=node_name)


def _container(
    found: ContainerObject, at: tuple[str | int, ...], expander: Expander | None, obstacles: list[str]
) -> pod_spec.ContainerSpec:
    """``obstacles`` takes why it cannot run here."""
    variables, argv, missing = dict[str, str](), list[str](), list[str]()
    if expander is not None:
        for index, each in enumerate(found.env):
            if each.value_from is None:
                # As in Kubernetes: only with the variables above it.
                variables[each.name] = expander.expand(each.value, variables, *at, "env", index, "value")
            else:
                missing.append(f"the variable {quote(each.name)} has a valueFrom: write a value")
        if found.env_from:
            missing.append("envFrom names values of a cluster: write the variables in env")
        if not found.command:
            missing.append("it has no command, and its image is not read: write command")
        for field, words in (("command", found.command), ("args", found.args)):
            for index, word in enumerate(words):
                argv.append(expander.expand(word, variables, *at, field, index))
        obstacles += [f"container {found.name}: {reason}" for reason in missing]
    lifecycle = found.lifecycle or Lifecycle()
    return pod_spec.ContainerSpec(
        name=found.name,
        argv=tuple(argv),
        env=variables,
        working_dir=found.working_dir,
        stop_signal=lifecycle.stop_signal or "SIGTERM",
        sidecar="initContainers" in at and found.restart_policy == "Always",
        pre_stop=lifecycle.pre_stop.action if lifecycle.pre_stop is not None else None,
        ports={port.name: port.container_port for port in found.ports if port.name},
    )


def sleep_mistake(seconds: int, grace_seconds: int | None, allow_zero: bool) -> str:
    """The API server's rule for a sleep (KEP-3960); empty if it is kept."""
    least = 0 if allow_zero else 1
    if seconds >= least and (grace_seconds is None or seconds <= grace_seconds):
        return ""
    bound = "" if grace_seconds is None else f" and less than terminationGracePeriodSeconds ({grace_seconds})"
    rule = "non-negative" if allow_zero else "greater than 0"
    hint = "" if allow_zero else "; a sleep of 0 needs the feature gate PodLifecycleSleepActionAllowZero"
    return f"{seconds}: must be {rule}{bound}{hint}"


#: A thousand pods from ``kubectl -o json``.
FILE_BYTES_MAX = 16 * 2**20
#: A JSON list is read object by object: 110 pods of the largest size that an API server takes, 1.5 MiB.
LIST_BYTES_MAX = 256 * 2**20
#: For a running daemon: 250 pods from ``kubectl -o yaml``. Twice as many would delay a shutdown.
LOCAL_BYTES_MAX = 2 * 2**20
LOCAL_NODES_MAX = 100_000
#: In all files together.
PODS_MAX = 10_000

MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"
STDIN_NAME = "standard input"

POD_KIND, CLASS_KIND = "Pod", "PriorityClass"
_VERSIONS = {POD_KIND: "v1", CLASS_KIND: "scheduling.k8s.io/v1"}
#: API groups by kinds with a template of pods. Other groups have other things under these names.
_WORKLOADS = {
    "Deployment": ("apps", "extensions"),
    "ReplicaSet": ("apps", "extensions"),
    "DaemonSet": ("apps", "extensions"),
    "StatefulSet": ("apps",),
    "ReplicationController": ("",),
    "Job": ("batch",),
    "CronJob": ("batch",),
}


def load_manifests(
    paths: Sequence[str | Path], *, allow_zero_sleep: bool = True, notes: list[PlanWarning] | None = None
) -> list[Manifest]:
    """The pods of these files, folders (without subfolders), or ``-`` for standard input. A workload gives a
    pod for each replica. PriorityClass objects apply to the pods of all files.

    ``notes`` takes a line for each unreadable object, and about objects that are no pods. Raises
    ManifestError.
    """
    gathered = Gathered(ReadOptions(allow_zero_sleep))
    files: list[tuple[str | Path, bool]] = []
    for path in paths:
        if str(path) == STDIN or not Path(path).is_dir():
            files.append((path, True))
            continue
        try:
            # Regular files, as for the kubelet's static pods. Hidden files are unfinished copies.
            inside = [each for each in sorted(Path(path).iterdir()) if each.suffix in MANIFEST_SUFFIXES]
            shown = [each for each in inside if not each.name.startswith(".")]
            files += [(each, False) for each in shown if stat.S_ISREG(each.stat().st_mode)]
        except OSError as error:
            raise _unreadable(Path(path), error) from error
    for file, named in files:
        from_stdin = str(file) == STDIN
        name = STDIN_NAME if from_stdin else str(file)
        if from_stdin and sys.stdin is None:
            raise ManifestError(f"{name} is closed: pipe the pods into it, or name a file")
        try:
            if named:
                # A named pipe may be meant, as in --pods <(kubectl get pods -o yaml).
                with nullcontext(sys.stdin.buffer) if from_stdin else open(file, "rb") as opened:
                    raw = opened.read(LIST_BYTES_MAX + 1)
            else:
                raw = read_file(file, LIST_BYTES_MAX)
        except (OSError, ValueError) as error:
            if named:
                raise _unreadable(name, error) from error
            gathered.wrong.append(str(_unreadable(name, error)))
            continue
        gathered.add(name, raw)
    found = gathered.pods_of_node()
    if gathered.wrong and not found:
        more = f"; and {len(gathered.wrong) - 1} more like this" if gathered.wrong[1:] else ""
        raise ManifestError(gathered.wrong[0] + more)
    if notes is not None:
        notes += gathered.notes(found)
    return found


def load_pods(
    paths: Sequence[str | Path], settings: Settings, notes: list[PlanWarning] | None = None
) -> tuple[Pod, ...]:
    """The pods that have not ended. Their deletions begin at the signal: the result does not depend on the
    time. Raises ManifestError.
    """
    zero = settings.gate("PodLifecycleSleepActionAllowZero")
    manifests = load_manifests(paths, allow_zero_sleep=zero, notes=notes)
    pods = [manifest.pod for manifest in manifests if not manifest.finished]
    deleted = [short_name(each) for each in pods if each.deletion]
    if deleted and notes is not None:
        notes.append(
            ("deletion-time", f"being deleted, with all of their grace left: {first_names(deleted)}")
        )
    return tuple(each.on_clock(-each.deletion.since_ns) if each.deletion else each for each in pods)


def plan_of(
    settings: Settings,
    manifests: Sequence[Manifest],
    grant_ns: int | None,
    now_ns: int = 0,
    means: TerminationMode = "",
) -> Plan:
    """``grant_ns`` None: without logind's limit. ``now_ns``: 0 for manifests, this boot's clock for running
    pods.
    """
    return make_plan(
        effective_periods(settings),
        grant_ns,
        settings.reserve_seconds * NS_PER_SECOND,
        [manifest.pod for manifest in manifests if not manifest.finished],
        settings.budget,
        sleep_action=settings.gate("PodLifecycleSleepAction"),
        now_ns=now_ns,
        means=means,
    )


def load_local_pods(
    path: str | Path, *, allow_zero_sleep: bool = True
) -> list[tuple[Pod, pod_spec.ProcessSpec]]:
    """The pods of one file, to run as local processes. Waits for no pipe. Raises ManifestError, also for a
    pod that only a cluster can run.
    """
    try:
        raw = read_file(path, LOCAL_BYTES_MAX)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    manifests = parse_manifests(
        str(path),
        raw,
        allow_zero_sleep=allow_zero_sleep,
        bytes_max=LOCAL_BYTES_MAX,
        nodes_max=LOCAL_NODES_MAX,
    )
    for manifest in manifests:
        for reason in manifest.obstacles:
            raise ManifestError(one_line(f"{manifest.source}: pod {manifest.pod.label}: {reason}"))
    now_ns = time.monotonic_ns()
    return [(manifest.pod.on_clock(now_ns), manifest.spec) for manifest in manifests]


def parse_manifests(
    name: str,
    raw: bytes,
    *,
    allow_zero_sleep: bool = True,
    bytes_max: int = FILE_BYTES_MAX,
    nodes_max: int = NODES_MAX,
) -> list[Manifest]:
    """The pods of one text, for local processes. A class without an object there counts as 0 and stays in
    ``class_name``. Raises ManifestError, also for other kinds.
    """
    gathered = Gathered(ReadOptions(allow_zero_sleep, Expander()))
    gathered.add(name, raw, bytes_max, nodes_max)
    found = gathered.pods_of_node()
    if gathered.wrong:
        raise ManifestError(gathered.wrong[0])
    return found


class Workload(NamedTuple):
    """``names``: its own, and its controller's. ``manifest``: one of its pods."""

    names: tuple[str, ...]
    manifest: Manifest
    replicas: int


class Gathered:
    """``wrong``: a line for each object that cannot be read."""

    def __init__(self, options: ReadOptions) -> None:
        self.wrong: list[str] = []
        self._options = options
        self._pods: list[Manifest] = []
        self._priorities: dict[str, int] = {}
        #: The lowest global default.
        self._default_priority: int | None = None
        self._workloads: dict[str, Workload] = {}
        #: Objects that are not on the node, by kind.
        self._passed: Counter[str] = Counter()
        self._repeated: list[str] = []

    def add(self, name: str, raw: bytes, bytes_max: int = FILE_BYTES_MAX, nodes_max: int = NODES_MAX) -> None:
        """Raises ManifestError for too many pods."""
        if not self._options.expander and raw[:1] == b"{" and len(raw) <= LIST_BYTES_MAX:
            found = _first_look(raw)
            if found.kind.endswith("List"):
                self._add_items(name, found)
                return
        # Helm and the API server take a field twice.
        repeated = None if self._options.expander else list[DocumentError]()
        documents, wrong = list[Node](), list[DocumentError]()
        try:
            documents = parse_text(decode_text(raw, bytes_max), nodes_max, repeated, wrong)
        except DocumentError as error:
            wrong.append(error)
        self._repeated += [_located_message(name, "", error) for error in repeated or ()]
        self.wrong += [_located_message(name, "", error) for error in wrong]
        for number, document in enumerate(documents, start=1):
            self._read(name, f"document {number}", document)

    def _add_items(self, name: str, found: _JsonObject, outer: str = "") -> None:
        """Leaves out an object that is too large: one namespace's user must not make the others
        unreadable.
        """
        repeated = list[DocumentError]()
        for at, item in enumerate(found.items or ()):
            place = f"{outer}items[{at}]"
            # Each level reads the text again. Deeper lists must fit into one object's bounds.
            inner = _first_look(item)
            if not outer and inner.kind.endswith("List"):
                self._add_items(name, inner, f"{place}.")
                continue
            try:
                nodes = parse_text(decode_text(bytes(item), FILE_BYTES_MAX), OBJECT_NODES_MAX, repeated)
            except DocumentError as error:
                message = f"{quote(inner.metadata.name)}: {error.message}"
                self.wrong.append(_located_message(name, place, DocumentError(message, 0)))
                continue
            for node in nodes or [Node(None)]:
                # Without its line, which counts from the item's begin.
                self._read(name, place, Node(node.value), found.kind.removesuffix("List"))
        self._repeated += [_located_message(name, "document 1", error) for error in repeated[:REPEATED_MAX]]

    def _read(self, name: str, place: str, node: Node, implied: str = "") -> None:
        """``implied``: the kind of an item of a typed list."""
        what = ""
        try:
            # jq and yq print a list's items alone.
            is_bare = isinstance(node.value, list)
            kind = "List" if is_bare else _kind_of(node, implied)
            if kind == "List" or (kind.endswith("List") and node.get("items").value is not None):
                items = node if is_bare else node.get("items")
                if not isinstance(items.value, list | None):
                    raise DocumentError(f"items is {describe(items)}: it must be a list", items.line)
                for at, each in enumerate(items.value or ()):
                    self._read(name, f"{place}, items[{at}]", each, kind.removesuffix("List"))
                return
            own_name = node.get("metadata").get("name").value
            if kind != CLASS_KIND and isinstance(own_name, str):
                what = f"{'pod' if kind == POD_KIND else kind} {quote(own_name)}: "
            self._take(kind, node, f"{name}:{node.line}" if node.line else f"{name}, {place}")
        except DocumentError as error:
            first = error.found[0] if isinstance(error, DocumentErrors) else error
            self.wrong.append(_located_message(name, place, DocumentError(what + first.message, first.line)))

    def _take(self, kind: str, node: Node, source: str) -> None:
        version, wanted = node.get("apiVersion"), _VERSIONS.get(kind, "")
        group = str(version.value or "").rpartition("/")[0]
        # Any version of the group: old files still name v1beta1.
        same_group = group and group == wanted.rpartition("/")[0]
        if wanted and not same_group and version.value not in (None, wanted):
            raise DocumentError(f"apiVersion is {describe(version)}: it must be {wanted}", version.line)
        if kind == CLASS_KIND:
            found = read(node, PriorityClassObject)
            name, value = found.metadata.own_name, found.value
            if self._priorities.setdefault(name, value) != value:
                twice = f"priority class {quote(name)} occurs twice, with two values: keep one"
                raise DocumentError(twice, node.line)
            if found.global_default:
                # The lowest counts, as in the API server.
                lowest = self._default_priority
                self._default_priority = value if lowest is None else min(value, lowest)
        elif kind == POD_KIND:
            self._pods.append(read_pod(node, source, self._options))
            # Many small texts together also need a bound.
            if len(self._pods) > PODS_MAX:
                raise ManifestError(f"more than {PODS_MAX} pods: no node runs that many, name fewer files")
        elif self._options.expander:
            cure = "only Pod, PriorityClass and lists of them are read (kubectl get pods -o yaml)"
            raise DocumentError(f"kind is {quote(kind)}: {cure}", node.get("kind").line)
        elif kind in _WORKLOADS and (version.value is None or group in _WORKLOADS[kind]):
            workload = read_workload(kind, node, source, self._options)
            first = self._workloads.setdefault(workload.names[0], workload)
            if first is not workload:
                raise DocumentError(f"it occurs twice, first at {first.manifest.source}: keep one", node.line)
        elif not group and kind in _WORKLOADS:
            cure = f"apiVersion is {describe(version)}: it must name the group {_WORKLOADS[kind][0]}"
            raise DocumentError(cure, version.line)
        else:
            self._passed[f"{kind} of {group}" if kind in _WORKLOADS else kind] += 1

    def pods_of_node(self) -> list[Manifest]:
        """The pods, and those of workloads without a pod or controller in the files. Raises ManifestError."""
        seen, twins = dict[str, Manifest](), set[int]()
        # Any user can write a mirror's annotations, but only few a status (`known_pods`).
        order = sorted(enumerate(self._pods), key=lambda each: (each[1].pod.static, not each[1].begun))
        for number, each in order:
            for key in (f"pod {each.pod.label}", f"UID {each.pod.uid}"):
                if (first := seen.setdefault(key, each)) is not each and number not in twins:
                    twins.add(number)
                    self.wrong.append(
                        one_line(f"{each.source}: {key} occurs twice, first at {first.source}: keep one")
                    )
        here = [each for at, each in enumerate(self._pods) if not each.unplaced and at not in twins]
        covered = {f"{each.pod.namespace}/{each.pod.owner}" for each in self._pods}
        covered |= {name for own in covered & self._workloads.keys() for name in self._workloads[own].names}
        self._replicated = list[Workload]()
        for own, workload in self._workloads.items():
            if covered.isdisjoint(workload.names) and self._workloads.keys() & workload.names == {own}:
                here += self._replicas(workload, seen, PODS_MAX - len(here))
        return [self._with_priority(each) for each in here]

    def _with_priority(self, manifest: Manifest) -> Manifest:
        """Resolves the priority class, as the API server does on admission."""
        name = manifest.class_name
        found = self._priorities.get(name) if name else self._default_priority
        if found is None or manifest.pod.priority is not None:
            return manifest
        pod = msgspec.structs.replace(manifest.pod, priority=found)
        return msgspec.structs.replace(manifest, pod=pod, class_name="")

    def _replicas(self, workload: Workload, seen: dict[str, Manifest], room: int) -> Iterator[Manifest]:
        """Named as a StatefulSet names its pods, where these names are free."""
        manifest, pod = workload.manifest, workload.manifest.pod
        if workload.replicas > room:
            self.wrong.append(
                f"{manifest.source}: {workload.names[0]} has {workload.replicas} replicas: too many"
            )
            return
        self._replicated.append(workload)
        numbers = count()
        for _ in range(workload.replicas):
            name = next(
                name for n in numbers if f"pod {pod.namespace}/{(name := f'{pod.name}-{n}')}" not in seen
            )
            uid = _derived_uid(pod.namespace, name)
            one = msgspec.structs.replace(
                manifest,
                pod=msgspec.structs.replace(pod, name=name, uid=uid),
                spec=msgspec.structs.replace(manifest.spec, uid=uid),
            )
            seen[f"pod {one.pod.label}"] = one
            yield one

    def notes(self, manifests: Sequence[Manifest]) -> Iterator[PlanWarning]:
        yield from (("unreadable", each) for each in self.wrong)
        yield from (("field-twice", f"{each}; the last one counts") for each in dict.fromkeys(self._repeated))
        if all(each.finished for each in manifests):
            yield "no-pods", "no pod is planned: the files or standard input have no pod that runs"
        by_class: dict[str, list[str]] = {}
        for each in manifests:
            if each.class_name and not each.finished:
                by_class.setdefault(each.class_name, []).append(short_name(each.pod))
        for name, pods in by_class.items():
            text = f"no object here has the value of {quote(name)}, planned as 0: {first_names(pods)}"
            cure = "add it (kubectl get priorityclasses -o yaml), or write spec.priority"
            yield "class-unknown", one_line(f"{text}; {cure}")
        if many := [f"{each.names[0]} ({each.replicas})" for each in self._replicated if each.replicas > 1]:
            yield "replicas", f"all replicas are planned on one node: {first_names(many)}"
        if len(nodes := {each.node for each in manifests if each.node}) > 1:
            cure = "name one with --field-selector spec.nodeName=NODE"
            yield "several-nodes", f"pods of {len(nodes)} nodes are planned as those of one: {cure}"
        passed = dict(self._passed)
        if unplaced := sum(each.unplaced for each in self._pods):
            passed["Pod without a node"] = unplaced
        if passed:
            kinds = first_names([f"{number} {kind}" for kind, number in sorted(passed.items())])
            number = sum(passed.values())
            yield "passed-over", one_line(f"objects without a pod on this node: {number} ({kinds})")


class _JsonName(msgspec.Struct, frozen=True):
    name: str = ""


class _JsonObject(msgspec.Struct):
    """A first look at an object of unknown size. Empty for other text."""

    kind: str = ""
    items: list[msgspec.Raw] | None = None
    metadata: _JsonName = _JsonName()


def _first_look(raw: bytes) -> _JsonObject:
    try:
        return msgspec.json.decode(raw, type=_JsonObject)
    except (ValueError, RecursionError):
        return _JsonObject()


class Scale(ObjectPart, frozen=True):
    replicas: Annotated[int, Meta(ge=0, le=INT32_MAX)] = 1
    parallelism: Annotated[int, Meta(ge=0, le=INT32_MAX)] = 1
    completions: Annotated[int, Meta(ge=0, le=INT32_MAX)] = INT32_MAX
    suspend: bool = False


class JobStatus(ObjectPart, frozen=True):
    start_time: str = ""
    active: Annotated[int, Meta(ge=0, le=INT32_MAX)] = 0


def read_workload(kind: str, node: Node, source: str, options: ReadOptions) -> Workload:
    """Raises DocumentError."""
    metadata, spec, path = _mapping(node, "", "metadata"), _mapping(node, "", "spec"), "spec"
    found = read(metadata, ObjectMetadata, "metadata")
    name, scale = found.own_name, read(spec, Scale, path)
    number = scale.replicas
    if kind == "DaemonSet":
        number = 1
    elif kind in ("Job", "CronJob"):
        is_suspended = scale.suspend
        if kind == "CronJob":
            spec, path = (
                _mapping(_mapping(spec, path, "jobTemplate"), "spec.jobTemplate", "spec"),
                "spec.jobTemplate.spec",
            )
            scale = read(spec, Scale, path)
        number = 0 if is_suspended or scale.suspend else min(scale.parallelism, scale.completions)
        status = node.get("status")
        if kind == "Job" and status.value and (job := read(status, JobStatus, "status")).start_time:
            number = job.active
    template, path = _mapping(spec, path, "template"), f"{path}.template"
    given = template.get("metadata").fields
    fields = {each: at for each, at in given.items() if each in ("annotations", "labels")}
    fields |= {"name": Node(name, metadata.line), "namespace": Node(found.namespace, metadata.line)}
    one = {"metadata": Node(fields, template.line), "spec": template.get("spec")}
    manifest = read_pod(Node(one, template.line), source, options, path)
    pod = msgspec.structs.replace(
        manifest.pod,
        owner=f"{kind}/{name}",
        daemon=kind == "DaemonSet",
        volumes=manifest.pod.volumes or bool(spec.get("volumeClaimTemplates").value),
    )
    owners = plain_value(metadata.get("ownerReferences"))
    found_owners = (each for each in (owners if isinstance(owners, list) else ()) if isinstance(each, dict))
    controllers = (each for each in found_owners if each.get("controller") is True)
    names = [(kind, name), *((each.get("kind"), each.get("name")) for each in controllers)]
    return Workload(
        tuple(f"{found.namespace}/{kind}/{name}" for kind, name in names),
        msgspec.structs.replace(manifest, pod=pod),
        number,
    )


def _kind_of(node: Node, implied: str) -> str:
    if not isinstance(node.value, dict):
        raise DocumentError(f"the document is {describe(node)}: it must be a mapping", node.line)
    kind = node.get("kind")
    name = implied if kind.value is None and implied else kind.value
    if not isinstance(name, str) or not name:
        found = "missing" if kind.value is None else describe(kind)
        raise DocumentError(f"kind is {found}: it must name a kind, such as Pod or Deployment", kind.line)
    return name


def _mapping(node: Node, path: str, name: str) -> Node:
    found, at = node.get(name), f"{path}.{name}" if path else name
    if not isinstance(found.value, dict):
        raise DocumentError(f"{at} is {describe(found)}: it must be a mapping", found.line)
    return found


def _unreadable(path: str | Path, error: Exception) -> ManifestError:
    reason = getattr(error, "strerror", None) or str(error)
    return ManifestError(one_line(f"cannot read {path}: {reason}; name a readable file or folder"))


def _located_message(name: str, place: str, error: DocumentError) -> str:
    where = f":{error.line}" if error.line else f", {place}" if place else ""
    return one_line(f"{name}{where}: {error.message}")
