"""Pod manifests: ordinary Kubernetes Pod objects from files, folders, lists or standard input.

The fields of one object become a `Manifest`: command and environment as far as they can be known without a
cluster, and the views of the core and the process edge.
"""

from __future__ import annotations

import re
import stat
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from ebbtide.actors.edges.documents import (
    NODES_MAX,
    DocumentError,
    Node,
    decode_text,
    one_line,
    parse_text,
    quote,
    read_file,
)
from ebbtide.actors.edges.linux.proc import signal_number
from ebbtide.actors.edges.pod_spec import (
    SYSTEM_PRIORITIES,
    ContainerSpec,
    ExecAction,
    HookAction,
    HttpGetAction,
    Int64,
    ProcessSpec,
    SleepAction,
    TcpSocketAction,
    hook_of,
)
from ebbtide.actors.policy.grace_periods import effective_periods
from ebbtide.actors.policy.planning import Plan, first_names, make_plan, short_name
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
from ebbtide.events.values import Container, Pod, Settings

# The fields of a Pod object that matter to a shutdown, checked as the API server checks them. The reader
# passes over the hundreds of others.

UID_LENGTH_MAX = 128
#: More containers than any real pod has; keeps one pod's record small.
CONTAINERS_MAX = 128
#: Words of one command, and variables of one container.
ENTRIES_MAX = 4096
HEADERS_MAX = 128
#: Longest request target that servers commonly take.
URL_PART_LENGTH_MAX = 8192

_PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")


def _variable(text: str) -> str:
    if not text or "=" in text or not text.isprintable():
        raise ValueError
    return text


def _stop_signal(text: str) -> str:
    signal_number(text if text.startswith("SIG") else "")
    return text


def _printable(text: str) -> str:
    if len(text) > URL_PART_LENGTH_MAX or not text.replace("\t", " ").isprintable():
        raise ValueError
    return text


_LABEL = matching(
    DNS_LABEL,
    "at most 63 lower case letters, digits and '-', in quotes, begin and end with a letter or digit",
)
_POD_NAME = Kind(
    "at most 253 lower case letters, digits, '-' and '.', in quotes, begin and end with a letter or digit",
    node_name,
)
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
    re.compile(rf"[-!#$%&'*+.^_`|~0-9A-Za-z]{{1,{URL_PART_LENGTH_MAX}}}"), "the name of a header"
)
_HOST = matching(re.compile(rf"[-._:\[\]%0-9A-Za-z]{{0,{URL_PART_LENGTH_MAX}}}"), "a host's name or address")

Int32 = Annotated[int, Meta(ge=INT32_MIN, le=INT32_MAX)]
Words = Annotated[tuple[Annotated[str, _WORD], ...], Meta(max_length=ENTRIES_MAX)]


class ObjectPart(msgspec.Struct, frozen=True, rename="camel"):
    """A mapping of a Kubernetes object."""


class EnvVar(ObjectPart, frozen=True):
    name: Annotated[str, Kind("a variable's name, without '='", _variable)]
    value: Annotated[str, _WORD] = ""
    value_from: Any = None


class ContainerPort(ObjectPart, frozen=True):
    container_port: Annotated[int, Meta(ge=1, le=PORT_MAX)]
    name: str = ""


class ExecHook(ObjectPart, frozen=True):
    command: Words = ()

    def __post_init__(self) -> None:
        if not self.command:
            raise RuleError("it is empty: name a program", "command")

    @property
    def action(self) -> HookAction:
        return ExecAction(argv=self.command)


class Header(ObjectPart, frozen=True):
    name: Annotated[str, _HEADER]
    value: Annotated[str, _URL_PART] = ""


class HttpGetHook(ObjectPart, frozen=True):
    port: Annotated[int | str, Kind("a port or a port's name")]
    host: Annotated[str, _HOST] = ""
    scheme: Literal["HTTP", "HTTPS"] = "HTTP"
    path: Annotated[str, _URL_PART] = ""
    http_headers: Annotated[tuple[Header, ...], Meta(max_length=HEADERS_MAX)] = ()

    def __post_init__(self) -> None:
        # The name's port is looked up when the hook runs.
        text = str(self.port)
        is_number = re.fullmatch("[0-9]{1,5}", text) and 1 <= int(text) <= PORT_MAX
        if not is_number and (isinstance(self.port, int) or not _PORT_NAME.fullmatch(self.port)):
            raise RuleError(f"{quote(text)} is no port and no port's name: write one of them", "port")

    @property
    def action(self) -> HookAction:
        return HttpGetAction(
            port=self.port,
            host=self.host,
            scheme=self.scheme,
            path=self.path,
            headers=tuple((each.name, each.value) for each in self.http_headers),
        )


class SleepHook(ObjectPart, frozen=True):
    seconds: Int64

    @property
    def action(self) -> HookAction:
        return SleepAction(seconds=self.seconds)


class TcpSocketHook(ObjectPart, frozen=True):
    """Accepted in old objects; fails when it runs."""

    @property
    def action(self) -> HookAction:
        return TcpSocketAction()


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
    def action(self) -> HookAction:
        (handler,) = (each for each in msgspec.structs.astuple(self) if each is not None)
        action: HookAction = handler.action
        return action


class Lifecycle(ObjectPart, frozen=True):
    pre_stop: PreStop | None = None
    stop_signal: Annotated[str, Kind("a name such as SIGTERM or SIGRTMIN+3", _stop_signal)] = "SIGTERM"


class ContainerObject(ObjectPart, frozen=True):
    name: Annotated[str, _LABEL]
    command: Words = ()
    args: Words = ()
    env: Annotated[tuple[EnvVar, ...], Meta(max_length=ENTRIES_MAX)] = ()
    env_from: Any = None
    lifecycle: Lifecycle = Lifecycle()
    restart_policy: str = ""
    ports: Annotated[tuple[ContainerPort, ...], Meta(max_length=ENTRIES_MAX)] = ()
    working_dir: str = ""


class Metadata(ObjectPart, frozen=True):
    name: Annotated[str, _POD_NAME]
    namespace: Annotated[str, _LABEL] = "default"
    uid: Annotated[str | None, _UID] = None


Containers = Annotated[tuple[ContainerObject, ...], Meta(max_length=CONTAINERS_MAX)]


class Spec(ObjectPart, frozen=True):
    containers: Containers
    init_containers: Containers = ()
    priority: Int32 | None = None
    priority_class_name: str = ""
    termination_grace_period_seconds: Annotated[int | None, Meta(ge=0, le=2**63 - 1)] = None

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


class Status(ObjectPart, frozen=True):
    phase: str = ""


class PodObject(ObjectPart, frozen=True):
    metadata: Metadata
    spec: Spec
    status: Status = Status()


class ClassMetadata(ObjectPart, frozen=True):
    name: Annotated[str, _POD_NAME]


class PriorityClassObject(ObjectPart, frozen=True):
    metadata: ClassMetadata
    value: Int32
    global_default: bool = False


# From objects to manifests.

#: The space of the UIDs that are derived here. Never changed: a pod keeps its UID from one start to the next.
_UID_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "pods.ebbtide.dev")


class ManifestError(ValueError):
    """A manifest cannot be used. One line: where, what, and how to put it right."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """``finished``: it has ended, and is in no plan. ``class_name``: a priority class without a known number.
    ``obstacles``: why it cannot run as local processes; a plan ignores them.
    """

    pod: Pod
    spec: ProcessSpec
    source: str
    finished: bool = False
    class_name: str = ""
    obstacles: tuple[str, ...] = ()


# ``$(NAME)`` in commands and variables becomes a known variable's value, and ``$$`` a dollar sign, as in
# Kubernetes. Variables that double each other would fill the memory: growth is counted first.

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
            raise RuleError(f"variables add more than {size_text(EXPANDED_BYTES_MAX)} in all", *at)
        return _REFERENCE.sub(value, text)


_TERMINAL = ("Succeeded", "Failed")


class ReadOptions(NamedTuple):
    #: The gate PodLifecycleSleepActionAllowZero.
    allow_zero_sleep: bool
    expander: Expander


def read_pod(node: Node, source: str, options: ReadOptions) -> Manifest:
    """Raises DocumentError, with the pod's name if it has one."""
    try:
        found = read(node, PodObject)
        try:
            return _manifest(found, source, options)
        except RuleError as error:
            raise rule_error(node, "", error) from None
    except DocumentError as error:
        first = error.found[0] if isinstance(error, DocumentErrors) else error
        metadata = node.value.get("metadata") if isinstance(node.value, dict) else None
        name = metadata.value.get("name") if metadata and isinstance(metadata.value, dict) else None
        named = f"pod {quote(name.value)}: " if name and isinstance(name.value, str) else ""
        raise DocumentError(named + first.message, first.line) from error


def _manifest(found: PodObject, source: str, options: ReadOptions) -> Manifest:
    metadata, spec, obstacles = found.metadata, found.spec, list[str]()
    derived = uuid.uuid5(_UID_NAMESPACE, f"{metadata.namespace}/{metadata.name}")
    metadata = msgspec.structs.replace(metadata, uid=metadata.uid or str(derived))
    containers: dict[str, list[ContainerSpec]] = {"initContainers": [], "containers": []}
    for field, objects in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for index, each in enumerate(objects):
            at = ("spec", field, index)
            is_init = field == "initContainers"
            container, missing = _container(each, is_init, options.expander, at)
            sleep = each.lifecycle.pre_stop and each.lifecycle.pre_stop.sleep
            if sleep and (
                wrong := sleep_mistake(
                    sleep.seconds, spec.termination_grace_period_seconds, options.allow_zero_sleep
                )
            ):
                raise RuleError(wrong, *at, "lifecycle", "preStop", "sleep", "seconds")
            containers[field].append(container)
            obstacles += [f"container {each.name}: {reason}" for reason in missing]
    process = ProcessSpec(
        uid=metadata.uid or "",
        init=tuple(containers["initContainers"]),
        containers=tuple(containers["containers"]),
    )
    priority = spec.priority
    if priority is None:
        priority = SYSTEM_PRIORITIES.get(spec.priority_class_name)
    pod = Pod(
        uid=process.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        priority=priority,
        grace_seconds=spec.termination_grace_period_seconds,
        containers=tuple(
            Container(
                name=each.name,
                hook=hook_of(each.pre_stop),
                stop_signal=each.stop_signal,
                sidecar=each.sidecar,
            )
            for each in process.lasting
        ),
    )
    return Manifest(
        pod=pod,
        spec=process,
        source=source,
        finished=found.status.phase in _TERMINAL,
        class_name=spec.priority_class_name if priority is None else "",
        obstacles=tuple(obstacles),
    )


def _container(
    found: ContainerObject, is_init: bool, expander: Expander, at: tuple[str | int, ...]
) -> tuple[ContainerSpec, list[str]]:
    """And why it cannot run here."""
    variables, missing = dict[str, str](), list[str]()
    for index, each in enumerate(found.env):
        if each.value_from is None:
            # Only with the variables above it, in the order of the list, as in Kubernetes.
            variables[each.name] = expander.expand(each.value, variables, *at, "env", index, "value")
        else:
            missing.append(f"the variable {quote(each.name)} has a valueFrom: write a value")
    if found.env_from:
        missing.append("envFrom names values of a cluster: write the variables in env")
    if not found.command:
        missing.append("it has no command, and its image is not read: write command")
    argv = [
        expander.expand(word, variables, *at, field, index)
        for field, words in (("command", found.command), ("args", found.args))
        for index, word in enumerate(words)
    ]
    sidecar = is_init and found.restart_policy == "Always"
    ports: dict[str, int] = {}
    for port in found.ports:
        if port.name:
            ports.setdefault(port.name, port.container_port)
    hook = found.lifecycle.pre_stop
    container = ContainerSpec(
        name=found.name,
        argv=tuple(argv),
        env=variables,
        working_dir=found.working_dir,
        stop_signal=found.lifecycle.stop_signal,
        sidecar=sidecar,
        # A container that ends by itself before the pod is up has no end to prepare.
        pre_stop=hook.action if hook is not None and (sidecar or not is_init) else None,
        ports=ports,
    )
    return container, missing


def sleep_mistake(seconds: int, grace_seconds: int | None, allow_zero: bool) -> str:
    """The API server's rule for a sleep (KEP-3960), in its words; empty if it is kept."""
    least = 0 if allow_zero else 1
    if seconds >= least and (grace_seconds is None or seconds <= grace_seconds):
        return ""
    bound = "" if grace_seconds is None else f" and less than terminationGracePeriodSeconds ({grace_seconds})"
    rule = "non-negative" if allow_zero else "greater than 0"
    hint = "" if allow_zero else "; a sleep of 0 needs the feature gate PodLifecycleSleepActionAllowZero"
    return f"{seconds}: must be {rule}{bound}{hint}"


# Where manifests come from: files, folders and standard input; documents, lists and single pods.


#: A thousand pods from ``kubectl -o json``.
FILE_BYTES_MAX = 16 * 2**20
#: For a running daemon: 250 pods from ``kubectl -o yaml``, in a file. Twice as many would delay a shutdown.
LOCAL_BYTES_MAX = 2 * 2**20
LOCAL_NODES_MAX = 100_000
#: In all files together.
PODS_MAX = 10_000

MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"
STDIN_NAME = "standard input"

POD_KIND, CLASS_KIND = "Pod", "PriorityClass"
#: The readable kinds, each with its version.
_VERSIONS = {POD_KIND: "v1", CLASS_KIND: "scheduling.k8s.io/v1"}
#: Lists of these, with the kind of an item without its own; empty: it must have one.
_LIST_KINDS = {"List": "", "PodList": POD_KIND, "PriorityClassList": CLASS_KIND}


def load_manifests(paths: Sequence[str | Path], *, allow_zero_sleep: bool = True) -> list[Manifest]:
    """All pods of these files, folders (not their subfolders), or ``-`` for standard input.

    PriorityClass objects of one file apply to the pods of all. Raises ManifestError.
    """
    manifests, classes = list[Manifest](), PriorityClasses()
    files: list[tuple[str | Path, bool]] = []
    for path in paths:
        is_folder = str(path) != STDIN and Path(path).is_dir()
        files += [(each, False) for each in _in_folder(Path(path))] if is_folder else [(path, True)]
    for file, named in files:
        from_stdin = str(file) == STDIN
        name = STDIN_NAME if from_stdin else str(file)
        if from_stdin and sys.stdin is None:
            raise ManifestError(f"{name} is closed: pipe the pods into it, or name a file")
        try:
            if named:
                # A named pipe may be meant, as in --pods <(kubectl get pods -o yaml).
                with nullcontext(sys.stdin.buffer) if from_stdin else open(file, "rb") as opened:
                    raw = opened.read(FILE_BYTES_MAX + 1)
            else:
                raw = read_file(file, FILE_BYTES_MAX)
        except (OSError, ValueError) as error:
            raise _unreadable(name, error) from error
        manifests += _parse(name, raw, classes, ReadOptions(allow_zero_sleep, Expander()))
        # After each file: many small ones together also need a bound.
        if len(manifests) > PODS_MAX:
            raise ManifestError(f"more than {PODS_MAX} pods: no node runs that many, name fewer files")
    _refuse_twins(manifests)
    manifests = [classes.resolve(each) for each in manifests]
    _refuse_unknown_classes([each for each in manifests if each.class_name and not each.finished])
    return manifests


def load_pods(paths: Sequence[str | Path], settings: Settings) -> tuple[Pod, ...]:
    """The pods of these files that would run under these settings. Raises ManifestError."""
    manifests = load_manifests(paths, allow_zero_sleep=settings.gate("PodLifecycleSleepActionAllowZero"))
    return tuple(manifest.pod for manifest in manifests if not manifest.finished)


def plan_of(settings: Settings, manifests: Sequence[Manifest], grant_ns: int | None) -> Plan:
    """A shutdown now with these pods, without ended ones; ``grant_ns`` None without logind's limit."""
    return make_plan(
        effective_periods(settings),
        grant_ns,
        settings.reserve_seconds * NS_PER_SECOND,
        [manifest.pod for manifest in manifests if not manifest.finished],
        settings.budget,
        sleep_action=settings.gate("PodLifecycleSleepAction"),
    )


def load_local_pods(path: str | Path, *, allow_zero_sleep: bool = True) -> list[tuple[Pod, ProcessSpec]]:
    """The pods of one file, ready to run as local processes. Waits for no pipe.

    Raises ManifestError, also for a pod that only a cluster can run.
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
    return [(manifest.pod, manifest.spec) for manifest in manifests]


def parse_manifests(
    name: str,
    raw: bytes,
    *,
    allow_zero_sleep: bool = True,
    bytes_max: int = FILE_BYTES_MAX,
    nodes_max: int = NODES_MAX,
) -> list[Manifest]:
    """The pods of one text; ``name``: for messages. A class without an object in the text stays on its pod
    (``class_name``), which counts as 0. Raises ManifestError.
    """
    classes, reading = PriorityClasses(), ReadOptions(allow_zero_sleep, Expander())
    manifests = _parse(name, raw, classes, reading, bytes_max, nodes_max)
    _refuse_twins(manifests)
    return [classes.resolve(each) for each in manifests]


def _parse(
    name: str,
    raw: bytes,
    classes: PriorityClasses,
    reading: ReadOptions,
    bytes_max: int = FILE_BYTES_MAX,
    nodes_max: int = NODES_MAX,
) -> list[Manifest]:
    """Its pods; its classes go into ``classes``."""
    try:
        documents = parse_text(decode_text(raw, bytes_max), nodes_max)
    except DocumentError as error:
        raise ManifestError(_located_message(name, 0, error)) from error
    manifests: list[Manifest] = []
    for number, document in enumerate(documents, start=1):
        try:
            for kind, node in _objects(document):
                if kind == CLASS_KIND:
                    classes.read(node)
                    continue
                source = f"{name}:{node.line}" if node.line else f"{name}, document {number}"
                manifests.append(read_pod(node, source, reading))
        except DocumentError as error:
            raise ManifestError(_located_message(name, number, error)) from error
    return manifests


class PriorityClasses:
    """PriorityClass objects, applied to a pod as the API server does on admission."""

    def __init__(self) -> None:
        self._values: dict[str, int] = {}
        #: The lowest global default; None without one.
        self._default: int | None = None

    def read(self, node: Node) -> None:
        """Raises DocumentError."""
        found = read(node, PriorityClassObject)
        name, value = found.metadata.name, found.value
        if self._values.setdefault(name, value) != value:
            raise DocumentError(
                f"priority class {quote(name)} stands twice, with two values: keep one", node.line
            )
        if found.global_default:
            # Of several the lowest holds, as in the API server.
            self._default = value if self._default is None else min(value, self._default)

    def resolve(self, manifest: Manifest) -> Manifest:
        """The manifest with its class's number in its pod, if known."""
        name = manifest.class_name
        found = self._values.get(name) if name else self._default
        if found is None or manifest.pod.priority is not None:
            return manifest
        pod = msgspec.structs.replace(manifest.pod, priority=found)
        return msgspec.structs.replace(manifest, pod=pod, class_name="")


def _refuse_unknown_classes(manifests: Sequence[Manifest]) -> None:
    """A plan with 0 for them would show the wrong wave."""
    by_class: dict[str, list[str]] = {}
    for each in manifests:
        by_class.setdefault(each.class_name, []).append(short_name(each.pod))
    if by_class:
        named = "; ".join(f"{quote(name)} of {first_names(pods)}" for name, pods in by_class.items())
        cure = "add them (kubectl get priorityclasses -o yaml), or write spec.priority"
        raise ManifestError(
            one_line(f"{manifests[0].source}: no object here has the value of priority class {named}: {cure}")
        )


def _objects(document: Node) -> Iterator[tuple[str, Node]]:
    """Objects by their kinds. Items of a PodList need no kind."""
    kind = _value(document, "kind")
    implied = _LIST_KINDS.get(kind.value) if isinstance(kind.value, str) else None
    if implied is None:
        yield _kind_of(document), document
        return
    _check_version(document, _VERSIONS.get(implied, "v1"))
    items = _value(document, "items")
    if not isinstance(items.value, list | None):
        raise DocumentError(f"items is {describe(items)}: it must be a list", items.line)
    for each in items.value or ():
        yield _kind_of(each, implied), each


def _kind_of(document: Node, implied: str = "") -> str:
    """One of `_VERSIONS`. Raises DocumentError."""
    kind = _value(document, "kind")
    name = implied if kind.value is None and implied else kind.value
    if not isinstance(name, str) or name not in _VERSIONS:
        found = "missing" if kind.value is None else describe(kind)
        cure = "only Pod, PriorityClass and lists of them are read (kubectl get pods -o yaml)"
        raise DocumentError(f"kind is {found}: {cure}", kind.line)
    _check_version(document, _VERSIONS[name])
    return name


def _check_version(document: Node, wanted: str) -> None:
    version = _value(document, "apiVersion")
    if version.value not in (None, wanted):
        raise DocumentError(f"apiVersion is {describe(version)}: it must be {wanted}", version.line)


def _value(document: Node, name: str) -> Node:
    if not isinstance(document.value, dict):
        raise DocumentError(f"the document is {describe(document)}: it must be a mapping", document.line)
    return document.value.get(name) or Node(None, document.line)


def _refuse_twins(manifests: Sequence[Manifest]) -> None:
    # By UID as well: the second would replace the first.
    seen: dict[str, Manifest] = {}
    for manifest in manifests:
        for key in (f"pod {manifest.pod.label}", f"UID {manifest.pod.uid}"):
            first = seen.setdefault(key, manifest)
            if first is not manifest:
                message = f"{manifest.source}: {key} stands twice, first at {first.source}: keep one"
                raise ManifestError(one_line(message))


def _in_folder(folder: Path) -> list[Path]:
    """Regular files, as for the kubelet's static pods."""
    # Hidden files are unfinished copies and editors' files.
    try:
        found = [path for path in sorted(folder.iterdir()) if path.suffix in MANIFEST_SUFFIXES]
        return [path for path in found if not path.name.startswith(".") and stat.S_ISREG(path.stat().st_mode)]
    except OSError as error:
        raise _unreadable(folder, error) from error


def _unreadable(path: str | Path, error: Exception) -> ManifestError:
    reason = getattr(error, "strerror", None) or str(error)
    return ManifestError(one_line(f"cannot read {path}: {reason}; name a readable file or folder"))


def _located_message(name: str, number: int, error: DocumentError) -> str:
    where = f":{error.line}" if error.line else f", document {number}" if number else ""
    return one_line(f"{name}{where}: {error.message}")
