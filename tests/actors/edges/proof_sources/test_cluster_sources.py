"""Statements on the Node, and whether its kubelet is up (real TLS on the loopback)."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import pytest
import trio
import trustme
from trio.testing import MockClock, wait_all_tasks_blocked

from ebbtide.actors.edges.kubernetes.api_calls import ApiNode
from ebbtide.actors.edges.kubernetes.known_pods import IN_USE_MAX, NAME_MAX, UNIQUE_MAX
from ebbtide.actors.edges.kubernetes.node_view import (
    ALIVE_ANNOTATION,
    ALIVE_SECONDS,
    CLOUD_SHUTDOWN,
    DECLARED_ANNOTATION,
    DECLARED_SECONDS_MAX,
    FLOOD_REPORT_SECONDS,
    REPORT_SECONDS,
    ApiLease,
    Certificate,
    ClusterView,
    Declared,
    LeaseView,
    NodeView,
    project_lease,
    project_node,
)
from ebbtide.actors.edges.kubernetes.node_writes import (
    CERTIFICATE_ANNOTATION,
    NOTE_CHARACTERS_MAX,
    certificate_text,
)
from ebbtide.actors.edges.proof_sources.cluster_sources import (
    AGAIN_SECONDS,
    NOT_SAFE,
    OTHER_BOOT,
    OTHER_NODE,
    OVER,
    STATED,
    TAKEN_BACK,
    KubeletSource,
    StatementsEdge,
    StatementSource,
)
from ebbtide.actors.edges.proof_sources.proof_source import Machine, Said
from ebbtide.events import bounds
from ebbtide.events.decisions import PublishCertificate
from ebbtide.events.outage_events import EvidenceRead
from tests.actors.edges.process.process_bed import Outbox
from tests.waiting import WATCHDOG_SECONDS

NO_OBJECT = "the annotation is no JSON object with uid, boot, mark, by and seconds"
NO_AUTHOR = "it does not say by whom, in letters, digits and ._@+-, 64 at most"
LEASE = LeaseView("n", "1", "l1", 40)
DECLARED = {"uid": "u", "boot": "b1", "mark": "l1", "by": "ann@example.test", "seconds": 600}
ALIVE = {"uid": "u", "boot": "b1", "by": "db-2", "seconds": 700, "at": "2026-01-01T00:00:00Z"}


def projected(annotations: dict[str, Any] | None = None, **fields: Any) -> NodeView:
    said = {
        name: each if isinstance(each, str) else msgspec.json.encode(each).decode()
        for name, each in (annotations or {}).items()
    }
    meta = {"name": "n", "uid": "u", "resourceVersion": fields.pop("version", "1"), "annotations": said}
    meta["labels"] = fields.pop("labels", {})
    return project_node(msgspec.convert({"metadata": meta, **fields}, ApiNode))


def tainted(version: str, ready: str = "Unknown", **fields: Any) -> NodeView:
    taints = [{"key": CLOUD_SHUTDOWN, "effect": "NoSchedule"}]
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    return projected(version=version, spec={"taints": taints}, status=status, **fields)


# --- reading


def certified(**fields: Any) -> str:
    return certificate_text(PublishCertificate(key="k", **fields), "b1")


@pytest.mark.parametrize(
    ("text", "certificate"),
    [
        (certified(safe=True), Certificate("b1", True)),
        (certified(safe=False, running=("p",)), Certificate("b1", False)),
        (certified(safe=True, restarts=True), Certificate("b1", False)),
        # Spoilt: no actor waits for it.
        *((text, None) for text in ("{", "[]", '{"safe": 1}', "x" * (NOTE_CHARACTERS_MAX + 1), "[" * 9999)),
    ],
    ids=range(8),
)
def test_a_certificate_is_read_as_its_daemon_writes_it(text: str, certificate: Certificate | None) -> None:
    assert projected({CERTIFICATE_ANNOTATION: text}).certificate == certificate


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("yes", NO_OBJECT),
        ({**DECLARED, "seconds": "600"}, NO_OBJECT),
        ({**DECLARED, "by": ""}, NO_AUTHOR),
        ({**DECLARED, "by": "a" * 65}, NO_AUTHOR),
        ({**DECLARED, "seconds": DECLARED_SECONDS_MAX + 1}, "seconds must be from 0 to 604800"),
    ],
)
def test_a_persons_word_that_cannot_be_read_is_told(said: Any, problem: str) -> None:
    """Its author waits for a result. The text is not recorded."""
    found = projected({DECLARED_ANNOTATION: said}).declared
    assert found is not None
    assert found.problem == problem
    read = projected({DECLARED_ANNOTATION: {**DECLARED, "reason": "the rack burns"}}).declared
    assert read == Declared("u", "b1", "l1", "ann@example.test", 600)


def test_what_a_kubelet_writes_about_itself_is_bounded() -> None:
    """It may write 1.5 MB, and each report of the Node would record it. A slow name server would hold the
    threads of all sources.
    """
    words = ("evil.example.test", "", "10.0.0.1", "10.1", "::1", *(f"10.0.1.{at}" for at in range(9)))
    addresses = [{"type": "InternalIP", "address": each} for each in words]
    long = 100_000 * "x"
    status: dict[str, Any] = {"addresses": addresses, "nodeInfo": {"systemUUID": long, "bootID": long}}
    status["volumesInUse"] = [f"kubernetes.io/csi/a^{number}{1000 * 'x'}" for number in range(1400)]
    said: dict[str, Any] = {DECLARED_ANNOTATION: {**DECLARED, "at": long[:7_000]}}
    said[CERTIFICATE_ANNOTATION] = {"safe": True, "bootId": long[:50_000]}
    found = projected(said, spec={"providerID": long}, status=status)
    assert found.addresses == ("10.0.0.1", "::1", "10.0.1.0", "10.0.1.1")
    # 90 000 of them would take seconds.
    assert projected(status={"addresses": [*([addresses[0]] * 64), *addresses]}).addresses == ()
    assert found.declared is not None
    assert found.declared.problem
    assert [len(found.volumes_in_use), len(found.volumes_in_use[0])] == [IN_USE_MAX, UNIQUE_MAX]
    assert [len(found.boot_id), len(found.system_uuid)] == [NAME_MAX, NAME_MAX]
    assert len(msgspec.json.encode(found._replace(volumes_in_use=()))) < 4096
    # Each renewal of such a lease would be an outage; a person waits for a long one.
    leases = (msgspec.convert({"spec": {"leaseDurationSeconds": each}}, ApiLease) for each in (1, 2**31 - 1))
    assert [project_lease(each).seconds for each in leases] == [4, 3600]


# --- telling


class Clock:
    def mono_ns(self) -> int:
        return 7

    def wall_ns(self) -> int:
        raise AssertionError("nobody asks for it")


@asynccontextmanager
async def telling(
    first: NodeView, made: list[StatementSource] | None = None
) -> AsyncIterator[tuple[ClusterView, Outbox]]:
    view, box = ClusterView(), Outbox()
    view.nodes.replace([first], first.version)
    view.leases.replace([LEASE], "1")
    sources = made if made is not None else []
    sources += [StatementSource(each, view, "n", "u") for each in STATED]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(StatementsEdge(sources, view, "n", Clock()).run, box)
        await wait_all_tasks_blocked()
        yield view, box
        nursery.cancel_scope.cancel()


async def put(view: ClusterView, node: NodeView) -> None:
    view.nodes.put(node)
    await trio.sleep(REPORT_SECONDS * 2)


def told(box: Outbox) -> list[tuple[str, str, str, str]]:
    found = [(each.source, each.name, each.verdict, each.error) for each in box.of(EvidenceRead)]
    box.facts.clear()
    return found


def marks(box: Outbox) -> list[str]:
    found = [each.mark for each in box.of(EvidenceRead)]
    box.facts.clear()
    return found


def evidence(source: Any, name: str, verdict: Any, **fields: Any) -> EvidenceRead:
    ours = {"begun_ns": 7, "identity_kind": "nodeUID", "identity": "u", "boot_id": "b1"}
    return EvidenceRead(source=source, name=name, verdict=verdict, **ours, **fields)


async def asked(view: ClusterView, source: Any) -> Said | None:
    return await StatementSource(source, view, "n", "u").read(Machine("n", "u", "b1", "", ""))


async def test_each_is_told_once_it_is_there_and_when_it_is_taken_back(autojump_clock: MockClock) -> None:
    """With author, boot and author's knowledge; again only after a change."""
    certificate = {CERTIFICATE_ANNOTATION: {"safe": True, "bootId": "b1"}}
    async with telling(projected(certificate)) as (view, box):
        assert box.facts == [evidence("certificate", "", "off")]
        box.facts.clear()
        await put(view, projected({**certificate, DECLARED_ANNOTATION: DECLARED}, version="2"))
        assert box.facts == [evidence("declared", "ann@example.test", "off", mark="l1", valid_seconds=600)]
        box.facts.clear()
        # Another author, and a revoked certificate.
        revoked = {CERTIFICATE_ANNOTATION: {"safe": False, "bootId": "b1"}}
        await put(view, projected({**revoked, DECLARED_ANNOTATION: {**DECLARED, "by": "bob"}}, version="3"))
        assert told(box) == [
            ("certificate", "", "unknown", NOT_SAFE),
            ("declared", "bob", "off", ""),
            ("declared", "ann@example.test", "unknown", ""),
        ]
        await put(view, projected(version="4"))
        assert told(box) == [("declared", "bob", "unknown", ""), ("certificate", "", "unknown", "")]
        await put(view, projected(version="5", labels={"a": "b"}))
        assert told(box) == []
        # Contradictions come first, so no proof counts for a moment. Without a boot it applies to any.
        both = {DECLARED_ANNOTATION: DECLARED, ALIVE_ANNOTATION: ALIVE | {"boot": ""}}
        await put(view, projected(both, version="6"))
        verdicts = [each[:3] for each in told(box)]
        assert verdicts == [("peer", "db-2", "on"), ("declared", "ann@example.test", "off")]
        # They do not apply to a new Node of the same name.
        await put(view, tainted("7")._replace(uid="v"))
        assert {each[2] for each in told(box)} == {"off", "unknown"}
        assert await asked(view, "cloud-taint") is None


@pytest.mark.parametrize("floods", [False, True])
async def test_statements_without_an_end(autojump_clock: MockClock, *, floods: bool) -> None:
    """Each is recorded: a kubelet that writes 20 a second fills no journal with them."""
    async with telling(projected()) as (view, box):
        view.of("n").report_seconds = FLOOD_REPORT_SECONDS if floods else REPORT_SECONDS
        for version in range(2, 102):
            said = {ALIVE_ANNOTATION: ALIVE | {"by": f"db-{version}"}}
            view.nodes.put(projected(said, version=str(version)))
            await trio.sleep(0.05)
        # In 5 s, a new one and the end of the one before.
        assert len(told(box)) <= (1 if floods else 2 * 5 / REPORT_SECONDS)
        await trio.sleep(FLOOD_REPORT_SECONDS)
        assert told(box)


async def test_a_flood_delays_no_contradiction_and_no_end_of_a_proof(autojump_clock: MockClock) -> None:
    """They come at once, but not again before the proof or the contradiction's end that is due."""
    off = {DECLARED_ANNOTATION: DECLARED}
    sources: list[StatementSource] = []
    async with telling(projected(off), sources) as (view, box):
        ann, db = ("declared", "ann@example.test"), ("peer", "db-2")
        view.of("n").report_seconds = FLOOD_REPORT_SECONDS
        told(box)
        seen: list[list[tuple[str, str, str]]] = []
        for version in range(2, 202):
            said = off if version % 2 else {ALIVE_ANNOTATION: ALIVE | {"boot": "", "seconds": 7200}}
            view.nodes.put(projected(said, version=str(version)))
            await wait_all_tasks_blocked()
            seen.append([each[:3] for each in told(box)])
            await trio.sleep(1)
        assert seen[0] == [(*db, "on"), (*ann, "unknown")]
        assert not any(seen[1:])
        await trio.sleep(FLOOD_REPORT_SECONDS)
        assert [each[:3] for each in told(box)] == [(*ann, "off"), (*db, "off")]
        # A reading may report a proof earlier.
        view.nodes.put(projected(version="300"))
        await wait_all_tasks_blocked()
        for version in (301, 303):
            view.nodes.put(projected(off, version=str(version)))
            assert [await each.read(MACHINE) is None for each in sources] == [True, True, True, False]
            view.nodes.put(projected(version=str(version + 1)))
            await wait_all_tasks_blocked()
        assert [each[:3] for each in told(box)] == [(*ann, "unknown")] * 3


async def test_the_clouds_taint_that_outlives_a_start_says_nothing(autojump_clock: MockClock) -> None:
    """The cloud's taint names no boot: it names the heartbeats when this leader saw it being set, and none if
    it was there before. The core knows later ones.
    """
    async with telling(tainted("1")) as (view, box):
        assert marks(box) == [""]
        view.nodes.put(projected(version="2"))
        await put(view, tainted("3"))
        assert marks(box) == ["", "l1"]
        await put(view, tainted("4", ready="True")._replace(status_mark="s2"))
        assert marks(box) == []
        assert await asked(view, "cloud-taint") == Said("off", "nodeUID", "u", mark="l1")


async def test_a_lease_renewed_under_the_clouds_taint(autojump_clock: MockClock) -> None:
    """A watch that was away may report an earlier renewal together with the taint."""
    async with telling(projected()) as (view, box):
        await put(view, tainted("2"))
        assert marks(box) == ["l1"]
        view.leases.put(LEASE._replace(version="2", mark="l2"))
        await trio.sleep(11)
        assert marks(box) == ["l2"]
        view.leases.put(LEASE._replace(version="3", mark="l3"))
        await trio.sleep(REPORT_SECONDS * 2)
        assert await asked(view, "cloud-taint") == Said("off", "nodeUID", "u", mark="l2")


# --- that it lives


def alive(version: str = "1", boot: str = "b1", **fields: Any) -> NodeView:
    return projected(
        {ALIVE_ANNOTATION: ALIVE | fields}, version=version, status={"nodeInfo": {"bootID": boot}}
    )


async def test_who_says_that_it_lives_contradicts_until_it_is_taken_back(autojump_clock: MockClock) -> None:
    """By author; repeated before a contradiction would expire, whether a source is asked or not."""
    async with telling(alive(seconds=0)) as (view, box):
        assert box.facts == [evidence("peer", "db-2", "on")]
        box.facts.clear()
        await trio.sleep(2 * AGAIN_SECONDS + 1)
        assert told(box) == [("peer", "db-2", "on", "")] * 2
        # Also for a node with constant reports.
        for version in range(20):
            await trio.sleep(AGAIN_SECONDS / 10)
            view.nodes.put(alive(f"1{version:02}", seconds=0)._replace(taint="other"))
        assert told(box) == [("peer", "db-2", "on", "")] * 2
        await put(view, projected(version="200"))
        # A retracted contradiction is no proof.
        assert told(box) == [("peer", "db-2", "off", TAKEN_BACK)]
        await trio.sleep(ALIVE_SECONDS)
        assert told(box) == []
        # By another author, while the first one retracts.
        await put(view, alive("300"))
        await put(view, alive("400", by="db-3"))
        said = ("peer", "db-2", "on", ""), ("peer", "db-3", "on", ""), ("peer", "db-2", "off", TAKEN_BACK)
        assert told(box) == [*said]


async def test_that_it_lives_is_over_after_its_time_and_can_be_said_anew(autojump_clock: MockClock) -> None:
    """Counted from the first sight in this process; a new statement restarts it."""
    async with telling(alive()) as (view, box):
        await trio.sleep(699)
        # Something else has changed on the Node.
        view.nodes.put(alive("2"))
        assert {each[2] for each in told(box)} == {"on"}
        await trio.sleep(2)
        assert told(box) == [("peer", "db-2", "off", OVER)]
        assert await asked(view, "peer") == Said("off", error=OVER)
        view.nodes.put(alive("3", at="2026-01-01T01:00:00Z"))
        await wait_all_tasks_blocked()
        assert told(box) == [("peer", "db-2", "on", "")]
        await trio.sleep(2 * ALIVE_SECONDS)
        assert told(box)[-1] == ("peer", "db-2", "off", OVER)


@pytest.mark.parametrize(
    ("node", "error"),
    [
        (alive(boot="b2"), OTHER_BOOT),
        (alive(uid="v"), OTHER_NODE),
        (alive(by=""), NO_AUTHOR),
        (projected({ALIVE_ANNOTATION: "yes"}), NO_OBJECT),
    ],
)
async def test_a_word_that_is_not_about_this_boot_of_this_node(node: NodeView, error: str) -> None:
    """It is reported, because its author relies on it, and is no contradiction."""
    async with telling(node) as (_, box):
        assert [each[2:] for each in told(box)] == [("unknown", error)]


ON = Said("on", "nodeUID", "u")
MACHINE = Machine("n", "u", "b1", "", "")


def node(port: int, *addresses: str, name: str = "n", uid: str = "u") -> NodeView:
    view = NodeView(name, uid, "1", "b1", "Unknown", "", "", "none", (), "")
    return view._replace(addresses=addresses, port=port)


async def kubelet_says(*nodes: NodeView) -> Said | None:
    view = ClusterView()
    view.nodes.replace(list(nodes), "1")
    return await KubeletSource(view, "n").read(MACHINE)


@asynccontextmanager
async def listening(*, tls: bool = True, silent: bool = False, named: str = "n@1") -> AsyncIterator[int]:
    """A server that greets by TLS, sends plain text, or is silent; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("n", common_name=named).configure_cert(context)

    async def serve(stream: trio.SocketStream) -> None:
        if silent:
            await trio.sleep_forever()
        if not tls:
            await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return
        try:
            await trio.SSLStream(stream, context, server_side=True).do_handshake()
        except trio.BrokenResourceError:
            return

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def test_a_kubelet_that_greets_is_there() -> None:
    """Any certificate counts; the second address counts too."""
    async with listening() as port:
        assert await kubelet_says(node(port, "127.0.0.1")) == ON
        assert await kubelet_says(node(port, "127.0.0.9", "127.0.0.1")) == ON


async def test_nobody_there_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, silent or not TLS: no proof."""
    monkeypatch.setattr(bounds, "now", bounds.Bounds(source_kubelet_seconds=WATCHDOG_SECONDS))
    async with listening(tls=False) as port:
        for address, error in (("127.0.0.1", "SSLError"), ("127.0.0.9", "Connection refused")):
            said = await kubelet_says(node(port, address))
            assert said is not None
            assert said.verdict == "unknown"
            assert error in said.error
    monkeypatch.setattr(bounds, "now", bounds.Bounds(source_kubelet_seconds=0.2))
    async with listening(silent=True) as port:
        assert await kubelet_says(node(port, "127.0.0.1")) == Said("unknown", error="no answer")


async def test_who_has_no_address_or_is_another_is_not_asked() -> None:
    """The answer is not about this Node."""
    async with listening() as port:
        assert await kubelet_says(node(port)) is None
        assert await kubelet_says(node(port, "127.0.0.1", uid="v")) is None
        assert await kubelet_says() is None


@pytest.mark.parametrize(("named", "is_it"), [
    ("m@1700000000", True), ("system:node:m", True),
    # It says that it has this address; a certificate of a person's may name no node.
    ("n@1700000000", False), ("system:node:n", False), ("kubelet", False),
    # Both: the other one may have the name of the certificate's authority.
    ("n@1\x06\x03U\x04\x03\x0c\x01m", False),
])  # fmt: skip
async def test_an_address_that_another_node_has_too(named: str, is_it: bool) -> None:
    """The other node answers, or a kubelet took the address of a live one to silence it."""
    async with listening(named=named) as port:
        other = node(port, "127.0.0.1", name="m", uid="v")
        said = Said("unknown", error="another Node has its address") if is_it else ON
        assert await kubelet_says(node(port, "127.0.0.1"), other) == said
