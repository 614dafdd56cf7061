"""Pod manifests: ordinary Kubernetes Pod objects from files, folders, lists or standard input.

From the small to the whole: Kubernetes' rules for names; a Pod object's fields; ``$(VARIABLES)``, the
command and the environment of a container, as far as they can be known without a cluster; preStop hooks,
checked as the API server checks them; one Pod object to one `Manifest`; and where manifests come from.
"""

from __future__ import annotations

import re
import stat
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import msgspec

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
    ProcessSpec,
    SleepAction,
    TcpSocketAction,
    hook_of,
)
from ebbtide.actors.policy.planning import first_names, short_name
from ebbtide.config.fields import describe
from ebbtide.config.kinds import (
    DNS_LABEL,
    DNS_SUBDOMAIN,
    INT32_MAX,
    INT32_MIN,
    LABEL_LENGTH_MAX,
    PORT_MAX,
    SUBDOMAIN_LENGTH_MAX,
)
from ebbtide.events.units import size_text
from ebbtide.events.values import Container, Pod, Settings

# Kubernetes' rules for names, as far as a shutdown meets them (RFC 1123, IANA service names).


UID_LENGTH_MAX = 128
PORT_NAME_LENGTH_MAX = 15

#: Also a file name of the process edge's, so no path can hide in it.
_UID = re.compile(r"[A-Za-z0-9][-._A-Za-z0-9]*")
_PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]*[a-z0-9])?")

#: The space of the UIDs that are derived here. Never changed: a pod keeps its UID from one start to the next.
_UID_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "pods.ebbtide.dev")


def read_sequence(node: Node, path: str, count_max: int) -> list[Node]:
    if not isinstance(node.value, list):
        raise DocumentError(f"{path} is {describe(node)}: it must be a list", node.line)
    if len(node.value) > count_max:
        raise DocumentError(
            f"{path} has {len(node.value)} entries: at most {count_max} can be used", node.line
        )
    return node.value


def read_text(node: Node, path: str) -> str:
    if not isinstance(node.value, str) or "\0" in node.value:
        raise DocumentError(f"{path} is {describe(node)}: it must be a word; put it in quotes", node.line)
    return node.value


def read_secret(node: Node, path: str) -> str:
    """A text that no message repeats: messages reach logs and the journal."""
    if not isinstance(node.value, str) or "\0" in node.value:
        raise DocumentError(f"{path} must be a word without NUL characters; put it in quotes", node.line)
    return node.value


def read_number(node: Node, path: str, least: int, most: int) -> int:
    """A whole number in bounds; true, 1.0 and .nan are none."""
    if not isinstance(node.value, int) or isinstance(node.value, bool):
        raise DocumentError(f"{path} is {describe(node)}: it must be a whole number", node.line)
    if not least <= node.value <= most:
        raise DocumentError(f"{path} is {node.value}: it must be from {least} to {most}", node.line)
    return node.value


def dns_label(node: Node, path: str) -> str:
    """A namespace's or a container's name."""
    return _matching_name(node, path, DNS_LABEL, LABEL_LENGTH_MAX)


def dns_subdomain(node: Node, path: str) -> str:
    """A pod's name."""
    return _matching_name(node, path, DNS_SUBDOMAIN, SUBDOMAIN_LENGTH_MAX)


def pod_uid(node: Node | None, path: str, namespace: str, name: str) -> str:
    """The UID that is given, or one that depends on namespace and name only."""
    if node is None:
        return str(uuid.uuid5(_UID_NAMESPACE, f"{namespace}/{name}"))
    value = read_text(node, path)
    if len(value) > UID_LENGTH_MAX or not _UID.fullmatch(value):
        raise DocumentError(
            f"{path} is {quote(value)}: it must be letters, digits, '-', '.' or '_'", node.line
        )
    return value


def is_port_name(value: str) -> bool:
    """As the API server checks a port's name."""
    return len(value) <= PORT_NAME_LENGTH_MAX and _PORT_NAME.fullmatch(value) is not None


def _matching_name(node: Node, path: str, pattern: re.Pattern[str], length_max: int) -> str:
    value = read_text(node, path)
    dots = " or '.'" if pattern is DNS_SUBDOMAIN else ""
    if len(value) > length_max or not pattern.fullmatch(value):
        raise DocumentError(
            f"{path} is {quote(value)}: it must be at most {length_max} lower case letters, digits and '-'"
            f"{dots}, and begin and end with a letter or digit",
            node.line,
        )
    return value


# What is read from a Pod object: the core's view, the process edge's view, and what to tell people.


class ManifestError(ValueError):
    """A manifest cannot be used. One line: where, what, and how to put it right."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One pod, as the core, the process edge and people see it.

    ``source`` says where it stands. ``finished``: its status says that it has ended already, so it takes no
    part in a plan. ``class_name``: a priority class whose number is not known, or not yet. ``obstacles`` are
    reasons why it cannot run as local processes; a plan does not mind them.
    """

    pod: Pod
    spec: ProcessSpec
    source: str
    finished: bool = False
    class_name: str = ""
    obstacles: tuple[str, ...] = ()


class ObjectFields:
    """A mapping that knows its path, for messages, and which fields nobody has asked for is fine.

    Kubernetes objects have hundreds of fields that are nothing to us, so unknown ones are passed over. A
    field that says nothing counts as absent, as it does for the API server.
    """

    def __init__(self, node: Node, path: str) -> None:
        if not isinstance(node.value, dict):
            raise DocumentError(f"{path or 'the document'} must be a mapping", node.line)
        self.path = path
        self.line = node.line
        self._fields = node.value

    def get(self, name: str) -> Node | None:
        node = self._fields.get(name)
        return None if node is None or node.value is None else node

    def need(self, name: str) -> Node:
        node = self.get(name)
        if node is None:
            raise DocumentError(f"{self.at(name)} is missing: write it", self.line)
        return node

    def child(self, name: str) -> ObjectFields | None:
        node = self.get(name)
        return None if node is None else ObjectFields(node, self.at(name))

    def children(self, name: str, count_max: int) -> Iterator[ObjectFields]:
        """The mappings of a list; an absent one is empty."""
        node, path = self.get(name), self.at(name)
        for index, each in enumerate(read_sequence(node, path, count_max) if node else ()):
            yield ObjectFields(each, f"{path}[{index}]")

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


# ``$(VARIABLES)`` in commands and in other variables, as Kubernetes expands them: ``$(NAME)`` becomes the
# value of a variable that is known, an unknown one stays as written, and ``$$`` is a dollar sign. Variables
# that double each other would fill the memory, so growth is counted.


#: Longest argument or variable that Linux takes (MAX_ARG_STRLEN).
ARGUMENT_BYTES_MAX = 131_072

#: What expansion may add over all pods of one text: far more than a thousand ordinary ones need.
EXPANDED_BYTES_MAX = 64 * 2**20


class Expander:
    """Replaces references, and counts what that adds. One a text."""

    def __init__(self) -> None:
        self._left = EXPANDED_BYTES_MAX

    def expand(self, text: str, variables: Mapping[str, str], path: str, line: int) -> str:
        """``text`` with its references replaced. Raises DocumentError when it grows out of bounds."""
        pieces, size = [], 0
        for piece in _pieces(text, variables):
            pieces.append(piece)
            size += len(piece)
            if size >= ARGUMENT_BYTES_MAX:
                raise DocumentError(
                    f"{path} is longer than {size_text(ARGUMENT_BYTES_MAX)}: shorten it", line
                )
        self._left -= max(0, size - len(text))
        if self._left < 0:
            raise DocumentError(
                f"{path}: variables add more than {size_text(EXPANDED_BYTES_MAX)} in all", line
            )
        return "".join(pieces)


def _pieces(text: str, variables: Mapping[str, str]) -> Iterator[str]:
    """The parts of ``text`` between and in place of its references, in one pass."""
    # Without a closing parenthesis behind it nothing is a reference. Looked up once: a search for each of a
    # hundred thousand "$(" would take the square of the text's length.
    position, last_closing = 0, text.rfind(")")
    while (dollar := text.find("$", position)) >= 0:
        yield text[position:dollar]
        position = dollar + 2
        if text.startswith("$(", dollar) and dollar < last_closing:
            closing = text.index(")", dollar)
            position = closing + 1
            yield variables.get(text[dollar + 2 : closing], text[dollar:position])
        elif text.startswith("$$", dollar):
            yield "$"
        else:
            yield text[dollar:position]
    yield text[position:]


# A container's command and environment, as far as they can be known without a cluster.


#: Words of one command, and variables of one container.
ENTRIES_MAX = 4096

_LABEL_KEY = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")

#: A pod's address: its processes are local.
LOOPBACK = "127.0.0.1"


def text_entries(node: Node | None, path: str) -> list[tuple[str, int]]:
    """A list of words with their lines; an absent one is empty."""
    if node is None:
        return []
    entries = read_sequence(node, path, ENTRIES_MAX)
    return [(read_secret(each, f"{path}[{index}]"), each.line) for index, each in enumerate(entries)]


def container_command(
    container: ObjectFields, variables: Mapping[str, str], expander: Expander
) -> tuple[str, ...]:
    """``command`` and ``args`` together, expanded. Empty: the image would have to say."""
    argv = []
    for name in ("command", "args"):
        path = container.at(name)
        found = text_entries(container.get(name), path)
        argv += [expander.expand(word, variables, path, line) for word, line in found]
    return tuple(argv)


class Environment:
    """The variables of one container in their order; ``obstacles`` says which cannot be known, and why."""

    def __init__(self, metadata: ObjectFields, uid: str, expander: Expander) -> None:
        self._metadata = metadata
        self._uid = uid
        self._expander = expander
        self.variables: dict[str, str] = {}
        self.obstacles: list[str] = []

    def read(self, container: ObjectFields) -> None:
        """Raises DocumentError."""
        for entry in container.children("env", ENTRIES_MAX):
            name_node = entry.need("name")
            name = read_text(name_node, entry.at("name"))
            if not name or "=" in name or not name.isprintable():
                message = f"{entry.at('name')} is {quote(name)}: no variable is called so"
                raise DocumentError(message, name_node.line)
            origin = entry.child("valueFrom")
            if origin is None:
                # With what stands above it only, in the order of the list, as Kubernetes does.
                written, at = entry.get("value"), entry.at("value")
                text = "" if written is None else read_secret(written, at)
                self.variables[name] = self._expander.expand(text, self.variables, at, entry.line)
                continue
            value = _field_ref_value(origin, self._metadata, self._uid)
            if value is not None:
                self.variables[name] = value
            # A reference that may lead nowhere leaves its variable undefined.
            elif not _is_any_optional(origin.child(kind) for kind in ("secretKeyRef", "configMapKeyRef")):
                cure = "has a valueFrom that only a cluster knows: write a value"
                self.obstacles.append(f"the variable {quote(name)} {cure}")
        for entry in container.children("envFrom", ENTRIES_MAX):
            if not _is_any_optional([entry.child(kind) for kind in ("secretRef", "configMapRef")]):
                # One is enough: which variables are missing is not known, so there is no more to say.
                self.obstacles.append("envFrom names what only a cluster knows: write the variables in env")
                break


def _is_any_optional(sources: Iterable[ObjectFields | None]) -> bool:
    flags = (source.get("optional") for source in sources if source is not None)
    return any(flag is not None and flag.value is True for flag in flags)


def _field_ref_value(origin: ObjectFields, metadata: ObjectFields, uid: str) -> str | None:
    """The value of a fieldRef that can be known without a cluster."""
    reference = origin.child("fieldRef")
    if reference is None:
        return None
    path = read_text(reference.need("fieldPath"), reference.at("fieldPath"))
    if path == "metadata.uid":
        return uid
    if path in ("status.podIP", "status.hostIP"):
        return LOOPBACK
    if path == "metadata.namespace" and metadata.get("namespace") is None:
        return "default"
    if match := _LABEL_KEY.fullmatch(path):
        group = metadata.child(match[1])
        node = group.get(match[2]) if group else None
    else:
        node = metadata.get(path.removeprefix("metadata."))
    return node.value if node is not None and isinstance(node.value, str) else None


# preStop hooks: one handler each, checked as the API server checks it, so that no pod starts with a hook that
# cannot run. The exception is tcpSocket, which old objects may have: it is accepted, and fails when it runs.


INT64_MAX = 2**63 - 1
HEADERS_MAX = 128
#: Longest request target that servers commonly take.
URL_PART_LENGTH_MAX = 8192

_TOKEN = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_HOST = re.compile(r"[-._:\[\]%0-9A-Za-z]*")
_SCHEMES = ("HTTP", "HTTPS")


def pre_stop(
    lifecycle: ObjectFields | None, grace_seconds: int | None, allow_zero_sleep: bool
) -> HookAction | None:
    """The handler of ``lifecycle.preStop``, if there is one. Raises DocumentError."""
    fields = lifecycle.child("preStop") if lifecycle else None
    if fields is None:
        return None
    kinds = [kind for kind in _HOOK_READERS if fields.get(kind) is not None]
    if len(kinds) != 1:
        found = "has no handler" if not kinds else f"has more than one handler ({', '.join(kinds)})"
        raise DocumentError(f"{fields.path} {found}: give one of {', '.join(_HOOK_READERS)}", fields.line)
    action = _HOOK_READERS[kinds[0]](ObjectFields(fields.need(kinds[0]), fields.at(kinds[0])))
    if isinstance(action, SleepAction):
        check_sleep(action.seconds, grace_seconds, allow_zero_sleep, fields.at("sleep"), fields.line)
    return action


def check_sleep(seconds: int, grace_seconds: int | None, allow_zero: bool, path: str, line: int) -> None:
    """The API server's rule for a sleep (KEP-3960): equal to the grace is fine, whatever the text says.

    ``allow_zero`` is the gate PodLifecycleSleepActionAllowZero. Without a grace only the lower bound holds.
    """
    least = 0 if allow_zero else 1
    if seconds >= least and (grace_seconds is None or seconds <= grace_seconds):
        return
    bound = "" if grace_seconds is None else f" and less than terminationGracePeriodSeconds ({grace_seconds})"
    rule = "non-negative" if allow_zero else "greater than 0"
    hint = "" if allow_zero else "; a sleep of 0 needs the feature gate PodLifecycleSleepActionAllowZero"
    raise DocumentError(f"{path}.seconds is {seconds}: must be {rule}{bound}{hint}", line)


def _exec_hook(fields: ObjectFields) -> HookAction:
    argv = tuple(word for word, _ in text_entries(fields.get("command"), fields.at("command")))
    if not argv:
        raise DocumentError(f"{fields.at('command')} is empty: name a program", fields.line)
    return ExecAction(argv=argv)


def _http_get_hook(fields: ObjectFields) -> HookAction:
    host = _short_text(fields, "host", "")
    if not _HOST.fullmatch(host):
        raise DocumentError(
            f"{fields.at('host')} is {quote(host)}: it must be a host's name or address", fields.line
        )
    scheme = _short_text(fields, "scheme", "HTTP")
    if scheme not in _SCHEMES:
        raise DocumentError(
            f"{fields.at('scheme')} is {quote(scheme)}: it must be HTTP or HTTPS", fields.line
        )
    path = _short_text(fields, "path", "")
    if not path.isprintable():
        # Not quoted: what a query says is nobody's to read in a log.
        raise DocumentError(f"{fields.at('path')} has a character that cannot be printed", fields.line)
    return HttpGetAction(
        port=_hook_port(fields.need("port"), fields.at("port")),
        host=host,
        scheme=scheme,
        path=path,
        headers=_hook_headers(fields),
    )


def _sleep_hook(fields: ObjectFields) -> HookAction:
    # Any number that fits: which of them are too long `check_sleep` says, in the API server's words.
    node = fields.need("seconds")
    return SleepAction(seconds=read_number(node, fields.at("seconds"), -INT64_MAX - 1, INT64_MAX))


def _tcp_socket_hook(fields: ObjectFields) -> HookAction:
    return TcpSocketAction()


_HOOK_READERS: dict[str, Callable[[ObjectFields], HookAction]] = {
    "exec": _exec_hook,
    "httpGet": _http_get_hook,
    "sleep": _sleep_hook,
    "tcpSocket": _tcp_socket_hook,
}


def _hook_port(node: Node, path: str) -> int | str:
    """A number, a number in quotes, or a port's name; which port that is, the hook finds out when it runs."""
    if not isinstance(node.value, str):
        return read_number(node, path, 1, PORT_MAX)
    # The length comes before int(): on a long text that takes the square of its length.
    digits = node.value.isascii() and node.value.isdecimal()
    fits = digits and len(node.value) <= len(str(PORT_MAX)) and 1 <= int(node.value) <= PORT_MAX
    if not fits and (digits or not is_port_name(node.value)):
        raise DocumentError(f"{path} is {quote(node.value)}: it must be a port or a port's name", node.line)
    return node.value


def _hook_headers(fields: ObjectFields) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for header in fields.children("httpHeaders", HEADERS_MAX):
        given = header.get("value")
        name = _short_text(header, "name", "")
        value = "" if given is None else read_secret(given, header.at("value"))
        if not _TOKEN.fullmatch(name):
            raise DocumentError(f"{header.at('name')} is {quote(name)}: it is no header's name", header.line)
        # It could smuggle a second request. Not repeated in the message: it may be somebody's password.
        if not value.replace("\t", " ").isprintable():
            message = f"{header.at('value')} holds a line break or a control character"
            raise DocumentError(message, header.line)
        found.append((name, value))
    return tuple(found)


def _short_text(fields: ObjectFields, name: str, default: str) -> str:
    node = fields.get(name)
    value = default if node is None else read_text(node, fields.at(name))
    if len(value) > URL_PART_LENGTH_MAX:
        raise DocumentError(f"{fields.at(name)} is longer than {URL_PART_LENGTH_MAX} characters", fields.line)
    return value


# One Pod object to one manifest: names, priority, grace, containers in their order, and their hooks.


#: More containers than any pod of the field has; keeps one pod's record small.
CONTAINERS_MAX = 128

_TERMINAL = ("Succeeded", "Failed")


class ReadOptions(NamedTuple):
    """What holds for all pods of one text."""

    #: The gate PodLifecycleSleepActionAllowZero.
    allow_zero_sleep: bool
    expander: Expander


def read_pod(node: Node, source: str, reading: ReadOptions) -> Manifest:
    """Raises DocumentError; its message names the pod as soon as the pod has a name."""
    document = ObjectFields(node, "")
    metadata = ObjectFields(document.need("metadata"), "metadata")
    name = dns_subdomain(metadata.need("name"), "metadata.name")
    try:
        return _read_named_pod(document, metadata, name, source, reading)
    except DocumentError as error:
        raise DocumentError(f"pod {quote(name)}: {error.message}", error.line) from error


def _read_named_pod(
    document: ObjectFields, metadata: ObjectFields, name: str, source: str, reading: ReadOptions
) -> Manifest:
    space = metadata.get("namespace")
    namespace = "default" if space is None else dns_label(space, "metadata.namespace")
    uid = pod_uid(metadata.get("uid"), "metadata.uid", namespace, name)
    spec = ObjectFields(document.need("spec"), "spec")
    grace_seconds = _optional_number(spec, "terminationGracePeriodSeconds", 0, INT64_MAX)
    reader = _Containers(metadata, uid, grace_seconds, reading)
    init = reader.read(spec, "initContainers", is_init=True)
    containers = reader.read(spec, "containers", is_init=False)
    if not containers:
        raise DocumentError("spec.containers is empty: a pod has at least one container", spec.line)
    process = ProcessSpec(uid=uid, init=init, containers=containers)
    class_name = _optional_text(spec, "priorityClassName")
    priority = _optional_number(spec, "priority", INT32_MIN, INT32_MAX)
    if priority is None:
        priority = SYSTEM_PRIORITIES.get(class_name)
    pod = Pod(
        uid=uid,
        namespace=namespace,
        name=name,
        priority=priority,
        grace_seconds=grace_seconds,
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
    status = document.child("status")
    return Manifest(
        pod=pod,
        spec=process,
        source=source,
        finished=status is not None and any(_has_value(status.get("phase"), phase) for phase in _TERMINAL),
        class_name=class_name if priority is None else "",
        obstacles=tuple(reader.obstacles),
    )


class _Containers:
    """Reads the containers of one pod and collects what stands against running them here."""

    def __init__(
        self, metadata: ObjectFields, uid: str, grace_seconds: int | None, reading: ReadOptions
    ) -> None:
        self._metadata = metadata
        self._uid = uid
        self._grace_seconds = grace_seconds
        self._reading = reading
        self._names: list[str] = []
        self.obstacles: list[str] = []

    def read(self, spec: ObjectFields, field: str, *, is_init: bool) -> tuple[ContainerSpec, ...]:
        return tuple(self._container(each, is_init) for each in spec.children(field, CONTAINERS_MAX))

    def _container(self, fields: ObjectFields, is_init: bool) -> ContainerSpec:
        name_node = fields.need("name")
        name = dns_label(name_node, fields.at("name"))
        if name in self._names:
            raise DocumentError(f"two containers are called {quote(name)}: rename one", name_node.line)
        self._names.append(name)
        sidecar = is_init and _has_value(fields.get("restartPolicy"), "Always")
        # Before the command: that may refer to the variables, not they to it.
        environment = Environment(self._metadata, self._uid, self._reading.expander)
        environment.read(fields)
        argv = container_command(fields, environment.variables, self._reading.expander)
        missing = environment.obstacles
        if not argv or fields.get("command") is None:
            missing.append("it has no command, and without an image nobody knows one: write command")
        self.obstacles += [f"container {name}: {reason}" for reason in missing]
        lifecycle = fields.child("lifecycle")
        hook = pre_stop(lifecycle, self._grace_seconds, self._reading.allow_zero_sleep)
        ports: dict[str, int] = {}
        for port in fields.children("ports", ENTRIES_MAX):
            number = read_number(port.need("containerPort"), port.at("containerPort"), 1, PORT_MAX)
            if port_name := _optional_text(port, "name"):
                ports.setdefault(port_name, number)
        return ContainerSpec(
            name=name,
            argv=argv,
            env=environment.variables,
            working_dir=_optional_text(fields, "workingDir"),
            stop_signal=_stop_signal(lifecycle),
            sidecar=sidecar,
            # A container that ends by itself before the pod is up has no end to prepare.
            pre_stop=hook if sidecar or not is_init else None,
            ports=ports,
        )


def _stop_signal(lifecycle: ObjectFields | None) -> str:
    node = lifecycle.get("stopSignal") if lifecycle else None
    if node is None or lifecycle is None:
        return "SIGTERM"
    name = read_text(node, lifecycle.at("stopSignal"))
    try:
        signal_number(name if name.startswith("SIG") else "")
    except ValueError as error:
        raise DocumentError(
            f"{lifecycle.at('stopSignal')} is {quote(name)}: use a name such as SIGTERM or SIGRTMIN+3",
            node.line,
        ) from error
    return name


def _has_value(node: Node | None, value: str | bool) -> bool:
    return node is not None and node.value == value


def _optional_text(fields: ObjectFields, name: str) -> str:
    node = fields.get(name)
    return "" if node is None else read_text(node, fields.at(name))


def _optional_number(fields: ObjectFields, name: str, least: int, most: int) -> int | None:
    node = fields.get(name)
    return None if node is None else read_number(node, fields.at(name), least, most)


# Where manifests come from: files, folders and standard input; documents, lists and single pods.


#: A thousand pods as ``kubectl -o json`` prints them.
FILE_BYTES_MAX = 16 * 2**20
#: Of what a daemon reads while it runs: 250 pods as ``kubectl -o yaml`` prints them, in a file. To read that
#: holds the event loop for 20 ms at most, and takes 30 MiB; twice of it would be felt in a shutdown.
LOCAL_BYTES_MAX = 2 * 2**20
LOCAL_NODES_MAX = 100_000
#: A folder may hold one file a pod, for more pods than a node can run.
FILES_MAX = 4096
PODS_MAX = 10_000

MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"
STDIN_NAME = "standard input"

POD_KIND, CLASS_KIND = "Pod", "PriorityClass"
#: What is read, with the version of each.
_VERSIONS = {POD_KIND: "v1", CLASS_KIND: "scheduling.k8s.io/v1"}
#: Lists of it, and what an item is that has no kind of its own; empty: it must have one.
_LIST_KINDS = {"List": "", "PodList": POD_KIND, "PriorityClassList": CLASS_KIND}


def load_manifests(paths: Sequence[str | Path], *, allow_zero_sleep: bool = True) -> list[Manifest]:
    """All pods of these files, folders (not their subfolders), or ``-`` for standard input.

    A folder's files come in the order of their names. PriorityClass objects of one file hold for the pods of
    all. Raises ManifestError, also when a pod stands twice, and when a class's number stands nowhere.
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
                # A pipe may be what is meant, as in --pods <(kubectl get pods -o yaml); who names it waits.
                with nullcontext(sys.stdin.buffer) if from_stdin else open(file, "rb") as opened:
                    raw = opened.read(FILE_BYTES_MAX + 1)
            else:
                raw = read_file(file, FILE_BYTES_MAX)
        except (OSError, ValueError) as error:
            raise _unreadable(name, error) from error
        manifests += _parse(name, raw, classes, ReadOptions(allow_zero_sleep, Expander()))
        # After each file: the sum of many small ones is not bounded by what one may hold.
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


def load_manifest_file(path: str | Path, *, allow_zero_sleep: bool = True) -> list[Manifest]:
    """The pods of one file. Raises ManifestError."""
    return load_manifests([path], allow_zero_sleep=allow_zero_sleep)


def load_local_pods(path: str | Path, *, allow_zero_sleep: bool = True) -> list[tuple[Pod, ProcessSpec]]:
    """The pods of one file, ready to run as local processes. For a daemon that runs: it waits for no pipe.

    Raises ManifestError, also for a pod that only a cluster could run.
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
    """The pods of one text; ``name`` stands in messages. A class that no object in it explains stays on its
    pod (``class_name``), which counts as 0. Raises ManifestError.
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
    """What PriorityClass objects say, as the API server applies it to a pod that it admits."""

    def __init__(self) -> None:
        self._values: dict[str, int] = {}
        #: Of the class that is the global default; None: none is.
        self._default: int | None = None

    def read(self, node: Node) -> None:
        """Raises DocumentError."""
        fields = ObjectFields(node, "")
        name = dns_subdomain(ObjectFields(fields.need("metadata"), "metadata").need("name"), "metadata.name")
        value = read_number(fields.need("value"), "value", INT32_MIN, INT32_MAX)
        if self._values.setdefault(name, value) != value:
            raise DocumentError(
                f"priority class {quote(name)} stands twice, with two values: keep one", node.line
            )
        if _has_value(fields.get("globalDefault"), True):
            self._default = value

    def resolve(self, manifest: Manifest) -> Manifest:
        """The manifest with its class's number in its pod, where that is known."""
        name = manifest.class_name
        found = self._values.get(name) if name else self._default
        if found is None or manifest.pod.priority is not None:
            return manifest
        pod = msgspec.structs.replace(manifest.pod, priority=found)
        return msgspec.structs.replace(manifest, pod=pod, class_name="")


def _refuse_unknown_classes(manifests: Sequence[Manifest]) -> None:
    """A plan that took 0 for what it does not know would promise these pods the wrong wave."""
    by_class: dict[str, list[str]] = {}
    for each in manifests:
        by_class.setdefault(each.class_name, []).append(short_name(each.pod))
    if by_class:
        named = "; ".join(f"{quote(name)} of {first_names(pods)}" for name, pods in by_class.items())
        cure = "add them (kubectl get priorityclasses -o yaml), or write spec.priority"
        raise ManifestError(
            one_line(f"{manifests[0].source}: nothing here says the value of priority class {named}: {cure}")
        )


def _objects(document: Node) -> Iterator[tuple[str, Node]]:
    """The Pod and PriorityClass objects of a document, by their kinds. Items of a PodList need no kind."""
    fields = ObjectFields(document, "")
    kind = fields.get("kind")
    implied = _LIST_KINDS.get(kind.value) if kind is not None and isinstance(kind.value, str) else None
    if implied is None:
        yield _kind_of(fields, kind), document
        return
    _check_version(fields, _VERSIONS.get(implied, "v1"))
    items = fields.get("items")
    for index, each in enumerate(read_sequence(items, "items", PODS_MAX) if items else ()):
        item = ObjectFields(each, f"items[{index}]")
        kind = item.get("kind") or (Node(implied, each.line) if implied else None)
        yield _kind_of(item, kind), each


def _kind_of(fields: ObjectFields, kind: Node | None) -> str:
    """One of `_VERSIONS`. Raises DocumentError."""
    if kind is None or not isinstance(kind.value, str) or kind.value not in _VERSIONS:
        raise _no_pod(kind, fields.line)
    _check_version(fields, _VERSIONS[kind.value])
    return kind.value


def _check_version(fields: ObjectFields, wanted: str) -> None:
    version = fields.get("apiVersion")
    if version is not None and version.value != wanted:
        raise DocumentError(f"apiVersion is {describe(version)}: it must be {wanted}", version.line)


def _no_pod(kind: Node | None, line: int) -> DocumentError:
    # Other objects have templates of pods in them: without a name, a UID and a node there is no pod to end.
    found = describe(kind) if kind is not None else "missing"
    return DocumentError(
        f"kind is {found}: only Pod, PriorityClass and lists of them are read (kubectl get pods -o yaml)",
        line,
    )


def _refuse_twins(manifests: Sequence[Manifest]) -> None:
    # By UID as well: all that is known of a pod is kept by it, and the second would take the
    # first one's place.
    seen: dict[str, Manifest] = {}
    for manifest in manifests:
        for key in (f"pod {manifest.pod.label}", f"UID {manifest.pod.uid}"):
            first = seen.setdefault(key, manifest)
            if first is not manifest:
                message = f"{manifest.source}: {key} stands twice, first at {first.source}: keep one"
                raise ManifestError(one_line(message))


def _in_folder(folder: Path) -> list[Path]:
    """As the kubelet reads its folder of static pods: regular files, no hidden ones, no subfolders."""
    # Hidden ones are what an editor, or a copy that is under way, has not finished yet.
    try:
        found = [path for path in sorted(folder.iterdir()) if path.suffix in MANIFEST_SUFFIXES]
        files = [
            path for path in found if not path.name.startswith(".") and stat.S_ISREG(path.stat().st_mode)
        ]
    except OSError as error:
        raise _unreadable(folder, error) from error
    if len(files) > FILES_MAX:
        raise ManifestError(one_line(f"{folder}: more than {FILES_MAX} manifests: name a smaller folder"))
    return files


def _unreadable(path: str | Path, error: Exception) -> ManifestError:
    reason = getattr(error, "strerror", None) or str(error)
    return ManifestError(one_line(f"cannot read {path}: {reason}; name a readable file or folder"))


def _located_message(name: str, number: int, error: DocumentError) -> str:
    where = f":{error.line}" if error.line else f", document {number}" if number else ""
    return one_line(f"{name}{where}: {error.message}")
