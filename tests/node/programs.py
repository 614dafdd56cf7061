"""The node's programs: Kubernetes' own, built from one Go module, and Debian's.

``kubernetes/go.mod`` sets the version.

python -m tests.node.programs      # builds them ahead of time, and says where they are
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.beds.golang import Module, built
from tests.beds.rootfs import Unavailable

MODULE = Path(__file__).parent / "kubernetes"
NAMES = ("kube-apiserver", "kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy")
#: Program to Debian's package of it.
PACKAGED = {
    "etcd": "etcd-server",
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "busybox": "busybox-static",
    "ip": "iproute2",
    "iptables": "iptables",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    # Any version: it only calls our plugin.
    "kubectl": "kubernetes-client",
}
CNI = Path("/usr/lib/cni")
CNI_PACKAGE = "containernetworking-plugins"


def version() -> str:
    """Kubernetes' version, as ``v1.34.4``."""
    found = re.search(r"^require k8s\.io/kubernetes (v\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def kubernetes(name: str) -> Path:
    """A Kubernetes program, built if missing. Raises Unavailable."""
    major, minor, _ = version().removeprefix("v").split(".", 2)
    said = {"gitVersion": version(), "gitMajor": major, "gitMinor": minor}
    links = " ".join(f"-X k8s.io/component-base/version.{field}={value}" for field, value in said.items())
    return built(Module(MODULE, ("-ldflags", links)), name, f"k8s.io/kubernetes/cmd/{name}")


def all_kubernetes() -> dict[str, Path]:
    """Every one of them. Raises Unavailable."""
    return {name: kubernetes(name) for name in NAMES}


def need_packages() -> None:
    """Raises Unavailable with the missing packages."""
    absent = [package for name, package in PACKAGED.items() if shutil.which(name) is None]
    if not (CNI / "ptp").exists():
        absent.append(CNI_PACKAGE)
    if absent:
        raise Unavailable(f"needs Debian's {', '.join(dict.fromkeys(absent))}")


def main() -> None:
    """Build the missing programs ahead of time."""
    for name in NAMES:
        print(kubernetes(name), flush=True)


if __name__ == "__main__":
    main()
