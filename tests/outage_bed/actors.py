"""The actors that recover a lost node's work: none, a person, or the controller."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import trio

from ebbtide.events import outage_events
from ebbtide.events.base import Event, Record
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from tests.deploy.granted import token
from tests.deploy.rendering import place, rendered
from tests.node.bed import Bed
from tests.node.client import Refused
from tests.node.ebbtide import COMMAND
from tests.node.identities import EBBTIDE, Client
from tests.node.parts import API, Part
from tests.outage_bed.stage import LOST, NODES, Stage
from tests.waiting import WATCHDOG_SECONDS, until

NAMESPACE = "ebbtide"
MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
UID_LABEL, OFFSET = "ebbtide.dev/node-uid", "ebbtide.dev/offset"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/ebbtide-outage"
ACCOUNT = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/ebbtide-outage"
#: Left out of the applied manifests: here the controller is a program of the bed.
WORKLOAD = ("Deployment", "PodDisruptionBudget")
KIND = {"apiVersion": "ebbtide/v1alpha1", "kind": "OutageConfiguration", "namespace": NAMESPACE}

#: A person has removed our taint, and may declare the machine off again.
REMOVED = "another client has removed our taint"

E = TypeVar("E", bound=Event)


class Journal:
    """One Node's journal in the API server, read with independent code, and copied to ``folder``."""

    def __init__(self, bed: Bed, node_uid: str, folder: Path) -> None:
        self.bed, self.node_uid, self.folder = bed, node_uid, folder

    async def read(self) -> list[Record]:
        found = await self.bed.api.get(f"{MAPS}?labelSelector={UID_LABEL}%3D{self.node_uid}")
        segments: dict[str, bytearray] = {}
        for each in sorted(found["items"], key=lambda each: str(each["metadata"]["name"])):
            ((name, data),) = each["binaryData"].items()
            segment, offset = segments.setdefault(name, bytearray()), each["metadata"]["annotations"][OFFSET]
            assert len(segment) == int(offset), f"{each['metadata']['name']}: a hole before {offset}"
            segment += base64.b64decode(data)
        if not segments:
            return []
        self.folder.mkdir(exist_ok=True)
        for name, content in segments.items():
            (self.folder / name).write_bytes(content)
        return list(History([DirectorySource(self.folder)]).records())

    async def replays(self) -> str:
        """Empty if the records follow from their facts, to the byte."""
        argv = [*COMMAND, "replay", "verify", f"--journal={self.folder}", "-o", "json"]
        done = await trio.to_thread.run_sync(
            lambda: subprocess.run(argv, capture_output=True, text=True, timeout=WATCHDOG_SECONDS)
        )
        if done.returncode or not json.loads(done.stdout)["identical"]:
            return f"the journal does not replay: {done.stdout[-500:]} {done.stderr[-500:]}"
        return ""


def events(records: Sequence[Record], kind: type[E]) -> list[E]:
    return [each.event for each in records if isinstance(each.event, kind)]


class Actor(Protocol):
    name: str

    async def begin(self, stage: Stage) -> None:
        """Before the cut."""

    async def cure(self, stage: Stage) -> None:
        """Returns when the node is out of service."""

    async def explains(self, stage: Stage, name: str) -> None:
        """Wait for the account that names the cause. Raises AssertionError."""

    async def tells(self, stage: Stage, kind: type[Event]) -> None:
        """That is on record. Raises AssertionError."""

    async def clear(self, stage: Stage) -> None:
        """The node is back and Ready: wait until it is in service."""

    async def closes(self, stage: Stage, outcome: str) -> None:
        """Wait for this end of the outage in its record. Raises AssertionError."""

    async def end(self, stage: Stage) -> tuple[dict[str, Any], list[str]]:
        """The measurements, and violations in the record, one line each."""


class Hand:
    """A person who reacts to NotReady at once."""

    name = "hand"

    async def begin(self, stage: Stage) -> None:
        """A person needs no preparation."""

    async def cure(self, stage: Stage) -> None:
        await stage.not_ready()
        await stage.taint()

    async def explains(self, stage: Stage, name: str) -> None:
        """A person keeps no record."""

    async def tells(self, stage: Stage, kind: type[Event]) -> None:
        """Nor this."""

    async def clear(self, stage: Stage) -> None:
        await stage.is_back()
        await stage.taint("")

    async def closes(self, stage: Stage, outcome: str) -> None:
        """Nor this."""

    async def end(self, stage: Stage) -> tuple[dict[str, Any], list[str]]:
        return {}, []


class Controller:
    """`ebbtide outage run` as a program in the nodes' network, with its manifests' rights and one pool."""

    name = "controller"
    #: The gate widens the product's bounds; other runs do not.
    bounds_factor = 1

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = EBBTIDE
        self.replicas: list[str] = []
        self.records: list[Record] = []
        self.journal: Journal | None = None

    async def begin(self, stage: Stage) -> None:
        await self.prepare(stage)
        await self.start(stage, "a")
        await self.leads(stage)

    async def prepare(self, stage: Stage) -> None:
        node = await stage.bed.api.get(f"{NODES}/{LOST}")
        self.journal = Journal(stage.bed, node["metadata"]["uid"], self.folder / "journal")
        for each in await trio.to_thread.run_sync(rendered, "outage"):
            if each["kind"] not in WORKLOAD:
                await stage.bed.api.post(place(each), each)
        self.client = Client(await token(stage.bed, account=ACCOUNT), "ebbtide-outage")
        self.configure(stage, redfish=stage.bmcs.settings())

    def configure(self, stage: Stage, **pool: Any) -> None:
        document = KIND | {"pools": [{"name": "machines", **pool}]}
        (stage.bed.folder / "outage.json").write_text(json.dumps(document))

    async def start(self, stage: Stage, replica: str) -> None:
        kubeconfig = stage.bed.secrets.kubeconfig(self.client, API, f"outage-{replica}")
        flags = {"config": stage.bed.folder / "outage.json", "kubeconfig": kubeconfig, "replica": replica}
        environ = {"EBBTIDE_DEBUG": "1", "EBBTIDE_BOUNDS_FACTOR": str(self.bounds_factor)}
        argv = [*COMMAND, "outage", "run", *(f"--{name}={value}" for name, value in flags.items())]
        await stage.bed.start(Part(part_of(replica), argv, environ))
        self.replicas.append(replica)

    async def leads(self, stage: Stage, *, other_than: str = "") -> str:
        """The replica that has the Lease. Raises AssertionError."""

        def held(lease: Any) -> bool:
            holder = str(lease["spec"].get("holderIdentity") or "").split("_")[0]
            return bool(holder) and holder != other_than

        try:
            lease = await stage.bed.api.until(LEASE, held)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.logs(stage)}") from error
        return str(lease["spec"]["holderIdentity"]).split("_")[0]

    async def cure(self, stage: Stage) -> None:
        try:
            await stage.until_tainted()
        except AssertionError as error:
            raise AssertionError(f"it set no taint: {self.logs(stage)}") from error

    async def explains(self, stage: Stage, name: str) -> None:
        def told() -> bool:
            waits = [
                *events(self.records, outage_events.PodWaits),
                *events(self.records, outage_events.DetachWaits),
            ]
            labels = {getattr(each, "name", "") for each in waits}
            return name in labels or any(name in each.reason for each in waits)

        await self.until(told, f"nothing says that {name} is waited for")

    async def clear(self, stage: Stage) -> None:
        await stage.is_back()
        await stage.until_tainted(False)

    async def closes(self, stage: Stage, outcome: str) -> None:
        def closed() -> bool:
            return [each.outcome for each in events(self.records, outage_events.OutageClosed)][-1:] == [
                outcome
            ]

        await self.until(closed, f"the outage does not end as {outcome}")

    async def tells(self, stage: Stage, kind: type[Event]) -> None:
        """It is on record. Raises AssertionError."""
        await self.until(lambda: events(self.records, kind), f"no {kind.__name__}")

    async def waits(self, stage: Stage, reason: str) -> None:
        """The outage waits for a reason with these words. Raises AssertionError."""

        def told() -> bool:
            return any(reason in each.reason for each in events(self.records, outage_events.OutageWaits)[-1:])

        await self.until(told, f"the outage does not wait with {reason!r}")

    async def until(self, holds: Any, otherwise: str) -> None:
        """Wait until the record ``holds``. Raises AssertionError with its last state."""

        async def read_and_holds() -> Any:
            await self.read()
            return holds()

        await until(
            read_and_holds, lambda: f"{otherwise}: {'; '.join(str(r.event) for r in self.records[-12:])}"
        )

    async def read(self) -> list[Record]:
        assert self.journal is not None
        try:
            self.records = await self.journal.read()
        except (OSError, Refused):
            pass
        return self.records

    def logs(self, stage: Stage) -> str:
        return "\n".join(stage.bed.log(part_of(each))[-2000:] for each in dict.fromkeys(self.replicas))

    async def end(self, stage: Stage) -> tuple[dict[str, Any], list[str]]:
        for replica in dict.fromkeys(self.replicas):
            await stage.bed.stop(part_of(replica), signal_number=signal.SIGTERM)
            (self.folder / f"{part_of(replica)}.log").write_text(stage.bed.log(part_of(replica)))
        if self.journal is None:
            return {}, []
        records = await self.read()
        found = [await self.journal.replays()] if records else []
        if not events(records, outage_events.OutageBegan):
            found.append(f"no outage is on record: {self.logs(stage)}")
        began, taints = (
            len(events(records, outage_events.OutageBegan)),
            len(events(records, outage_events.OutOfService)),
        )
        removed = sum(REMOVED in each.reason for each in events(records, outage_events.OutageWaits))
        if taints > began + removed:
            found.append(f"out of service {taints} times in {began} outages")
        if taints and not events(records, outage_events.ProofAccepted):
            found.append("out of service without a proof")
        if events(records, outage_events.OutageClosed) and taints:
            followed = {each.uid for each in events(records, outage_events.PodRecovered)}
            followed |= {each.name for each in events(records, outage_events.Detached)}
            unrecovered = " ".join(
                n for each in events(records, outage_events.OutageClosed) for n in each.unrecovered
            )
            labels = {each.pod.uid: each.pod.label for each in events(records, outage_events.PodLost)}
            for name in sorted(stage.hung):
                if name not in followed and labels.get(name, name) not in unrecovered:
                    found.append(f"nothing is on record of the end of {name}")
        return told(records), [line for line in found if line]


def told(records: list[Record]) -> dict[str, Any]:
    """``decided_ms``: from NotReady with a proof until the taint, by the record."""
    row: dict[str, Any] = {"outcomes": [each.outcome for each in events(records, outage_events.OutageClosed)]}
    row["records"] = len(records)
    not_ready_ns = proved_ns = 0
    for each in records:
        event = each.event
        if isinstance(event, outage_events.NodeRead):
            not_ready_ns = 0 if event.ready == "True" else not_ready_ns or each.mono_ns
        elif isinstance(event, outage_events.ProofAccepted):
            proved_ns = each.mono_ns
        elif isinstance(event, outage_events.OutOfService):
            known_ns = max(not_ready_ns, proved_ns)
            return row | {"proof": event.proof, "decided_ms": round((each.mono_ns - known_ns) / 1e6)}
    return row


def part_of(replica: str) -> str:
    return f"outage-{replica}"
