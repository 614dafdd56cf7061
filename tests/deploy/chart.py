"""The chart, rendered by Helm. All manifests come from its templates: these values render the kustomizations'
object files.

python -m tests.deploy.chart      # writes them anew
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from typing import Any

import yaml

from tests.deploy.programs import helm
from tests.deploy.rendering import ROOT, Object

CHART = ROOT.parent / "helm" / "ebbtide"
NAMESPACE = "ebbtide"
SOURCE = re.compile(r"# Source: ebbtide/templates/(\S+)\n")
HEADER = "# Made from {} by `python -m tests.deploy.chart`: change that.\n"

#: A kustomization changes by rollout, and its image by `kustomize edit set image`.
KEPT: Object = {
    "image": {"repository": "ebbtide"},
    "node": {"restartOnChange": False},
    "outage": {"restartOnChange": False},
}
#: The kustomization's file, its template, and its audience.
FILES = {
    "rbac/service-account.yaml": ("node/service-account.yaml", "daemonset"),
    "rbac/role.yaml": ("node/role.yaml", "daemonset"),
    "rbac/own-node-only.yaml": ("node/own-node-only.yaml", "daemonset"),
    "workload/daemonset.yaml": ("node/daemonset.yaml", "daemonset"),
    "node-identity/service-account.yaml": ("node/service-account.yaml", "node-identity"),
    "outage/service-account.yaml": ("outage/service-account.yaml", "outage"),
    "outage/role.yaml": ("outage/role.yaml", "outage"),
    "outage/only-our-taints.yaml": ("outage/only-our-taints.yaml", "outage"),
    "outage/only-our-journals.yaml": ("outage/only-our-journals.yaml", "outage"),
    "outage/network-policy.yaml": ("outage/network-policy.yaml", "outage"),
    "outage/deployment.yaml": ("outage/deployment.yaml", "outage"),
    "outage/remediators/role.yaml": ("outage/remediators.yaml", "outage"),
}


def values_of(name: str) -> Object:
    """The values of the kustomization ``name``; the outage's includes its remediators."""
    if name == "node-identity":
        return KEPT | {"node": KEPT["node"] | {"identity": "kubelet"}}
    if name != "outage":
        return KEPT
    # That configuration is a hand-written example with comments. The namespace is the release's.
    (made,) = yaml.safe_load_all((ROOT / "outage" / "configuration.yaml").read_text())
    config = yaml.safe_load(made["data"]["config.yaml"])
    assert config.pop("namespace") == NAMESPACE
    outage = KEPT["outage"] | {"enabled": True, "remediators": True, "config": config}
    return KEPT | {"node": {"enabled": False}, "outage": outage}


def run(major: int, *words: object, code: int = 0) -> str:
    """Helm's output, without this machine's settings; its error if ``code`` is not 0."""
    with tempfile.TemporaryDirectory() as home:
        environ = {"HOME": home, "PATH": "/usr/bin:/bin"}
        argv = [str(word) for word in (helm(major), *words)]
        done = subprocess.run(argv, capture_output=True, text=True, env=environ)
    assert done.returncode == code, f"{argv}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stderr if code else done.stdout


def template(values: Object, *words: object, major: int = 4) -> str:
    """The text of all objects, without asking a cluster."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file)
        file.flush()
        return run(major, "template", "ebbtide", CHART, "-n", NAMESPACE, "-f", file.name, *words)


def objects(text: str) -> list[Object]:
    found: list[Any] = list(yaml.safe_load_all(text))
    return [each for each in found if each is not None]


def written() -> dict[str, str]:
    """By path below deploy/kubernetes, what stands there."""
    rendered = {name: template(values_of(name)) for name in {name for _, name in FILES.values()}}
    return {path: _file(rendered[name], source) for path, (source, name) in FILES.items()}


def _file(text: str, source: str) -> str:
    documents = re.split(r"^---\n", text, flags=re.MULTILINE)
    ours = [SOURCE.sub("", each, count=1) for each in documents if SOURCE.findall(each)[:1] == [source]]
    return HEADER.format(f"deploy/helm/ebbtide/templates/{source}") + "---\n".join(ours)


def main() -> None:
    for path, text in written().items():
        (ROOT / path).write_text(text)


if __name__ == "__main__":
    main()
