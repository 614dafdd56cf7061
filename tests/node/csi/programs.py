"""Storage programs: Kubernetes' attacher and provisioner, and the bed's driver.

The first two are of a later Kubernetes than the node, as in many clusters, so they need their own module.

python -m tests.node.csi.programs  # builds them ahead of time, and says where they are
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.beds.golang import Module, built

HERE = Path(__file__).parent
#: No debugger tables: they double the linker's memory.
FLAGS = ("-ldflags", "-s -w")
SIDECARS = Module(HERE / "sidecars", FLAGS)
DRIVER = Module(HERE / "driver", FLAGS)


class Programs(NamedTuple):
    attacher: Path
    provisioner: Path
    driver: Path


def csi() -> Programs:
    """The programs, built if missing. Raises Unavailable."""
    group = "github.com/kubernetes-csi"
    return Programs(
        built(SIDECARS, "csi-attacher", f"{group}/external-attacher/v4/cmd/csi-attacher"),
        built(SIDECARS, "csi-provisioner", f"{group}/external-provisioner/v6/cmd/csi-provisioner"),
        built(DRIVER, "csi-driver", "."),
    )


def main() -> None:
    for path in csi():
        print(path, flush=True)


if __name__ == "__main__":
    main()
