"""One Pod object to one manifest: names, priority, grace, containers in their order, and their hooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from actors.edges.process.signals import signal_number
from actors.edges.process.spec import ContainerSpec, ProcessSpec
from actors.policy.explain import short_name
from ebbtide.config import readers
from ebbtide.config.documents import Node
from ebbtide.config.scalars import DocumentError, quote
from ebbtide.manifests import names
from ebbtide.manifests.environment import WORDS_MAX, Environment, command
from ebbtide.manifests.expansion import Expander
from ebbtide.manifests.hooks import INT64_MAX, PORT_MAX, hook_of, pre_stop
from ebbtide.manifests.model import Fields, Manifest
from events.model import Container, Pod

#: More containers than any pod of the field has; keeps one pod's record small.
CONTAINERS_MAX = 128

#: What Kubernetes fills in for its own classes at admission.
_CLASS_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_TERMINAL = ("Succeeded", "Failed")


class Reading(NamedTuple):
    """What holds for all pods of one text."""

    #: The gate PodLifecycleSleepActionAllowZero.
    allow_zero_sleep: bool
    expander: Expander


def read_pod(node: Node, source: str, reading: Reading) -> Manifest:
    """Raises DocumentError; its message names the pod as soon as the pod has a name."""
    document = Fields(node, "")
    metadata = Fields(document.need("metadata"), "metadata")
    name = names.subdomain(metadata.need("name"), "metadata.name")
    try:
        return _named(document, metadata, name, source, reading)
    except DocumentError as error:
        raise DocumentError(f"pod {quote(name)}: {error.message}", error.line) from error


def _named(document: Fields, metadata: Fields, name: str, source: str, reading: Reading) -> Manifest:
    space = metadata.get("namespace")
    namespace = "default" if space is None else names.label(space, "metadata.namespace")
    uid = names.uid(metadata.get("uid"), "metadata.uid", namespace, name)
    spec = Fields(document.need("spec"), "spec")
    grace_seconds = _optional_number(spec, "terminationGracePeriodSeconds", 0, INT64_MAX)
    reader = _Containers(metadata, uid, grace_seconds, reading)
    init = reader.read(spec, "initContainers", is_init=True)
    containers = reader.read(spec, "containers", is_init=False)
    if not containers:
        raise DocumentError("spec.containers is empty: a pod has at least one container", spec.line)
    process = ProcessSpec(uid=uid, init=init, containers=containers)
    pod = Pod(
        uid=uid,
        namespace=namespace,
        name=name,
        priority=_optional_number(spec, "priority", readers.INT32_MIN, readers.INT32_MAX),
        grace_seconds=grace_seconds,
        containers=tuple(_seen_by_core(each) for each in process.lasting),
    )
    return Manifest(
        pod=pod,
        spec=process,
        source=source,
        finished=_finished(document),
        notes=_notes(spec, pod),
        obstacles=tuple(reader.obstacles),
    )


class _Containers:
    """Reads the containers of one pod and collects what stands against running them here."""

    def __init__(self, metadata: Fields, uid: str, grace_seconds: int | None, reading: Reading) -> None:
        self._metadata = metadata
        self._uid = uid
        self._grace_seconds = grace_seconds
        self._reading = reading
        self._names: list[str] = []
        self.obstacles: list[str] = []

    def read(self, spec: Fields, field: str, *, is_init: bool) -> tuple[ContainerSpec, ...]:
        node, path = spec.get(field), spec.at(field)
        entries: Sequence[Node] = readers.sequence(node, path, CONTAINERS_MAX) if node else ()
        return tuple(
            self._container(Fields(each, f"{path}[{index}]"), is_init) for index, each in enumerate(entries)
        )

    def _container(self, fields: Fields, is_init: bool) -> ContainerSpec:
        name = self._name(fields)
        sidecar = is_init and _says(fields.get("restartPolicy"), "Always")
        environment = Environment(self._metadata, self._uid, self._reading.expander)
        environment.read(fields)
        argv, missing = command(fields, environment.variables, self._reading.expander), environment.obstacles
        if not argv or fields.get("command") is None:
            missing.append("it has no command, and without an image nobody knows one: write command")
        self.obstacles += [f"container {name}: {reason}" for reason in missing]
        lifecycle = fields.child("lifecycle")
        hook = pre_stop(lifecycle, self._grace_seconds, self._reading.allow_zero_sleep)
        return ContainerSpec(
            name=name,
            argv=argv,
            env=environment.variables,
            working_dir=_optional_text(fields, "workingDir"),
            stop_signal=_stop_signal(lifecycle),
            sidecar=sidecar,
            # A container that ends by itself before the pod is up has no end to prepare.
            pre_stop=hook if sidecar or not is_init else None,
            ports=_ports(fields),
        )

    def _name(self, fields: Fields) -> str:
        node = fields.need("name")
        name = names.label(node, fields.at("name"))
        if name in self._names:
            raise DocumentError(f"two containers are called {quote(name)}: rename one", node.line)
        self._names.append(name)
        return name


def _seen_by_core(spec: ContainerSpec) -> Container:
    return Container(
        name=spec.name, hook=hook_of(spec.pre_stop), stop_signal=spec.stop_signal, sidecar=spec.sidecar
    )


def _stop_signal(lifecycle: Fields | None) -> str:
    node = lifecycle.get("stopSignal") if lifecycle else None
    if node is None or lifecycle is None:
        return "SIGTERM"
    name = readers.text(node, lifecycle.at("stopSignal"))
    try:
        signal_number(name if name.startswith("SIG") else "")
    except ValueError as error:
        raise DocumentError(
            f"{lifecycle.at('stopSignal')} is {quote(name)}: use a name such as SIGTERM or SIGRTMIN+3",
            node.line,
        ) from error
    return name


def _ports(fields: Fields) -> dict[str, int]:
    node, path = fields.get("ports"), fields.at("ports")
    ports: dict[str, int] = {}
    for index, each in enumerate(readers.sequence(node, path, WORDS_MAX) if node else ()):
        port = Fields(each, f"{path}[{index}]")
        number = readers.number(port.need("containerPort"), port.at("containerPort"), 1, PORT_MAX)
        if name := _optional_text(port, "name"):
            ports.setdefault(name, number)
    return ports


def _finished(document: Fields) -> bool:
    status = document.child("status")
    return status is not None and any(_says(status.get("phase"), phase) for phase in _TERMINAL)


def _notes(spec: Fields, pod: Pod) -> tuple[tuple[str, str], ...]:
    """A class name alone does nothing where no API server reads it (kubernetes#113940, #133442)."""
    name = _optional_text(spec, "priorityClassName")
    if not name or pod.priority is not None:
        return ()
    value = _CLASS_PRIORITIES.get(name)
    cure = f"write spec.priority: {value}" if value else "write its number in spec.priority"
    message = f"{short_name(pod)} names the priority class {quote(name)} only, which counts as 0: {cure}"
    return (("priority-class-only", message),)


def _says(node: Node | None, word: str) -> bool:
    return node is not None and node.value == word


def _optional_text(fields: Fields, name: str) -> str:
    node = fields.get(name)
    return "" if node is None else readers.text(node, fields.at(name))


def _optional_number(fields: Fields, name: str, least: int, most: int) -> int | None:
    node = fields.get(name)
    return None if node is None else readers.number(node, fields.at(name), least, most)
