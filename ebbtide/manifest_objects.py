"""A Pod object of a manifest: the fields that matter to a shutdown, checked as the API server checks them.

Kubernetes objects have hundreds of other fields; the reader passes over them.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ebbtide.actors.edges.documents import quote
from ebbtide.actors.edges.linux.proc import signal_number
from ebbtide.actors.edges.pod_spec import (
    ExecAction,
    HookAction,
    HttpGetAction,
    Int64,
    SleepAction,
    TcpSocketAction,
)
from ebbtide.config.fields import Kind, RuleError
from ebbtide.config.kinds import DNS_LABEL, INT32_MAX, INT32_MIN, PORT_MAX, matching, node_name

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


class FieldRef(ObjectPart, frozen=True):
    field_path: str


class Reference(ObjectPart, frozen=True):
    """To a Secret or a ConfigMap."""

    optional: bool = False


class ValueFrom(ObjectPart, frozen=True):
    field_ref: FieldRef | None = None
    secret_key_ref: Reference | None = None
    config_map_key_ref: Reference | None = None


class EnvVar(ObjectPart, frozen=True):
    name: Annotated[str, Kind("a variable's name, without '='", _variable)]
    value: Annotated[str, _WORD] = ""
    value_from: ValueFrom | None = None


class EnvFrom(ObjectPart, frozen=True):
    secret_ref: Reference | None = None
    config_map_ref: Reference | None = None


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
    env_from: Annotated[tuple[EnvFrom, ...], Meta(max_length=ENTRIES_MAX)] = ()
    lifecycle: Lifecycle = Lifecycle()
    restart_policy: str = ""
    ports: Annotated[tuple[ContainerPort, ...], Meta(max_length=ENTRIES_MAX)] = ()
    working_dir: str = ""


class Metadata(ObjectPart, frozen=True):
    name: Annotated[str, _POD_NAME]
    namespace: Annotated[str, _LABEL] = "default"
    uid: Annotated[str | None, _UID] = None
    labels: dict[str, Any] = {}
    annotations: dict[str, Any] = {}


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
