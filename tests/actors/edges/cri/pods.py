"""Pods created through CRI with a kubelet's labels, annotations and order."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import Message

from ebbtide.actors.edges.cri import api_pb2 as api
from tests.actors.edges.cri import making_pb2 as making
from tests.beds.containerd import IMAGE, Containerd
from tests.waiting import WATCHDOG_SECONDS, until_sync

SERVICE = "/runtime.v1.RuntimeService/"
#: The first process creates this file after it has set its traps.
UP = "/tmp/up"

POLITE = "trap 'exit 0' TERM; touch /tmp/up; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; touch /tmp/up; while :; do sleep 0.05; done"
CODE_3 = "trap 'exit 3' TERM; touch /tmp/up; while :; do sleep 0.05; done"
#: Ends a second after its stop signal.
GOES_ON = "trap 'sleep 1; exit 5' TERM; touch /tmp/up; while :; do sleep 0.05; done"
#: Records each SIGTERM, then exits with a code that no signal causes.
NOTES = "trap 'echo told >> /tmp/told; sleep 0.5; exit 5' TERM; touch /tmp/up; while :; do sleep 0.05; done"
SERVER = f"mkdir -p /tmp/www; echo hello > /tmp/www/bye; httpd -p 8080 -h /tmp/www; {POLITE}"
#: States of a container.
RUNNING, EXITED = 1, 2


class Spec(NamedTuple):
    """One container: a shell script, and its manifest fields."""

    script: str
    name: str = "main"
    pre_stop: dict[str, Any] | None = None
    ports: tuple[dict[str, Any], ...] = ()
    attempt: int = 0
    image: str = IMAGE


class Made(NamedTuple):
    """A running pod: the sandbox ID, and the container IDs by name."""

    uid: str
    sandbox: str
    containers: dict[str, str]


class Kubelet:
    def __init__(self, bed: Containerd) -> None:
        self._bed = bed
        self._channel = grpc.insecure_channel(f"unix://{bed.socket}")

    def close(self) -> None:
        self._channel.close()

    def call(self, name: str, request: Message, answer: type[Message]) -> Any:
        method = self._channel.unary_unary(
            SERVICE + name,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return method(request, timeout=WATCHDOG_SECONDS, wait_for_ready=True)

    def pod(
        self, name: str, *specs: Spec, grace: int | None = 30, annotations: Iterable[tuple[str, str]] = ()
    ) -> Made:
        """Create a sandbox, then create and start each container in turn."""
        config = self._sandbox_config(name, dict(annotations))
        request = making.RunPodSandboxRequest(config=config)
        sandbox = self.call("RunPodSandbox", request, making.RunPodSandboxResponse).pod_sandbox_id
        made = {spec.name: self.container(config, sandbox, spec, grace) for spec in specs}
        return Made(config.metadata.uid, sandbox, made)

    def _sandbox_config(self, name: str, annotations: dict[str, str]) -> making.PodSandboxConfig:
        uid = f"uid-{name}"
        options = making.NamespaceOption(network=0, pid=1)
        return making.PodSandboxConfig(
            metadata=making.PodSandboxMetadata(name=name, uid=uid, namespace="test"),
            hostname=name,
            log_directory=f"{self._bed.folder}/logs/{name}",
            labels=_pod_labels(name, uid) | {"app": name},
            annotations={"kubernetes.io/config.source": "api"} | annotations,
            linux=making.LinuxPodSandboxConfig(
                cgroup_parent=f"{self._bed.cgroup}/pod-{name}",
                security_context=making.LinuxSandboxSecurityContext(namespace_options=options),
            ),
        )

    def container(
        self, config: making.PodSandboxConfig, sandbox: str, spec: Spec, grace: int | None = 30
    ) -> str:
        """Create and start a container. Wait for scripts that report their traps: PID 1 ignores a signal
        without a handler.
        """
        labels = _pod_labels(config.metadata.name, config.metadata.uid)
        container = making.ContainerConfig(
            metadata=making.ContainerMetadata(name=spec.name, attempt=spec.attempt),
            image=making.ImageSpec(image=spec.image),
            command=["/bin/sh", "-c", spec.script],
            labels=labels | {"io.kubernetes.container.name": spec.name},
            annotations=_container_annotations(spec, grace),
            log_path=f"{spec.name}_{spec.attempt}.log",
            linux=making.LinuxContainerConfig(
                security_context=making.LinuxContainerSecurityContext(
                    namespace_options=config.linux.security_context.namespace_options
                )
            ),
        )
        request = making.CreateContainerRequest(
            pod_sandbox_id=sandbox, config=container, sandbox_config=config
        )
        made = str(self.call("CreateContainer", request, making.CreateContainerResponse).container_id)
        self.call("StartContainer", making.StartContainerRequest(container_id=made), making.Empty)
        if f"touch {UP}" in spec.script:
            until_sync(lambda: self.exec(made, "cat", UP) == 0, f"{made} does not come up")
        return made

    def again(self, name: str, made: Made, spec: Spec) -> str:
        """Create and start a container again, as after a crash; returns the new ID."""
        config = self._sandbox_config(name, {})
        return self.container(config, made.sandbox, spec._replace(attempt=spec.attempt + 1))

    def state(self, container: str) -> int:
        request = api.ContainerStatusRequest(container_id=container)
        return int(self.call("ContainerStatus", request, api.ContainerStatusResponse).status.state)

    def first_process(self, container: str) -> int:
        request = api.ContainerStatusRequest(container_id=container, verbose=True)
        found = self.call("ContainerStatus", request, api.ContainerStatusResponse)
        return int(json.loads(found.info["info"])["pid"])

    def exec(self, container: str, *words: str) -> int:
        request = api.ExecSyncRequest(container_id=container, cmd=words)
        return int(self.call("ExecSync", request, api.ExecSyncResponse).exit_code)

    def stop_container(self, container: str) -> None:
        request = api.StopContainerRequest(container_id=container)
        request.timeout = int(WATCHDOG_SECONDS)
        self.call("StopContainer", request, api.StopContainerResponse)

    def remove_all(self) -> None:
        found = self.call("ListPodSandbox", api.ListPodSandboxRequest(), api.ListPodSandboxResponse)
        for item in found.items:
            request = making.RemovePodSandboxRequest(pod_sandbox_id=item.id)
            # Retry: a runtime that hung meanwhile may not know yet that a container ended.
            until_sync(partial(self._stopped, request), "a sandbox is not stopped")
            self.call("RemovePodSandbox", request, making.Empty)

    def _stopped(self, request: Message) -> bool:
        with suppress(grpc.RpcError):
            self.call("StopPodSandbox", request, making.Empty)
            return True
        return False


def _pod_labels(name: str, uid: str) -> dict[str, str]:
    return {
        "io.kubernetes.pod.name": name,
        "io.kubernetes.pod.namespace": "test",
        "io.kubernetes.pod.uid": uid,
    }


def _container_annotations(spec: Spec, grace: int | None) -> dict[str, str]:
    found = {
        "io.kubernetes.container.hash": "5b1c0d2e",
        "io.kubernetes.container.restartCount": str(spec.attempt),
        "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
        "io.kubernetes.container.terminationMessagePolicy": "File",
    }
    if spec.pre_stop is not None:
        found["io.kubernetes.container.preStopHandler"] = json.dumps(spec.pre_stop)
    if spec.ports:
        found["io.kubernetes.container.ports"] = json.dumps(list(spec.ports))
    if grace is not None:
        found["io.kubernetes.pod.terminationGracePeriod"] = str(grace)
    return found
