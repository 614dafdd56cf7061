"""The manifests as ``kubectl apply -k`` sends them.

Only resources and merge patches: ``deploy/kubernetes`` uses no other feature, and a test compares with
kustomize.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

ROOT = Path(__file__).parents[2] / "deploy/kubernetes"
#: Kustomizations for users; the others are parts of these.
APPLIED = ("rbac", "daemonset", "node-identity", "outage", "outage/remediators", "view")
USED = {"apiVersion", "kind", "resources", "patches"}

#: A kind's API path, below a namespace or not.
PLACES = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "PodMonitor": "/apis/monitoring.coreos.com/v1/namespaces/{}/podmonitors",
    "PrometheusRule": "/apis/monitoring.coreos.com/v1/namespaces/{}/prometheusrules",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ValidatingAdmissionPolicyBinding": (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    ),
}


def rendered(name: str) -> list[Object]:
    """One kustomization's objects in order."""
    return _folder(ROOT / name)


def place(made: Object) -> str:
    return PLACES[made["kind"]].format(made["metadata"].get("namespace", ""))


def _folder(folder: Path) -> list[Object]:
    said = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert set(said) <= USED, f"{folder}: {set(said) - USED}"
    found: list[Object] = []
    for name in said["resources"]:
        path = folder / name
        found += _folder(path) if path.is_dir() else _documents(path)
    for patch in said.get("patches", ()):
        (wanted,) = _documents(folder / patch["path"])
        found = [merged(each, wanted) if _is(each, wanted) else each for each in found]
    return found


def _documents(path: Path) -> list[Object]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each is not None]


def _is(one: Object, other: Object) -> bool:
    return (one["kind"], one["metadata"]["name"]) == (other["kind"], other["metadata"]["name"])


def merged(old: Any, new: Any) -> Any:
    """Merge mappings by field and named lists by name, new entries first; replace the rest."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {key: merged(old[key], value) if key in old else value for key, value in new.items()}
    if _named(old) and _named(new):
        by_name = {each["name"]: each for each in new}
        kept = [merged(each, by_name.pop(each["name"], {})) for each in old]
        return [*by_name.values(), *kept]
    return new


def _named(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) and "name" in each for each in value)
