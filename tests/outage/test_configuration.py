"""The outage controller's configuration: values, and errors with place and fix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ebbtide.actors.edges.kubernetes.api_calls import Answer
from ebbtide.actors.edges.kubernetes.node_view import ClusterView, NodeView
from ebbtide.actors.edges.proof_sources.proof_source import Machine, SourcesEdge
from ebbtide.actors.interfaces import Ending, Outlet
from ebbtide.config import ConfigError
from ebbtide.config.fields import fields_of
from ebbtide.events import outage_events
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.outage_events import OutageSettings
from ebbtide.outage.configuration import (
    DEFAULT_POOL,
    Brake,
    Cloud,
    Ec2,
    OutageConfiguration,
    PowerOff,
    load_outage,
    parse_outage,
)
from ebbtide.outage.controller import machine_of, proof_edges
from tests.actors.edges.proof_sources.test_cluster_sources import Clock

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "deploy" / "kubernetes" / "outage" / "configuration.yaml"
HEAD = "apiVersion: ebbtide/v1alpha1\nkind: OutageConfiguration\n"
FILES = "usernameFile: /u, passwordFile: /p"


def parsed(text: str) -> OutageConfiguration:
    return parse_outage("a.yaml", (HEAD + text).encode())


def error(text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        parse_outage("a.yaml", text.encode())
    assert str(raised.value).isprintable()
    return str(raised.value)


def test_nothing_configured_means_the_cores_own_defaults() -> None:
    for text in (HEAD, HEAD + "pools:\neffect:\n"):
        assert parse_outage("a.yaml", text.encode()) == OutageConfiguration()
    assert OutageConfiguration().settings == OutageSettings()
    assert OutageConfiguration().pool_of({"a": "b"}) is DEFAULT_POOL


@pytest.mark.parametrize("text", ["", "# none\n", "---\n"])
def test_a_file_that_was_emptied_is_refused(text: str) -> None:
    """Its defaults write to Nodes."""
    assert error(text).endswith(
        "it is empty: begin it with 'apiVersion: ebbtide/v1alpha1' and 'kind: OutageConfiguration'"
    )


def test_the_example_has_every_field_and_arrives() -> None:
    text = yaml.safe_load(EXAMPLE.read_text())["data"]["config.yaml"]
    found = parse_outage("config.yaml", text.encode())
    assert set(yaml.safe_load(text)) == {"apiVersion", "kind", *fields_of(OutageConfiguration)} - {
        "clusterApi"
    }
    assert found.settings == OutageSettings(dry_run=True)
    assert found.brake == Brake()
    assert (found.namespace, found.metrics_listen) == ("ebbtide", "0.0.0.0:9465")
    assert found.tracing.given.endpoint == "http://otel-collector.observability:4318"
    metal, old, ec2, others = found.pools
    assert metal.redfish is not None
    assert metal.redfish.address_of("metal-1") == "https://metal-1.bmc.example"
    assert metal.redfish.address_of("metal-7") == "https://10.20.0.107"
    assert (metal.redfish.username_file, metal.redfish.certificate) == (
        "/etc/ebbtide/bmc/username",
        "/etc/ebbtide/bmc/ca.crt",
    )
    assert old.ipmi is not None
    assert old.ipmi.address_of("old-1") == "old-1.bmc.example"
    assert old.power_off == PowerOff(after_ns=120 * NS_PER_SECOND)
    assert ec2.cloud == Cloud(ec2=Ec2(region="eu-west-1"))
    assert (metal.believe, others.believe) == (
        ("certificate", "declared", "cloud-taint"),
        ("certificate", "declared"),
    )
    assert found.pool_of({"node-restriction.kubernetes.io/kind": "old-metal", "x": ""}) is old
    assert found.pool_of({}) is others


def test_the_first_pool_that_takes_a_node_is_its_pool() -> None:
    found = parsed("pools: [{name: a, nodeSelector: {k: v, l: ''}}, {name: b, nodeSelector: {k: v}}]")
    assert found.pool_of({"k": "v", "l": ""}).name == "a"
    assert found.pool_of({"k": "v"}).name == "b"
    assert found.pool_of({"k": "w"}).name == "default"


@pytest.mark.parametrize("said", ["bmc.example", "10.0.0.1", "fd00::7"])
def test_an_address_of_ipmi_is_a_name_or_of_either_kind(said: str) -> None:
    ipmi = parsed(f"pools: [{{name: a, ipmi: {{addresses: {{n: '{said}'}}, {FILES}}}}}]").pools[0].ipmi
    assert ipmi is not None
    assert (ipmi.address_of("n"), ipmi.address_of("m"), ipmi.port) == (said, "", 623)


@pytest.mark.parametrize("text, message", [
    ("a: b", "a.yaml:1: kind is missing: it must be OutageConfiguration (apiVersion ebbtide/v1alpha1)"),
    ("apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration",
     "a.yaml:2: kind is 'EbbtideConfiguration': it must be OutageConfiguration "
     "(apiVersion ebbtide/v1alpha1)"),
    ("apiVersion: v2\nkind: OutageConfiguration",
     "a.yaml:1: apiVersion of OutageConfiguration is 'v2': it must be ebbtide/v1alpha1"),
    (HEAD + "---\n" + HEAD, "a.yaml:4: a second document begins here: keep one"),
    (HEAD + "proofPeriod: 5s",
     "a.yaml:3: proofPeriod is '5s': it must be a duration such as 30s or 1m30s, whole seconds, "
     "from 30s to 10m0s"),
    (HEAD + "brake: {maxShare: 20}",
     "a.yaml:3: brake.maxShare is 20: it must be a share from 1% to 100%"),
    (HEAD + "brake: {maxShare: 0%}", "a.yaml:3: brake.maxShare is '0%': it must be a share from 1% to 100%"),
    (HEAD + "pools:\n- name: a\n  nodeSelector: {k: true}",
     "a.yaml:5: pools[0].nodeSelector.k is true: it must be a label's value; put it in quotes"),
    (HEAD + "pools: [{name: a, nodeSelector: {k: v}}, {name: a}]",
     "a.yaml:3: pools[1].name: another pool has the name 'a': rename one"),
    (HEAD + "pools: [{name: a}, {name: b}]",
     "a.yaml:3: pools[1]: it takes no node: an earlier pool has no nodeSelector and takes all, "
     "move it back"),
    (HEAD + "tracing: {endpoint: http://a:4318, alsoSend: [logs]}",
     "a.yaml:3: unknown field 'alsoSend' in tracing: did you mean endpoint?"),
    (HEAD + "pools: [{name: a, powerOff: {after: 1m}}]",
     "a.yaml:3: pools[0].powerOff: add redfish or ipmi: only these switch a machine off"),
    (HEAD + f"pools: [{{name: a, redfish: {{{FILES}}}}}]",
     "a.yaml:3: pools[0].redfish: write address, with {node} for the Node's name, or addresses"),
    (HEAD + f"pools: [{{name: a, redfish: {{address: 'https://{{nod}}.x', {FILES}}}}}]",
     "a.yaml:3: pools[0].redfish.address: write {node} for the Node's name, in place of '{nod}'"),
    (HEAD + f"pools: [{{name: a, redfish: {{address: 'http://{{node}}.x', {FILES}}}}}]",
     "a.yaml:3: pools[0].redfish.address: it must begin with https://: the controller sends "
     "credentials there"),
    (HEAD + f"pools: [{{name: a, redfish: {{address: 'https://me:secret@x', {FILES}}}}}]",
     "a.yaml:3: pools[0].redfish.address: move the user's name into usernameFile"),
    (HEAD + f"pools: [{{name: a, redfish: {{address: 'https://x:secret/', {FILES}}}}}]",
     "a.yaml:3: pools[0].redfish.address: write a URL like https://bmc.example"),
    (HEAD + f"pools: [{{name: a, redfish: {{address: 'https://x', fingerprint: ab, {FILES}}}}}]",
     "a.yaml:3: pools[0].redfish.fingerprint is 'ab': it must be a certificate's SHA-256: 64 "
     "hexadecimal digits, with or without ':' between them"),
    (
     HEAD + f"pools: [{{name: a, redfish: {{address: 'https://x', fingerprint: '{'ab' * 32}', "
     + f"certificate: /c, {FILES}}}}}]",
     "a.yaml:3: pools[0].redfish: certificate and fingerprint exclude each other: keep one"),
    (HEAD + f"pools: [{{name: a, ipmi: {{address: 'x y', {FILES}}}}}]",
     "a.yaml:3: pools[0].ipmi.address: write a name or an address; the port is a field of its own"),
    (HEAD + f"pools: [{{name: a, ipmi: {{address: 'x:0', {FILES}}}}}]",
     "a.yaml:3: pools[0].ipmi.address: write a name or an address; the port is a field of its own"),
    (
     HEAD + "pools: [{name: a, powerOff: {after: 60s}, "
     + f"ipmi: {{address: x, privilege: user, {FILES}}}}}]",
     "a.yaml:3: pools[0].powerOff: it needs ipmi.privilege operator: a user may only read"),
    *(
        (HEAD + f"pools: [{{name: a, {kind}: {{address: '{address}', {FILES}}}}}]",
         f"a.yaml:3: pools[0].{kind}.address: write a domain of yours behind {{node}}, as in "
         "{node}.bmc.example (or, for redfish, certificate or fingerprint): a Node's name alone could direct "
         "the credentials elsewhere")
        for kind, address in (
            ("redfish", "https://{node}"), ("redfish", "https://{node}:443"), ("redfish", "https://bmc.{node}"),
            ("redfish", "https://{node}.x.{node}."), ("ipmi", "{node}"), ("ipmi", "bmc-{node}"),
            # A Node named `evil` would get evil.com; of a Node 10.1 the last would be an IP address.
            ("redfish", "https://{node}-bmc.com"), ("redfish", "https://{node}.com:8443"),
            ("redfish", "https://{node}x.bmc.example"), ("ipmi", "{node}.com."), ("ipmi", "{node}.1.2"),
        )
    ),
    (HEAD + f"pools: [{{name: a, redfish: {{address: 'https://{{node}}.x', identify: name, {FILES}}}}}]",
     "a.yaml:3: pools[0].redfish.system: name the system of each node: a controller may have several"),
    *(
        (HEAD + f"pools: [{{name: a, {kind}: {{address: {address}, identify: name, {FILES}}}}}]",
         f"a.yaml:3: pools[0].{kind}.address: write {{node}} here (or, for redfish, in system), or only "
         "addresses: with identify: name all nodes would be one machine")
        for kind, address in (("redfish", "https://bmc.x, system: '1'"), ("ipmi", "bmc.x, addresses: {n: a}"))
    ),
    *(
        (HEAD + f"pools: [{{name: a, {kind}: {{{machines}, identify: name, {FILES}}}}}]",
         f"a.yaml:3: pools[0].{kind}.addresses.m: 'n' has this machine: with identify: name each node needs "
         "its own")
        for kind, machines in (
            ("redfish", "system: '1', addresses: {n: 'https://bmc.x', m: 'https://BMC.x:443/'}"),
            ("ipmi", "addresses: {n: 'fd00::7', m: 'fd00:0::7'}"),
        )
    ),
    (
     HEAD + "pools: [" + ", ".join(
         f"{{name: {name}, nodeSelector: {{k: v}}, "
         f"ipmi: {{addresses: {{{node}: x}}, identify: name, {FILES}}}}}"
         for name, node in ("an", "bm")
     ) + "]",
     "a.yaml:3: pools[1].ipmi.addresses.m: 'n' has this machine: with identify: name each node needs its "
     "own"),
    (
     HEAD + "pools: [" + ", ".join(
         f"{{name: {name}, nodeSelector: {{k: v}}, redfish: {{addresses: {{{node}: 'https://x'}}, "
         f"system: {system}, identify: name, {FILES}}}}}"
         for name, node, system in (("a", "n", "'1'"), ("b", "m", "/redfish/v1/Systems/1/"))
     ) + "]",
     "a.yaml:3: pools[1].redfish.addresses.m: 'n' has this machine: with identify: name each node needs its "
     "own"),
    (HEAD + f"pools: [{{name: a, redfish: {{addresses: {{n: 'https://{{node}}'}}, {FILES}}}}}]",
     "a.yaml:3: pools[0].redfish.addresses.n: write the address of this node, without {node}"),
    (HEAD + f"pools: [{{name: a, ipmi: {{address: 'x:secret', {FILES}}}}}]",
     "a.yaml:3: pools[0].ipmi.address: write a name or an address; the port is a field of its own"),
    (HEAD + f"pools: [{{name: a, redfish: {{address: 'https://x/redfish', {FILES}}}}}]",
     "a.yaml:3: pools[0].redfish.address: write a base URL like https://bmc.example"),
    (HEAD + "pools: [{name: a, cloud: {ec2: {region: eu west}}}]",
     "a.yaml:3: pools[0].cloud.ec2.region is 'eu west': it must be a region such as eu-west-1"),
])  # fmt: skip
def test_what_is_wrong_is_named_with_its_place_and_its_cure(text: str, message: str) -> None:
    """One line each; a possible password is not repeated."""
    assert error(text) == message
    assert "secret" not in message


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*; name a readable file with --config"):
        load_outage(tmp_path / "none.yaml")


@pytest.mark.parametrize("machines", [
    "redfish: {address: 'https://bmc.x', system: '{node}', identify: name",
    "redfish: {address: 'https://{node}.bmc.x:8443', system: '1', identify: name",
    "redfish: {addresses: {n: 'https://bmc.x', m: 'https://bmc.x'}, system: '{node}', identify: name",
    "redfish: {addresses: {n: 'https://bmc.x', m: 'https://bmc.x'}",
    "ipmi: {address: '{node}.bmc.x.', addresses: {n: 10.0.0.1}, identify: name",
])  # fmt: skip
def test_one_controller_may_have_the_systems_of_many_nodes(machines: str) -> None:
    """By the Node's name or, where none is bound, by the UUID."""
    (pool,) = parsed(f"pools: [{{name: a, {machines}, {FILES}}}}}]").pools
    assert pool.machine_sources()("n")


def test_plain_http_is_for_the_loopback() -> None:
    """An emulator, or a proxy beside the controller."""
    found = parsed(f"pools: [{{name: a, redfish: {{address: 'http://127.0.0.1:8000/', {FILES}}}}}]")
    assert found.pools[0].redfish is not None
    assert found.pools[0].redfish.address_of("n") == "http://127.0.0.1:8000"


# --- the proof sources of a node, by its pool and its current state


POOLS = HEAD + (
    "pools:\n- {name: a, nodeSelector: {k: v}, askKubelet: false, believe: [declared]}\n"
    "- {name: b, believe: []}\n"
)
NODE = NodeView("n", "u", "1", "b1", "Unknown", "uuid", "aws:///z/i-1", "none", (), "", {"k": "v"})


class Nobody:
    async def call(self, method: str, path: str, **fields: Any) -> Answer:
        raise AssertionError("nobody is asked")


async def never(order: outage_events.PowerOff, outlet: Outlet) -> Ending | None:
    raise AssertionError("nothing is switched off")


def view_of(*nodes: NodeView) -> ClusterView:
    view = ClusterView()
    view.nodes.replace(list(nodes), "1")
    return view


@pytest.mark.parametrize(("text", "labels", "expected"), [
    (HEAD, {}, ["peer", "cloud-taint", "certificate", "declared", "kubelet"]),
    (POOLS, {"k": "v"}, ["peer", "declared"]),
    (POOLS, {}, ["peer", "kubelet"]),
    (HEAD + "pools: [{name: a, believe: [remediator]}]", {},
     ["peer", "kubelet", "remediator", "remediator", "remediator"]),
    (HEAD + "pools: [{name: a, believe: [], cloud: {ec2: {region: eu-west-1}}}]", {},
     ["peer", "cloud", "kubelet"]),
])  # fmt: skip
async def test_the_sources_are_those_of_the_nodes_pool(
    text: str, labels: dict[str, str], expected: list[str]
) -> None:
    view = view_of(NODE._replace(labels=labels))
    edges = proof_edges(parse_outage("a.yaml", text.encode()), view, Clock(), Nobody())("n", "u", never)
    (reading,) = [each for each in edges if isinstance(each, SourcesEdge)]
    assert [each.source for each in reading._sources] == expected


CONTROLLERS = HEAD + (
    "pools:\n- name: a\n"
    "  redfish: {address: 'https://{node}.bmc.example',\n"
    "    system: 's-{node}', fingerprint: '" + ":".join(["aB"] * 32) + "', uuidOrder: swapped,\n"
    "    usernameFile: /u, passwordFile: /p}\n"
    "  ipmi: {addresses: {n-1: 'fd00::1'}, port: 624, usernameFile: /u, passwordFile: /p, cipherSuite: 3,\n"
    "    guidOrder: rfc}\n"
)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("n-1", [("redfish", "n-1.bmc.example"), ("ipmi", "[fd00::1]:624")]),
        ("n-3", [("redfish", "n-3.bmc.example")]),
    ],
)
def test_the_management_controllers_are_those_of_the_node(node: str, expected: list[tuple[str, str]]) -> None:
    """By name; without an address none is asked."""
    (pool,) = parse_outage("a.yaml", CONTROLLERS.encode()).pools
    assert [(each.source, each.name) for each in pool.machine_sources()(node)] == expected


async def test_the_machine_is_as_the_node_says_it_now() -> None:
    """A missing or recreated Node has no machine to ask."""
    assert machine_of(view_of(NODE), "n", "u") == Machine("n", "u", "b1", "uuid", "aws:///z/i-1")
    assert machine_of(view_of(NODE), "n", "v") is None
    assert machine_of(view_of(), "n", "u") is None
