"""The Helm chart in both major Helm versions, by itself and as a release on a real API server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

from ebbtide import __version__
from ebbtide.config.fields import fields_of
from ebbtide.config.loading import FIELDS
from ebbtide.outage.configuration import OutageConfiguration, parse_outage
from tests.beds.skipping import or_skip
from tests.deploy.chart import CHART, KEPT, NAMESPACE, objects, run, template, values_of, written
from tests.deploy.programs import HELMS, definition, helm
from tests.deploy.rendering import ROOT, Object, place, rendered
from tests.deploy.test_manifests import CHECKED, gone, key_by_name, made
from tests.node.bed import Bed
from tests.node.client import Refused
from tests.node.ebbtide import PROGRAM
from tests.waiting import until

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
PROJECT = ROOT.parents[1]
#: Matches no node: no pod starts, and a DaemonSet's rollout ends at once.
NOWHERE = {"example.com/no": "node"}
#: Come and go by themselves.
VOLATILE = ("events", "leases")

#: Disables the daemons in either form of periods. --reuse-values ignores a null, --set has no empty list, and
#: periods are invalid without the gate.
OFF = (
    'node.config.shutdownGracePeriod="0s",node.config.shutdownGracePeriodCriticalPods="0s",'
    "node.config.shutdownGracePeriodByPodPriority=[]"
)

of_each_helm = pytest.mark.parametrize("major", HELMS)

#: Every value differs from its default; otherwise it would be untested.
ALL: Object = {
    "image": {
        "repository": "registry.example/ebbtide",
        "tag": "other",
        "digest": f"sha256:{'0' * 64}",
        "pullPolicy": "Always",
    },
    "imagePullSecrets": [{"name": "registry"}],
    "node": {
        "enabled": True,
        "config": {
            "shutdownGracePeriod": None,
            "shutdownGracePeriodCriticalPods": None,
            "metricsListen": "0.0.0.0:9464",
            "shutdownGracePeriodByPodPriority": [
                {"priority": 0, "shutdownGracePeriodSeconds": 60},
                {"priority": 2_000_000_000, "shutdownGracePeriodSeconds": 20},
            ],
        },
        "restartOnChange": False,
        "identity": "kubelet",
        "kubeletKubeconfig": "/var/lib/kubelet/kubeconfig",
        "criSocket": "/run/crio/crio.sock",
        "maxUnavailable": 1,
        "terminationGracePeriodSeconds": 600,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "kind", "operator": "Exists"}]}],
        }}},
    },
    "outage": {
        "enabled": True,
        "config": {
            "dryRun": False,
            "pools": [{"name": "all", "believe": ["certificate", "declared", "remediator"]}],
        },
        "restartOnChange": False,
        "replicas": 3,
        "metricsFrom": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}],
        "remediators": True,
        "bmcSecret": "controllers",
        "managementSecret": "capi",
    },
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "30s"},
    "rules": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboard": {"enabled": True, "labels": {"grafana": "yes"}, "annotations": {"folder": "Nodes"}},
    "global": {"of": "another chart"},
}  # fmt: skip
OF_BOTH = {
    "priorityClassName": "high",
    "nodeSelector": NOWHERE,
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "resources": {"limits": {"memory": "512Mi"}},
    "podLabels": {"team": "nodes"},
    "podAnnotations": {"example.com/note": "true"},
    "extraEnv": [{"name": "OTEL_SERVICE_NAME", "value": "ebbtide"}],
    "extraVolumes": [{"name": "authority", "configMap": {"name": "authority"}}],
    "extraVolumeMounts": [{"name": "authority", "mountPath": "/authority", "readOnly": True}],
}
for part in ("node", "outage"):
    ALL[part] |= OF_BOTH

#: The file of values on the page.
EXAMPLE = yaml.safe_load(
    (PROJECT / "docs" / "deployment.md")
    .read_text()
    .split("<!-- values-example -->\n```yaml\n")[1]
    .split("```")[0]
)
ALL["node"]["extraArgs"], ALL["outage"]["extraArgs"] = ["--node-name=n"], ["--dry-run"]


def leaves(schema: Object, path: str = "") -> Iterator[tuple[str, Object]]:
    """Each value that can be set, by its path."""
    for name, each in schema["properties"].items():
        if "properties" in each and "propertyNames" not in each:
            yield from leaves(each, f"{path}{name}.")
        else:
            yield f"{path}{name}", each


def at(values: Object, path: str) -> Any:
    found: Any = values
    for name in path.split("."):
        found = found[name]
    return found


# --- without Helm


def test_every_value_has_a_type_a_sentence_and_a_default() -> None:
    explained = set(re.findall(r"#.*[.:…]\n *(\w+):", (CHART / "values.yaml").read_text()))
    for path, schema in leaves(SCHEMA):
        assert {"type", "enum"} & schema.keys(), path
        assert path == "global" or path.split(".")[-1] in explained, path
        if path not in ("global", "node.enabled"):
            assert at(ALL, path) != at(DEFAULTS, path), path


def test_nothing_has_a_default_that_the_schema_does_not_know() -> None:
    def closed(schema: Object) -> bool:
        inner = [each for each in schema["properties"].values() if "properties" in each]
        return schema.get("additionalProperties") is False and all(
            closed(each) for each in inner if "propertyNames" not in each
        )

    assert closed(SCHEMA)
    for name, values in DEFAULTS.items():
        known = SCHEMA["properties"][name].get("properties", {})
        assert set(values) <= set(known)


def test_a_configuration_has_the_fields_that_there_are() -> None:
    head = ["apiVersion", "kind"]
    node, outage = (SCHEMA["properties"][part]["properties"]["config"] for part in ("node", "outage"))
    assert node["propertyNames"]["enum"] == [*head, *FIELDS]
    assert outage["propertyNames"]["enum"] == [
        *head,
        *(each for each in fields_of(OutageConfiguration) if each != "namespace"),
    ]


def test_it_is_released_with_the_project() -> None:
    said = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (said["version"], said["appVersion"]) == (__version__, __version__)


# --- rendered by Helm


@pytest.fixture(autouse=True)
def _helm(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("node") is not None:
        with or_skip():
            for major in HELMS:
                helm(major)


@pytest.mark.node
@pytest.mark.parametrize("name", ["daemonset", "node-identity", "outage"])
@of_each_helm
def test_the_kustomizations_are_what_the_chart_renders(name: str, major: int) -> None:
    """Object by object, and setting by setting. The namespace is the release's."""
    theirs = key_by_name(rendered(name))
    if name == "outage":
        theirs |= key_by_name(rendered("outage/remediators"))
    ours = key_by_name(objects(template(values_of(name), major=major)))
    assert [theirs.pop(key)["kind"] for key in sorted(theirs) if key[0] == "Namespace"] == ["Namespace"]
    for each in (*ours.values(), *theirs.values()):
        if each["kind"] == "ConfigMap":
            each["data"] = {key: yaml.safe_load(text) for key, text in each["data"].items()}
    assert ours == theirs


@pytest.mark.node
def test_the_kept_files_are_current() -> None:
    assert {path: (ROOT / path).read_text() for path in written()} == written()


@pytest.mark.node
@of_each_helm
def test_the_linter_has_nothing_to_say(major: int, tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump(ALL))
    for words in (("--set", "image.repository=ebbtide"), ("-f", path)):
        said = run(major, "lint", "--strict", CHART, *words)
        assert "1 chart(s) linted, 0 chart(s) failed" in said
        assert "[WARNING]" not in said


BY_PRIORITY = {
    "config": {
        "shutdownGracePeriod": None,
        "shutdownGracePeriodCriticalPods": None,
        "shutdownGracePeriodByPodPriority": [
            {"priority": 2000000000, "shutdownGracePeriodSeconds": 100},
            {"priority": 0, "shutdownGracePeriodSeconds": 200},
        ],
    }
}


@pytest.mark.node
@of_each_helm
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"image": {"repository": ""}}, "name your own build of the image"),
        ({"image": {"repository": "ebbtide", "tag": "1.0, 2"}}, "/image/tag"),
        ({"node": {"enbaled": True}}, "enbaled"),
        ({"node": {"config": {"shutdownGracePeriode": "30s"}}}, "shutdownGracePeriode"),
        ({"node": {"config": {"kind": "KubeletConfiguration"}}}, "EbbtideConfiguration"),
        # Without it the daemons would silently be off.
        ({"node": {"config": None}}, "missing property 'config'"),
        ({"node": {"maxUnavailable": "0%"}}, "/node/maxUnavailable"),
        ({"node": {"criSocket": "/run/{a}, b/c.sock"}}, "/node/criSocket"),
        # The first would mount all sockets of the node; a file does not belong in our folder.
        ({"node": {"criSocket": "/run/crio.sock"}}, "/node/criSocket"),
        ({"node": {"kubeletKubeconfig": "/etc/ebbtide/kubelet.conf"}}, "/node/kubeletKubeconfig"),
        # The pod would be killed during an overtime.
        (
            {"node": {"config": {"shutdownGracePeriod": "4m56s"}}},
            "is 300: the periods and the reserve need 301",
        ),
        ({"node": {"config": {"reserve": "1h0.5s"}}}, "is 300: the periods and the reserve need 3661"),
        ({"node": BY_PRIORITY}, "is 300: the periods and the reserve need 305"),
        # The DaemonSet would not select its own pods.
        (
            {"node": {"podLabels": {"app.kubernetes.io/name": "mine"}}},
            "invalid propertyName 'app.kubernetes.io/name'",
        ),
        ({"outage": {"config": {"namespace": "other"}}}, "namespace"),
        ({"podMonitor": {"enabled": True}}, "set node.config.metricsListen"),
        # Other machines cannot reach the node's loopback.
        (
            {"podMonitor": {"enabled": True}, "node": {"config": {"metricsListen": "127.0.0.1:9464"}}},
            "set node.config.metricsListen",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_wrong_value_is_refused_by_name(major: int, wrong: Object, said: str, tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(KEPT | wrong))
    assert said in run(major, "template", "ebbtide", CHART, "-f", path, code=1)


@pytest.mark.node
def test_everything_follows_its_namespace() -> None:
    text = template(KEPT | {"outage": {"enabled": True, "remediators": True}}, "-n", "elsewhere")
    assert "namespace: ebbtide" not in text
    assert "serviceaccount:ebbtide:" not in text
    namespaces = {each["metadata"].get("namespace") for each in objects(text)}
    assert namespaces == {None, "elsewhere", "kube-node-lease"}


@pytest.mark.node
@of_each_helm
def test_a_server_without_the_policies_is_refused(major: int) -> None:
    """Without policies a stolen token could delete every pod of the cluster."""
    words = ("template", "ebbtide", CHART, "--set", "image.repository=ebbtide", "--kube-version")
    assert run(major, *words, "1.30.0")
    assert "kubeVersion" in run(major, *words, "1.29.9", code=1)


def checked(folder: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "config.yaml").write_text(text)
    argv = [sys.executable, "-c", PROGRAM, "config", "check", "--require-enabled", *words]
    return subprocess.run(
        [*argv, "--config", folder / "config.yaml"], cwd=PROJECT, capture_output=True, text=True
    )


@pytest.mark.node
@of_each_helm
@pytest.mark.parametrize("values", [KEPT, ALL, EXAMPLE], ids=["default", "all", "example"])
def test_its_configurations_are_valid(major: int, values: Object, tmp_path: Path) -> None:
    enabled = values | {"outage": values["outage"] | {"enabled": True}}
    found = {
        each["metadata"]["name"]: each["data"]["config.yaml"]
        for each in objects(template(enabled, major=major))
        if each["kind"] == "ConfigMap" and "config.yaml" in each["data"]
    }
    done = checked(tmp_path, found["ebbtide"], "--grant", "10m")
    assert done.returncode == 0, done.stdout + done.stderr
    controllers = parse_outage("config.yaml", found["ebbtide-outage"].encode())
    assert controllers.namespace == NAMESPACE


@pytest.mark.node
@pytest.mark.parametrize("values", [KEPT, EXAMPLE], ids=["default", "example"])
def test_what_switches_the_daemons_off_does(values: Object, tmp_path: Path) -> None:
    """The values of page and notes for an uninstall, with either form of periods."""
    page = (PROJECT / "docs" / "deployment.md").read_text()
    assert f"--set-json '{OFF}'\n" in page
    assert f"--set-json '{OFF}'\n" in (CHART / "templates" / "NOTES.txt").read_text()
    (said,) = [
        each["data"]["config.yaml"]
        for each in objects(template(values, "--set-json", OFF))
        if each["kind"] == "ConfigMap" and each["metadata"]["name"] == "ebbtide"
    ]
    done = checked(tmp_path, said)
    assert (done.returncode, "graceful shutdown is off" in done.stdout) == (1, True), done


@pytest.mark.node
def test_what_prometheus_operator_is_told_depends_on_the_cluster() -> None:
    """By default the objects exist if the cluster has their kinds and a port is open."""
    kinds = [f"--api-versions=monitoring.coreos.com/v1/{kind}" for kind in ("PodMonitor", "PrometheusRule")]
    listening = KEPT | {"node": {"config": {"metricsListen": "[::]:9464"}}, "outage": {"enabled": True}}

    def monitoring(values: Object, *words: str) -> list[tuple[str, str]]:
        found = key_by_name(objects(template(values, *words)))
        return sorted((kind, name) for kind, _, name in found if kind in ("PodMonitor", "PrometheusRule"))

    assert monitoring(listening) == []
    assert monitoring(KEPT, *kinds) == [("PrometheusRule", "ebbtide")]
    both = ("ebbtide", "ebbtide-outage")
    assert monitoring(listening, *kinds) == [
        (kind, name) for kind in ("PodMonitor", "PrometheusRule") for name in both
    ]


# --- on a real API server


@pytest.fixture
async def namespace(bed: Bed) -> AsyncIterator[str]:
    (wanted,) = rendered("namespace")
    await made(bed, wanted)
    yield NAMESPACE
    await bed.api.delete(f"{place(wanted)}/{NAMESPACE}")
    await gone(bed, wanted)


@pytest.fixture
async def monitored(bed: Bed) -> AsyncIterator[None]:
    """The Prometheus operator's kinds, by its own definitions."""
    plurals = ("podmonitors", "prometheusrules")
    with or_skip():
        wanted = [yaml.safe_load(definition(plural).read_text()) for plural in plurals]
    for each in wanted:
        await made(bed, each)
    for plural in plurals:
        await bed.api.until(f"/apis/monitoring.coreos.com/v1/{plural}", lambda found: "items" in found)
    # Helm's own requests, and all kinds of the cluster.
    await bed.api.until("/apis", served)
    yield
    for each in wanted:
        await bed.api.delete(f"{place(each)}/{each['metadata']['name']}")
        await gone(bed, each)
    await bed.api.until("/apis", lambda found: not served(found))


def served(found: Object) -> bool:
    return "monitoring.coreos.com" in [each["name"] for each in found["groups"]]


@pytest.mark.node
async def test_the_api_server_takes_every_object(bed: Bed, namespace: str, monitored: None) -> None:
    """A strict dry run of the objects with every value set, once per identity."""
    for changed in ({}, {"identity": "serviceAccount"}):
        values = ALL | {"node": ALL["node"] | changed}
        for each in objects(await trio.to_thread.run_sync(template, values)):
            taken = await bed.api.post(place(each) + CHECKED, each)
            assert taken["metadata"]["name"] == each["metadata"]["name"]
    # Strict: an unknown field is an error.
    with pytest.raises(Refused, match="unknown field"):
        await bed.api.post(place(each) + CHECKED, each | {"roles": []})


async def names(bed: Bed) -> set[tuple[str, str, str]]:
    """All objects in the cluster: resource, namespace and name."""
    found = await bed.api.get("/apis")
    groups = ["/api/v1", *(f"/apis/{each['preferredVersion']['groupVersion']}" for each in found["groups"])]
    kept = set()
    for group in groups:
        for resource in (await bed.api.get(group))["resources"]:
            if "list" in resource["verbs"] and resource["name"] not in VOLATILE:
                listed = await bed.api.get(f"{group}/{resource['name']}")
                kept |= {
                    (resource["name"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
                    for each in listed["items"]
                }
    return kept


@pytest.mark.node
@of_each_helm
async def test_a_releases_life(bed: Bed, namespace: str, monitored: None, tmp_path: Path, major: int) -> None:
    """Install as an earlier version, upgrade, roll back, uninstall: nothing remains in the cluster."""
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(KEPT | {part: {"nodeSelector": NOWHERE} for part in ("node", "outage")}))
    to_cluster = ("-n", namespace, "--kubeconfig", bed.kubeconfig)

    async def ask(*words: object) -> str:
        return await trio.to_thread.run_sync(partial(run, major, *words))

    async def daemon_set() -> Object:
        found: Object = await bed.api.get(f"/apis/apps/v1/namespaces/{namespace}/daemonsets/ebbtide")
        return found["spec"]["template"]

    async def setting(name: str) -> Any:
        found = await bed.api.get(f"/api/v1/namespaces/{namespace}/configmaps/ebbtide")
        return yaml.safe_load(found["data"]["config.yaml"])[name]

    before = await names(bed)
    await ask("package", CHART, "--version", "0.0.1", "--app-version", "0.0.1", "-d", tmp_path)
    package = tmp_path / "ebbtide-0.0.1.tgz"
    said = await ask("install", "ebbtide", package, "-f", values, "--wait", "--timeout", "1m", *to_cluster)
    assert f"kubectl -n {namespace} rollout status daemonset/ebbtide" in said
    # The namespace has the label.
    assert "kubectl label" not in said
    first = await daemon_set()
    assert first["spec"]["containers"][0]["image"] == "ebbtide:0.0.1"
    assert await setting("shutdownGracePeriod") == "60s"

    changed = "outage.enabled=true,node.config.shutdownGracePeriod=90s,node.config.metricsListen=0.0.0.0:9464"
    said = await ask("upgrade", "ebbtide", CHART, "-f", values, "--set", changed, *to_cluster)
    assert "outage.config.dryRun is on" in said
    second = await daemon_set()
    assert second["spec"]["containers"][0]["image"] == f"ebbtide:{__version__}"
    # A changed configuration rolls the pods out.
    assert second["metadata"]["annotations"] != first["metadata"]["annotations"]
    assert await setting("shutdownGracePeriod") == "90s"
    added = {(resource, name) for resource, _, name in await names(bed) - before}
    assert {
        ("deployments", "ebbtide-outage"),
        ("podmonitors", "ebbtide-outage"),
        ("prometheusrules", "ebbtide"),
    } < added

    await ask("rollback", "ebbtide", "1", *to_cluster)
    assert (await daemon_set(), await setting("shutdownGracePeriod")) == (first, "60s")
    history = json.loads(await ask("history", "ebbtide", "-o", "json", *to_cluster))
    assert [each["status"] for each in history] == ["superseded", "superseded", "deployed"]

    # As the page says, so that each daemon reverts its changes; from the other form of periods.
    values.write_text(yaml.safe_dump({"node": {"config": EXAMPLE["node"]["config"]}}))
    await ask("upgrade", "ebbtide", CHART, "--reuse-values", "-f", values, *to_cluster)
    assert len(await setting("shutdownGracePeriodByPodPriority")) == 2
    await ask("upgrade", "ebbtide", CHART, "--reuse-values", "--wait", "--set-json", OFF, *to_cluster)
    assert await setting("shutdownGracePeriod") == "0s"
    assert await setting("shutdownGracePeriodByPodPriority") == []
    await ask("uninstall", "ebbtide", "--wait", *to_cluster)

    async def as_before() -> bool:
        return not await names(bed) - before

    # A cluster controller removes dependents of removed objects.
    await until(as_before, "something is left")
