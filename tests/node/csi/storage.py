"""Storage: one controller with attacher and provisioner, and a driver on each node's machine.

Volumes are folders of one array that survives every power cut. The array's trail lists the driver's calls and
each violation of the CSI specification.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.node import parts
from tests.node.bed import Bed
from tests.node.client import Object
from tests.node.csi.programs import Programs
from tests.node.identities import ADMIN
from tests.node.machines import Machine
from tests.node.parts import Part

DRIVER = "bed.csi.ebbtide.test"
CLASS = "bed"
STORAGE = "/apis/storage.k8s.io/v1"
ATTACHMENTS = f"{STORAGE}/volumeattachments"
ATTACHER = "csi-attacher"
#: Shorter retries; the defaults take minutes.
SIDECAR = {"timeout": "10s", "retry-interval-max": "5s", "kube-api-qps": 100, "kube-api-burst": 200}


class Call(NamedTuple):
    """A line of the trail. ``result``: done, refused, fault (injected), or violation."""

    at: str
    call: str
    by: str
    volume: str
    node: str
    result: str
    why: str


class Storage:
    def __init__(self, bed: Bed, programs: Programs) -> None:
        self.bed, self.programs = bed, programs
        self.array = bed.folder / "state" / "array"

    async def start(self, machines: dict[str, Machine]) -> None:
        """Returns when each kubelet knows the driver."""
        await self._declare()
        await self.bed.start(self._driver("controller"))
        for name, machine in machines.items():
            machine.memory = (self.array / "staged", f"*/{name}")
            plugins = machine.member.state / "kubelet" / "plugins_registry"
            await machine.start(self._driver(name, node=name, plugins=plugins))
        await self.start_attacher()
        await self.bed.start(self._sidecar("csi-provisioner", self.programs.provisioner))
        for name in machines:
            await self.bed.api.until(f"{STORAGE}/csinodes/{name}", _has_driver)

    async def start_attacher(self) -> None:
        await self.bed.start(self._sidecar(ATTACHER, self.programs.attacher))

    async def _declare(self) -> None:
        kind = {"apiVersion": "storage.k8s.io/v1", "metadata": {"name": DRIVER}}
        await self.bed.api.post(
            f"{STORAGE}/csidrivers",
            kind | {"kind": "CSIDriver", "spec": {"attachRequired": True, "fsGroupPolicy": "None"}},
        )
        fields = {"provisioner": DRIVER, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}
        await self.bed.api.post(
            f"{STORAGE}/storageclasses",
            kind | {"kind": "StorageClass", "metadata": {"name": CLASS}, **fields},
        )

    def _driver(self, name: str, **flags: Any) -> Part:
        flags |= {"socket": self._socket(name), "array": self.array}
        return Part(f"csi-{name}", [str(self.programs.driver), *_flags(flags)], {})

    def _sidecar(self, name: str, program: Path) -> Part:
        kubeconfig = self.bed.secrets.kubeconfig(ADMIN, parts.API, name)
        return Part(
            name,
            [
                str(program),
                *_flags(SIDECAR | {"kubeconfig": kubeconfig, "csi-address": self._socket("controller")}),
            ],
            {},
        )

    def _socket(self, name: str) -> Path:
        return self.bed.folder / f"csi-{name}.sock"

    def fault(self, call: str, what: str = "") -> None:
        """``fail``, ``hang``, a duration such as ``5s``; empty removes the fault."""
        file = self.bed.place(self.array / "faults" / call)
        if what:
            file.write_text(what)
        else:
            file.unlink(missing_ok=True)

    def trail(self) -> list[Call]:
        path = self.bed.place(self.array / "trail.jsonl")
        text = path.read_bytes() if path.exists() else b""
        return [Call(**json.loads(line)) for line in text.splitlines()]

    def staged(self, node: str) -> list[str]:
        """The volumes in use, by the driver's records."""
        return sorted(file.parent.name for file in self.bed.place(self.array / "staged").glob(f"*/{node}"))

    def written(self) -> dict[str, list[str]]:
        """The lines of each volume's files, by path in the array."""
        folder = self.bed.place(self.array / "volumes")
        return {
            str(file.relative_to(folder)): file.read_text().splitlines()
            for file in sorted(folder.glob("*/*"))
        }


async def restart_controllers(bed: Bed, **flags: Any) -> None:
    """Restart the controller-manager with more flags; any client may read its metrics."""
    part = parts.controllers(bed.programs["kube-controller-manager"], bed.secrets)
    paths = "/healthz,/readyz,/livez,/metrics"
    await bed.start(
        part._replace(argv=[*part.argv, *_flags({"authorization-always-allow-paths": paths} | flags)])
    )


async def metrics(bed: Bed, *names: str) -> dict[str, float]:
    """Its metrics with these name prefixes, by name and labels."""
    text = await bed.run(
        "busybox", "wget", "-q", "-O", "-", "--no-check-certificate", "https://127.0.0.1:10257/metrics"
    )
    rows = [line.rpartition(" ") for line in text.splitlines() if line.startswith(names)]
    return {name: float(value) for name, _, value in rows}


def claim(mode: str = "ReadWriteOnce", name: str = "data") -> Object:
    spec = {"accessModes": [mode], "storageClassName": CLASS, "resources": {"requests": {"storage": "1Mi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def _has_driver(made: Object) -> bool:
    return any(each["name"] == DRIVER for each in made["spec"].get("drivers") or [])


def _flags(flags: dict[str, Any]) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
