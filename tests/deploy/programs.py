"""Readers of our manifests: kustomize and both major Helm versions, from Go modules.

python -m tests.deploy.programs      # builds them ahead of time, and says where they are
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path

from tests.beds.golang import Module, built
from tests.beds.rootfs import Unavailable

HERE = Path(__file__).parent
#: By major version: Helm's variable for its client's Kubernetes version. Without it Helm refuses a chart that
#: names its versions.
HELMS = {
    3: ("pkg/chartutil", "pkg/lint/rules"),
    4: ("pkg/chart/common", "pkg/chart/v2/lint/rules", "internal/version"),
}


def kustomize() -> Path:
    """kustomize as in the node's kubectl. Raises Unavailable."""
    return built(Module(HERE / "kustomize"), "kustomize", "sigs.k8s.io/kustomize/kustomize/v5")


def helm(major: int) -> Path:
    """Built like its own Makefile, if missing. Raises Unavailable."""
    root = f"helm.sh/helm/v{major}"
    required = dict(re.findall(r"^\t(\S+) (v\S+)", (HERE / "helm" / "go.mod").read_text(), re.MULTILINE))
    said = {f"{root}/internal/version.version": required[root]}
    minor = required["k8s.io/client-go"].split(".")[1]
    for package in HELMS[major]:
        prefix = "kubeClientVersion" if package == "internal/version" else "k8sVersion"
        said |= {f"{root}/{package}.{prefix}Major": "1", f"{root}/{package}.{prefix}Minor": minor}
    links = " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in said.items())])
    return built(Module(HERE / "helm", ("-ldflags", links)), f"helm-{major}", f"{root}/cmd/helm")


#: The Prometheus operator's CRDs are in its Go module, which is not built.
OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
OPERATOR_SUM = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
DEFINITIONS = "example/prometheus-operator-crd/monitoring.coreos.com_{}.yaml"


def definition(plural: str) -> Path:
    """The operator's CustomResourceDefinition with that plural. Raises Unavailable."""
    with tempfile.TemporaryDirectory() as nowhere:
        argv = ["go", "mod", "download", "-json", OPERATOR]
        try:
            done = subprocess.run(argv, cwd=nowhere, capture_output=True, text=True)
        except OSError as error:
            raise Unavailable(f"{OPERATOR}: {error}") from error
    said = json.loads(done.stdout or "{}")
    if done.returncode or "Dir" not in said:
        raise Unavailable(f"{OPERATOR}: {said.get('Error', done.stderr)}")
    if said["Sum"] != OPERATOR_SUM:
        raise Unavailable(f"{OPERATOR} is {said['Sum']}")
    return Path(said["Dir"]) / DEFINITIONS.format(plural)


def main() -> None:
    print(kustomize(), flush=True)
    for major in HELMS:
        print(helm(major), flush=True)


if __name__ == "__main__":
    main()
