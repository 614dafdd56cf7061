"""The manifests alone, and on a real API server."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ebbtide.config import parse
from ebbtide.modes import NODE_NAME_VARIABLE, OWN_UID
from ebbtide.outage.configuration import parse_outage
from tests.beds.skipping import or_skip
from tests.deploy.programs import kustomize
from tests.deploy.rendering import APPLIED, ROOT, Object, place, rendered
from tests.node.bed import Bed

CHECKED = "?dryRun=All&fieldValidation=Strict"


def the(kind: str, name: str = "daemonset") -> Object:
    (found,) = [each for each in rendered(name) if each["kind"] == kind]
    return found


def pod_spec(name: str) -> Object:
    spec: Object = the("DaemonSet", name)["spec"]["template"]["spec"]
    return spec


@pytest.mark.node
@pytest.mark.parametrize("name", APPLIED)
def test_it_renders_as_kustomize_renders_it(name: str) -> None:
    with or_skip():
        program = kustomize()
    argv = [program, "build", ROOT / name]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert key_by_name(yaml.safe_load_all(done.stdout)) == key_by_name(rendered(name))


def key_by_name(objects: Any) -> dict[tuple[str, str, str], Object]:
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in objects
    }


@pytest.mark.parametrize("name", ["daemonset", "node-identity"])
def test_the_daemonset_can_do_its_work(name: str) -> None:
    """It runs on every node until the end, knows pod and node, and its lock is kept."""
    spec = pod_spec(name)
    (container,) = spec["containers"]
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert (spec["hostPID"], spec["hostNetwork"], spec["priorityClassName"]) == (
        True,
        True,
        "system-node-critical",
    )
    assert "--keep-lock" in container["args"]
    assert container["readinessProbe"]["exec"]["command"] == ["ebbtide", "status", "--ready"]
    assert {OWN_UID, NODE_NAME_VARIABLE, "DBUS_SYSTEM_BUS_ADDRESS"} == {
        each["name"] for each in container["env"]
    }
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert {"/run/dbus", "/run/containerd", "/run/systemd", "/run/ebbtide", "/var/lib/ebbtide"} < mounts
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]


#: A control plane's keys: authorities, certificates, kubeconfigs, etcd.
SECRET_PATHS = (
    Path("/etc/kubernetes/pki"),
    Path("/etc/kubernetes/admin.conf"),
    Path("/etc/kubernetes/super-admin.conf"),
    Path("/etc/kubernetes/controller-manager.conf"),
    Path("/etc/kubernetes/scheduler.conf"),
    Path("/var/lib/etcd"),
)


@pytest.mark.parametrize(
    ("name", "of_kubernetes"),
    [
        ("daemonset", {"/etc/kubernetes/manifests"}),
        ("node-identity", {"/etc/kubernetes/manifests", "/etc/kubernetes/kubelet.conf"}),
    ],
)
def test_a_control_planes_keys_stay_out(name: str, of_kubernetes: set[str]) -> None:
    """Only the needed files of Kubernetes' folder are mounted, read-only."""
    spec = pod_spec(name)
    paths = {each["name"]: Path(each["hostPath"]["path"]) for each in spec["volumes"] if "hostPath" in each}
    (container,) = spec["containers"]
    mounted = [each for each in container["volumeMounts"] if each["name"] in paths]
    assert {each["name"] for each in mounted} == paths.keys()
    for each in mounted:
        path = paths[each["name"]]
        assert not [secret for secret in SECRET_PATHS if path in (secret, *secret.parents)], path
    theirs = [each for each in mounted if each["mountPath"].startswith("/etc/kubernetes")]
    assert {each["mountPath"] for each in theirs} == of_kubernetes
    assert all(each["readOnly"] and each["mountPath"] == str(paths[each["name"]]) for each in theirs)


def test_its_grace_covers_the_shipped_configuration() -> None:
    text = the("ConfigMap")["data"]["config.yaml"]
    settings = parse([("config.yaml", text.encode())]).settings
    needed_seconds = settings.shutdown_grace_period_ns // 10**9 + settings.reserve_seconds
    assert needed_seconds <= pod_spec("daemonset")["terminationGracePeriodSeconds"]


def test_the_controller_is_two_and_starts_in_a_dry_run() -> None:
    """On different nodes, not as root, and without changes until enabled."""
    spec = the("Deployment", "outage")["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    (rule,) = spec["template"]["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert (spec["replicas"], rule["topologyKey"]) == (2, "kubernetes.io/hostname")
    assert container["securityContext"]["runAsNonRoot"] is True
    configuration = parse_outage("config.yaml", the("ConfigMap", "outage")["data"]["config.yaml"].encode())
    assert configuration.dry_run is True
    assert configuration.namespace == the("Deployment", "outage")["metadata"]["namespace"]
    (path,) = [each["mountPath"] for each in container["volumeMounts"]]
    assert f"--config={path}/config.yaml" in container["args"]
    assert all(
        str(each.redfish.username_file).startswith(path) for each in configuration.pools if each.redfish
    )


def test_the_nodes_identity_brings_no_right_of_its_own() -> None:
    assert {each["kind"] for each in rendered("node-identity")} == {
        "Namespace",
        "ServiceAccount",
        "ConfigMap",
        "DaemonSet",
    }
    assert the("ServiceAccount", "node-identity")["automountServiceAccountToken"] is False
    assert "--kubeconfig=/etc/kubernetes/kubelet.conf" in pod_spec("node-identity")["containers"][0]["args"]


async def made(bed: Bed, wanted: Object) -> Object:
    found: Object = await bed.api.post(place(wanted) + "?fieldValidation=Strict", wanted)
    return found


async def gone(bed: Bed, wanted: Object) -> None:
    """A namespace takes a moment to go."""
    listed = place(wanted)
    name = wanted["metadata"]["name"]
    await bed.api.until(listed, lambda all_: name not in [each["metadata"]["name"] for each in all_["items"]])
