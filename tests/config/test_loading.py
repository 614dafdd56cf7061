"""Configuration files to settings: kinds, merging, rules, sources, errors with a fix."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from urllib.parse import quote

import pytest

from ebbtide.actors.policy.grace_periods import effective_periods
from ebbtide.config import ConfigError, Loaded, load, parse
from ebbtide.config.loading import MISTAKES_MAX
from ebbtide.config.schema import NodeSection
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import Period, Settings
from tests.corpus_files import corpus, read_or_refused

OWN = "apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\n"
KUBELET = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def loaded(*texts: str) -> Loaded:
    return parse([(f"{number}.yaml", text.encode()) for number, text in enumerate(texts)])


def error(*texts: str) -> str:
    with pytest.raises(ConfigError) as raised:
        loaded(*texts)
    assert str(raised.value).isprintable()
    return str(raised.value)


def test_nothing_configured_means_the_defaults_and_switched_off() -> None:
    """No file, an empty one, or only comments."""
    assert loaded().settings == loaded("").settings == loaded("# none\n---\n").settings == Settings()
    assert set(loaded().sources.values()) == {"default"}
    assert loaded().config.drop_in_directory == "/run/systemd/logind.conf.d"
    assert loaded().config.journal_fallbacks == ("/run/ebbtide/journal",)


def test_every_field_arrives_with_its_source() -> None:
    """Lines count from the file's start, not the document's."""
    found = loaded(
        "# a comment\n---\n" + OWN + "shutdownGracePeriodByPodPriority:\n"
        "- {priority: 5, shutdownGracePeriodSeconds: 10}\n- {priority: -1}\n"
        "featureGates: {PodLifecycleSleepAction: false, GracefulNodeShutdown: true}\n"
        "budget: elastic\nreserve: 7s\nraiseGrant: false\nstatusFlush: 1m\n"
        "dropInDirectory: /etc/systemd/logind.conf.d\njournalFallbacks: [/a, /b]\njournalBytesMax: 2097152\n"
    )
    assert found.settings == Settings(
        by_pod_priority=(Period(priority=5, seconds=10), Period(priority=-1, seconds=0)),
        gates={"PodLifecycleSleepAction": False},
        budget="elastic",
        reserve_seconds=7,
        raise_grant=False,
        status_flush_seconds=60,
    )
    assert found.config.journal_fallbacks == ("/a", "/b")
    assert (found.config.drop_in_directory, found.config.journal_bytes_max) == (
        "/etc/systemd/logind.conf.d",
        2097152,
    )
    assert found.sources["shutdownGracePeriodByPodPriority"] == "0.yaml:5"
    assert found.sources["featureGates.PodLifecycleSleepAction"] == "0.yaml:8"
    assert found.sources["shutdownGracePeriod"] == "default"


def test_later_files_win_field_by_field_and_gate_by_gate() -> None:
    """An empty field removes no value."""
    found = loaded(
        KUBELET + "shutdownGracePeriod: 60s\nshutdownGracePeriodCriticalPods: 20s\n"
        "featureGates: {GracefulNodeShutdownBasedOnPodPriority: false, PodLifecycleSleepAction: false}\n",
        OWN + "shutdownGracePeriod: 90s\nshutdownGracePeriodCriticalPods:\n"
        "featureGates: {PodLifecycleSleepAction: true}\n",
    )
    assert found.settings.shutdown_grace_period_ns == 90 * NS_PER_SECOND
    assert found.settings.shutdown_grace_period_critical_pods_ns == 20 * NS_PER_SECOND
    assert found.settings.gates == {"GracefulNodeShutdownBasedOnPodPriority": False}
    assert found.sources["shutdownGracePeriod"] == "1.yaml:3"
    assert found.sources["shutdownGracePeriodCriticalPods"] == "0.yaml:4"


def test_a_whole_kubelet_configuration_can_be_named_as_it_is() -> None:
    """Its other fields and gates are ignored, even with our names."""
    found = loaded(
        KUBELET + "address: 0.0.0.0\nevictionHard: {a: .nan}\nbudget: 3\nreserve: [x]\n"
        "featureGates: {Unheard: maybe, GracefulNodeShutdown: true}\nshutdownGracePeriod: 30s\n"
    )
    assert found.settings == Settings(shutdown_grace_period_ns=30 * NS_PER_SECOND)


@pytest.mark.parametrize(
    "gates, off",
    [
        ("AllBeta: false", ["GracefulNodeShutdown", "GracefulNodeShutdownBasedOnPodPriority"]),
        ("AllBeta: false, GracefulNodeShutdown: true", ["GracefulNodeShutdownBasedOnPodPriority"]),
        ("AllBeta: true", []),
    ],
)
def test_the_kubelets_switch_for_all_beta_gates_counts(gates: str, off: list[str]) -> None:
    """For gates that no file sets."""
    assert loaded(KUBELET + f"featureGates: {{{gates}}}").settings.gates == dict.fromkeys(off, False)


@pytest.mark.parametrize("fields, line, message", [
    ("shutdownGracePeriod: 1s\nshutdownGracePeriodCriticalPods: 2s", 4,
     "shutdownGracePeriodCriticalPods {2s} must be <= shutdownGracePeriod {1s}"),
    ("shutdownGracePeriod: 1ms", 3,
     "shutdownGracePeriod {1ms} must be either zero or otherwise >= 1 sec"),
    ("shutdownGracePeriod: -1s", 3,
     "shutdownGracePeriod {-1s} must be either zero or otherwise >= 1 sec"),
    ("shutdownGracePeriod: 2s\nshutdownGracePeriodCriticalPods: 1ms", 4,
     "shutdownGracePeriodCriticalPods {1ms} must be either zero or otherwise >= 1 sec"),
    ("shutdownGracePeriod: 2s\nshutdownGracePeriodCriticalPods: -1s", 4,
     "shutdownGracePeriodCriticalPods {-1s} must be either zero or otherwise >= 1 sec"),
    ("shutdownGracePeriod: 30s\nfeatureGates: {GracefulNodeShutdown: false}", 4,
     "specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires feature gate "
     "GracefulNodeShutdown"),
    ("shutdownGracePeriod: 30s\nshutdownGracePeriodByPodPriority: [{priority: 1}]", 4,
     "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time"),
    ("shutdownGracePeriodByPodPriority: [{priority: 1}]\n"
     "featureGates: {GracefulNodeShutdownBasedOnPodPriority: false}", 4,
     "Specifying shutdownGracePeriodByPodPriority requires feature gate "
     "GracefulNodeShutdownBasedOnPodPriority"),
])  # fmt: skip
@pytest.mark.parametrize("kind", [OWN, KUBELET], ids=["own", "kubelet"])
def test_the_kubelets_rules_in_the_kubelets_words(kind: str, fields: str, line: int, message: str) -> None:
    found = error(kind + fields)
    assert found.startswith(f"0.yaml:{line}: invalid configuration: ")
    assert f"invalid configuration: {message}" in found


@pytest.mark.parametrize(
    "fields", ["shutdownGracePeriodByPodPriority: [{priority: 1}]", "shutdownGracePeriod: -1ms"]
)
def test_with_the_gate_off_its_rules_are_off(fields: str) -> None:
    """The kubelet takes a list, and negative periods; the feature is off."""
    found = loaded(OWN + fields + "\nfeatureGates: {GracefulNodeShutdown: false}").settings
    assert (found.gates, effective_periods(found)) == ({"GracefulNodeShutdown": False}, ())


@pytest.mark.parametrize("text, message", [
    ("shutdwonGracePeriod: 30s", "unknown field 'shutdwonGracePeriod': did you mean shutdownGracePeriod?"),
    ("RESERVE: 1s", "unknown field 'RESERVE': did you mean reserve?"),
    ("featureGates: {GracefulNodeShutdwn: true}",
     "unknown field 'GracefulNodeShutdwn' in featureGates: did you mean GracefulNodeShutdown?"),
    ("shutdownGracePeriodByPodPriority: [{priority: 1, seconds: 2}]",
     "unknown field 'seconds' in shutdownGracePeriodByPodPriority[0]: "
     "did you mean shutdownGracePeriodSeconds?"),
    ("shutdownGracePeriod: 30", "shutdownGracePeriod is 30: it must be a duration such as 30s or 1m30s"),
    ("shutdownGracePeriod: .nan", "shutdownGracePeriod is nan: it must be a duration such as 30s or 1m30s"),
    ("raiseGrant: 1", "raiseGrant is 1: it must be true or false"),
    ("budget: lax", "budget is 'lax': it must be strict or elastic"),
    ("budget: true", "budget is true: it must be strict or elastic"),
    ("reserve: 1500ms",
     "reserve is '1500ms': it must be a duration such as 30s or 1m30s, whole seconds, from 0s to 1h0m0s"),
    ("dropInDirectory: run",
     "dropInDirectory is 'run': it must be one of logind's folders, an absolute path"),
    # A drop-in elsewhere has no effect.
    ("dropInDirectory: /foo", "dropInDirectory is '/foo': logind reads only /etc/systemd/logind.conf.d, "),
    ("journalBytesMax: 5", "journalBytesMax is 5: it must be a whole number from 1048576 to 1099511627776"),
    ("journalFallbacks: /a", "journalFallbacks is '/a': it must be a list"),
    ("featureGates: [a]", "featureGates is a list: it must be a mapping"),
    *((f"shutdownGracePeriodByPodPriority: [{{priority: {number}}}]",
       "shutdownGracePeriodByPodPriority[0].priority is ")
      for number in ("2147483648", "-2147483649", ".inf", "1.5", "true", "'1'", "~x", "[1]")),
    # The kubelet lets seconds overflow.
    *((f"shutdownGracePeriodByPodPriority: [{{shutdownGracePeriodSeconds: {number}}}]",
       "shutdownGracePeriodByPodPriority[0].shutdownGracePeriodSeconds is ")
      for number in ("-1", "9223372037", "9223372036854775808", ".nan")),
    ("node: {kubeletunit: x.service}", "unknown field 'kubeletunit' in node: did you mean kubeletUnit?"),
    ("node: {means: {power-off: api}}", "unknown field 'power-off' in node.means: did you mean poweroff?"),
    ("node: {means: {reboot: observe}}", "node.means.reboot is 'observe': it must be api or cri"),
    ("node: {means: api}", "node.means is 'api': it must be a mapping"),
    ("node: {unready: sometimes}", "node.unready is 'sometimes': it must be poweroff or always or never"),
    ("node: {leftPods: true}", "node.leftPods is true: it must be keep or delete"),
    ("node: {kubeletUnit: kubelet}", "node.kubeletUnit is 'kubelet': it must be a service unit"),
    ('node: {kubeletUnit: "a b.service"}', "node.kubeletUnit is 'a b.service': it must be a service unit"),
    ("node: {kubeconfig: kubelet.conf}",
     "node.kubeconfig is 'kubelet.conf': it must be an absolute path, or in"),
    ("node: {nodeName: Node-1}",
     "node.nodeName is 'Node-1': it must be a Node's name in the API: lower-case letters, digits, "
     "'-' and '.', in quotes"),
    ("node: {nodeName: a..b}", "node.nodeName is 'a..b': it must be"),
    (f"node: {{nodeName: {'a' * 254}}}", "node.nodeName is 'aaa"),
    ("node: {criSocket: 'tcp://127.0.0.1:1'}",
     "node.criSocket is 'tcp://127.0.0.1:1': it must be an absolute path"),
    ("node: {kubeletRoot: var/lib}", "node.kubeletRoot is 'var/lib': it must be an absolute path"),
], ids=lambda value: value[:40].replace(" ", "-"))  # fmt: skip
def test_a_wrong_field_is_named_with_its_line_and_its_cure(text: str, message: str) -> None:
    assert error(f"{OWN}# this:\n{text}\n").startswith(f"0.yaml:4: {message}")


@pytest.mark.parametrize("text, message", [
    (KUBELET + "featureGates: {GracefulNodeShutdown: 1}",
     "0.yaml:3: featureGates.GracefulNodeShutdown is 1: it must be true or false"),
    ("- a", "0.yaml:1: the document is a list: it must be a mapping"),
    ("kind: Pod",
     "0.yaml:1: kind is 'Pod': it must be EbbtideConfiguration "
     "(apiVersion ebbtide/v1alpha1) or KubeletConfiguration, alone or inside another document"),
    ("shutdownGracePeriod: 1s\nreserve: 1s",
     "0.yaml:1: kind is missing: it must be EbbtideConfiguration "
     "(apiVersion ebbtide/v1alpha1) or KubeletConfiguration, alone or inside another document"),
    ("kind: KubeletConfiguration\napiVersion: v1",
     "0.yaml:2: apiVersion of KubeletConfiguration is 'v1': it must be kubelet.config.k8s.io/v1beta1"),
])  # fmt: skip
def test_a_wrong_document_is_named_with_its_line_and_its_cure(text: str, message: str) -> None:
    assert error(text) == message


# --- the kubelet's file, as the kubelet reads it


def codes(found: Loaded) -> list[str]:
    return [code for code, _ in found.notes]


@pytest.mark.parametrize("fields, seconds, code", [
    ("shutdownGracePeriod: 10s\nshutdownGracePeriod: 30s", {0: 30}, "kubelet-lenient"),
    ("kind: KubeletConfiguration\nshutdownGracePeriod: 30s", {0: 30}, "kubelet-lenient"),
    ("shutdownGracePeriodByPodPriority: [{priority: 1, seconds: 9, shutdownGracePeriodSeconds: 5}]", {1: 5},
     "kubelet-lenient"),
    ("shutdownGracePeriod: 30s\nShutdownGracePeriod: 9s", {0: 30}, "kubelet-lenient"),
    ("shutdownGracePeriod: 30s\nshutdownGracePeriodSeconds: 9", {0: 30}, "kubelet-lenient"),
    ("shutdownGracePeriod: 30s\nfeatureGates: {GracefulNodeShutDown: false}", {0: 30}, "kubelet-gates"),
    ("shutdownGracePeriodByPodPriority: [{priority: 1.0, shutdownGracePeriodSeconds: 1E3}]", {1: 1000}, ""),
    ("shutdownGracePeriodByPodPriority: [{priority: , shutdownGracePeriodSeconds: 5}]", {0: 5}, ""),
    ("shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 5}, ]\nx: ~", {1: 5}, ""),
    ("shutdownGracePeriodByPodPriority:\n- {priority: 7, shutdownGracePeriodSeconds: 5}\n-\n",
     {7: 5, 0: 0}, ""),
    ("shutdownGracePeriod: 30s\n---\n" + KUBELET + "shutdownGracePeriod: 60s", {0: 30}, "kubelet-first"),
    ("shutdownGracePeriod: 30s\n---\nkind: ClusterConfiguration", {0: 30}, "kubelet-first"),
    ("shutdownGracePeriod: 30s\n---\nfoo", {0: 30}, "kubelet-first"),
    ("shutdownGracePeriod: 30s\n---\n{ not yaml", {0: 30}, "kubelet-first"),
    ("shutdownGracePeriod: !x 30s", {0: 30}, ""),
    ("shutdownGracePeriod: 30s\n...\nx: y", {0: 30}, "kubelet-first"),
    ("shutdownGracePeriod: 30s\nfeatureGates: {GracefulNodeShutdownBasedOnPodPriority: n}", {0: 30}, ""),
])  # fmt: skip
def test_what_the_kubelet_takes_is_taken(fields: str, seconds: dict[int, int], code: str) -> None:
    """Compared with the decoder of a kubelet of v1.37; a note says where it is lenient."""
    found = loaded(KUBELET + fields)
    waves = {each.priority: each.seconds for each in found.settings.by_pod_priority}
    assert (waves or {0: found.settings.shutdown_grace_period_ns // NS_PER_SECOND}) == seconds
    assert codes(found) == [code] * bool(code)


@pytest.mark.parametrize("gates, off, noted", [
    ("{GracefulNodeShutdownBasedOnPodPriority: }", ["GracefulNodeShutdownBasedOnPodPriority"], False),
    ("{AllBeta: }", ["GracefulNodeShutdown", "GracefulNodeShutdownBasedOnPodPriority"], False),
    ("{GracefulNodeShutdown: N}", ["GracefulNodeShutdown"], True),
    ("{PodLifecycleSleepAction: false}", ["PodLifecycleSleepAction"], True),
    ("{PodLifecycleSleepActionAllowZero: }", ["PodLifecycleSleepActionAllowZero"], True),
    ("{PodLifecycleSleepAction: true}", [], False),
    ("{GracefulNodeShutdown: false, WindowsGracefulNodeShutdown: false, "
     "GracefulNodeShutdownBasedOnPodPriority: false}",
     ["GracefulNodeShutdown", "GracefulNodeShutdownBasedOnPodPriority"], False),
])  # fmt: skip
def test_gates_as_the_kubelet_reads_them(gates: str, off: list[str], noted: bool) -> None:
    """An empty one is off. Newer kubelets do not start where a gate needs one that is off, or is locked."""
    found = loaded(KUBELET + f"featureGates: {gates}")
    assert found.settings.gates == dict.fromkeys(off, False)
    assert codes(found) == ["kubelet-gates"] * noted


@pytest.mark.parametrize("fields, message", [
    ("shutdownGracePeriod:", "shutdownGracePeriod has no value: the kubelet does not start with an empty"),
    ("shutdownGracePeriod: ''", "shutdownGracePeriod is '': it must be a duration"),
    ("shutdownGracePeriodByPodPriority: [{priority: 1.5}]",
     "shutdownGracePeriodByPodPriority[0].priority is 1.5"),
    ("shutdownGracePeriodByPodPriority: [{shutdownGracePeriodSeconds: -1}]",
     "shutdownGracePeriodByPodPriority[0].shutdownGracePeriodSeconds is -1: it must be a whole number from 0 "
     "to 9223372036; the kubelet counts other whole numbers wrong"),
    ("shutdownGracePeriod: !!binary MzBz", "!!binary is not read here: write the text; the kubelet takes it"),
    (f"shutdownGracePeriodByPodPriority: [{'{},' * 300}]",
     "shutdownGracePeriodByPodPriority has 300 entries: at most 256 can be used; the kubelet takes it"),
])  # fmt: skip
def test_a_stricter_line_says_that_the_kubelet_takes_it(fields: str, message: str) -> None:
    assert error(KUBELET + fields).startswith(f"0.yaml:3: {message}")


def test_a_relative_static_pod_path_belongs_to_the_files_folder(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(KUBELET + "staticPodPath: manifests/\n")
    assert load([file]).config.node.static_pod_path == str(tmp_path / "manifests")
    file.write_text(f"kubelet: {{staticPodPath: manifests}}\n{KUBELET}".split("apiVersion")[0])
    assert load([file]).config.node.static_pod_path == "/var/lib/kubelet/manifests"


PERIOD = "shutdownGracePeriod: 30s"
INDENTED = KUBELET.replace("\n", "\n    ") + PERIOD
NEWLINE = "\n"
USER_DATA = f"""MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

kind: NodeConfig
spec:
  kubelet:
    config:
      {PERIOD}

--//
Content-Type: text/x-shellscript

#!/bin/sh
--//--
"""


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize("text, source", [
    (f"kind: ConfigMap\nmetadata: {{name: k}}\ndata:\n  kubelet: |\n    {INDENTED}\n",
     "0.yaml:7 (data.kubelet of ConfigMap k)"),
    (f"kind: ConfigMap\ndata:\n  kubelet: {json.dumps(KUBELET + PERIOD)}\n",
     "0.yaml:3 (data.kubelet of ConfigMap)"),
    (f"kind: NodeConfig\nspec:\n  kubelet:\n    config:\n      {PERIOD}\n",
     "0.yaml:5 (spec.kubelet.config of NodeConfig)"),
    (f"kind: KubeletConfig\nspec:\n  kubeletConfig:\n    {PERIOD}\n",
     "0.yaml:4 (spec.kubeletConfig of KubeletConfig)"),
    (f"kind: EC2NodeClass\nspec:\n  kubelet:\n    {PERIOD}\n", "0.yaml:4 (spec.kubelet of EC2NodeClass)"),
    (f"machine:\n  kubelet: {{extraConfig: {{{PERIOD}}}}}\n", "0.yaml:2 (machine.kubelet.extraConfig)"),
    (f"kind: ClusterConfig\nnodeGroups:\n- kubeletExtraConfig:\n    {PERIOD}\n",
     "0.yaml:4 (nodeGroups[0].kubeletExtraConfig of ClusterConfig)"),
    (f"kind: ClusterConfiguration\n---\n{KUBELET}{PERIOD}\n", "0.yaml:5"),
    (json.dumps({"kubeletconfig": {"shutdownGracePeriod": "30s"}}), "0.yaml:1 (kubeletconfig)"),
    (f"kind: List\nitems:\n- {INDENTED.replace('    ', '  ')}\n", "0.yaml:5 (items[0] of List)"),
    (PERIOD, "0.yaml:1 (a document without a kind)"),
    (f"kind: MachineConfig\nfiles: [{{contents: {{source: 'data:,{quote(KUBELET + PERIOD)}'}}}}]\n",
     "0.yaml:2 (files[0].contents.source of MachineConfig)"),
    (f"kind: MachineConfig\nsource: data:;base64,{packed(gzip.compress(KUBELET.encode() + PERIOD.encode()))}",
     "0.yaml:2 (source of MachineConfig)"),
    (f"kind: Secret\ndata: {{userData: {packed(USER_DATA.encode())}}}\n",
     "0.yaml:2 (data.userData.spec.kubelet.config of Secret)"),
    (f"kind: EC2NodeClass\nuserData: |\n  {USER_DATA.replace(NEWLINE, NEWLINE + '  ')}\n",
     "0.yaml:13 (userData.spec.kubelet.config of EC2NodeClass)"),
    (USER_DATA, "0.yaml:11 (spec.kubelet.config of NodeConfig)"),
])  # fmt: skip
def test_a_kubelets_configuration_inside_another_document_is_found_and_named(text: str, source: str) -> None:
    found = loaded(text)
    assert found.settings.shutdown_grace_period_ns == 30 * NS_PER_SECOND
    assert found.sources["shutdownGracePeriod"] == source
    inside = source.partition("(")[2].rstrip(")") or "only this document counts, not ClusterConfiguration"
    assert [message.endswith(inside) for _, message in found.notes] == [True]


def test_what_cannot_be_unpacked_is_named_or_passed_over() -> None:
    """A compressed text is read up to a bound, and whole. User data may have no kubelet's configuration."""
    bomb, good = (gzip.compress(f"{KUBELET}{PERIOD}{more}".encode()) for more in (NEWLINE * 2**24, ""))
    for data in (bomb, good[:-1], good + good):
        assert "must be Ebbtide" in error(f"kind: MachineConfig\nsource: data:;base64,{packed(data)}\n")
    assert error(USER_DATA.replace("application/", "text/")) == (
        "0.yaml:1: user data (MIME) without a part of type application/node.eks.aws or text/cloud-config"
    )


def test_a_mistake_inside_a_text_has_the_files_line() -> None:
    text = f"kind: ConfigMap\ndata:\n  kubelet: |\n    {INDENTED}\n"
    assert error(text + "    featureGates: {A: [}\n").startswith("0.yaml:7: data.kubelet: not YAML: ")
    assert error(text + "    featureGates: 5\n") == "0.yaml:7: featureGates is 5: it must be a mapping"
    (found, lenient) = loaded(f"{text}    {PERIOD}\n").notes
    assert (found[0], lenient[0]) == ("kubelet-found", "kubelet-lenient")
    assert lenient[1].startswith("0.yaml:7: 'shutdownGracePeriod' occurs twice")


def test_of_several_inside_one_document_none_is_guessed() -> None:
    text = f"kind: ClusterConfig\nnodeGroups: [{{kubelet: {{{PERIOD}}}}}, {{kubelet: {{}}}}]"
    assert error(text) == (
        "0.yaml: several kubelet configurations: nodeGroups[0].kubelet (line 2), nodeGroups[1].kubelet (line "
        "2): name one in its own file"
    )
    schema = (
        f"kind: CustomResourceDefinition\nspec: {{properties: {{kubelet: {{type: object}}}}}}\n---\n{text}"
    )
    assert loaded(schema.replace(", {kubelet: {}}", "")).settings.shutdown_grace_period_ns


def test_files_are_read_from_disk(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(OWN + "reserve: 9s\n")
    assert load([file]).settings.reserve_seconds == 9
    assert load([file]).sources["reserve"] == f"{file}:3"
    with pytest.raises(
        ConfigError, match=r"no-such\.yaml: No such file or directory; name a readable file with --config"
    ):
        load([tmp_path / "no-such.yaml"])
    with pytest.raises(ConfigError, match="null"):
        load(["a\0b"])


# --- the section of a Kubernetes node

EVERYTHING = """\
node:
  means: {poweroff: cri, soft-reboot: api}
  unready: never
  leftPods: delete
  kubeletUnit: snap.kubelet.daemon.service
  kubeletRoot: /var/lib/k0s/kubelet
  kubeconfig: /etc/ebbtide/who
  nodeName: node-1.example.org
  criSocket: unix:///run/crio/crio.sock
  staticPodPath: /srv/static
"""


def test_every_field_of_the_section_arrives() -> None:
    """Decision fields go to the core, places to the edges."""
    found = loaded(OWN + EVERYTHING)
    assert found.settings.means == {"poweroff": "cri", "soft-reboot": "api"}
    assert (found.settings.unready, found.settings.left_pods) == ("never", "delete")
    assert found.config.node == NodeSection(
        means={"poweroff": "cri", "soft-reboot": "api"},
        unready="never",
        left_pods="delete",
        kubelet_unit="snap.kubelet.daemon.service",
        kubelet_root="/var/lib/k0s/kubelet",
        kubeconfig="/etc/ebbtide/who",
        node_name="node-1.example.org",
        cri_socket="/run/crio/crio.sock",
        static_pod_path="/srv/static",
    )


@pytest.mark.parametrize("texts, path, source", [
    ([KUBELET + "staticPodPath: /srv/static\n"], "/srv/static", "0.yaml:3"),
    ([KUBELET + 'staticPodPath: ""\n'], None, "default"),
    ([KUBELET + "node: {kubeconfig: 5}\n"], None, "default"),
    ([OWN + "node: {staticPodPath: /srv/other}\n", KUBELET + "staticPodPath: /srv/static\n"],
     "/srv/static", "1.yaml:3"),
    ([KUBELET + "staticPodPath: /srv/static\n", OWN + "node: {staticPodPath: /srv/other}\n"],
     "/srv/other", "1.yaml:3"),
], ids=["kubelets", "none", "passed-over", "kubelets-later", "ours-later"])  # fmt: skip
def test_the_folder_of_static_pods_is_also_read_from_the_kubelets_own_document(
    texts: list[str], path: str | None, source: str
) -> None:
    """There it has no section; a kubelet without such a folder writes an empty text."""
    found = loaded(*texts)
    assert (found.config.node.static_pod_path, found.sources["node.staticPodPath"]) == (path, source)


def test_all_mistakes_of_all_files_are_told_at_once() -> None:
    """One line each with its place; a rule only if its fields are readable."""
    first = (
        OWN
        + """\
budget: lax
reserve: 3
x-defaults: {a: 1}
shutdownGracePeriodByPodPriority: [{priority: a, prio: 3}, {shutdownGracePeriodSeconds: -1}]
featureGates: {GracefulShutdown: true, PodLifecycleSleepAction: 3}
node: {means: {halt: x}, unredy: 3}
"""
    )
    with pytest.raises(ConfigError) as refused:
        parse([("a.yaml", first.encode()), ("b.yaml", b"kind: [\n"), ("c.yaml", b"kind: Other\n")])
    assert refused.value.mistakes == (
        "a.yaml:3: budget is 'lax': it must be strict or elastic",
        "a.yaml:4: reserve is 3: it must be a duration such as 30s or 1m30s, whole seconds, from 0s to "
        "1h0m0s",
        "a.yaml:5: unknown field 'x-defaults': fields of your own (x-…) are not taken, put the anchor where "
        "its value is used first",
        "a.yaml:6: shutdownGracePeriodByPodPriority[0].priority is 'a': it must be a whole number from "
        "-2147483648 to 2147483647",
        "a.yaml:6: unknown field 'prio' in shutdownGracePeriodByPodPriority[0]: did you mean priority?",
        "a.yaml:6: shutdownGracePeriodByPodPriority[1].shutdownGracePeriodSeconds is -1: it must be a whole "
        "number from 0 to 9223372036",
        "a.yaml:7: unknown field 'GracefulShutdown' in featureGates: did you mean GracefulNodeShutdown?",
        "a.yaml:7: featureGates.PodLifecycleSleepAction is 3: it must be true or false",
        "a.yaml:8: node.means.halt is 'x': it must be api or cri",
        "a.yaml:8: unknown field 'unredy' in node: did you mean unready?",
        "b.yaml:1: not YAML: did not find expected node content",
        "c.yaml:1: kind is 'Other': it must be EbbtideConfiguration (apiVersion ebbtide/v1alpha1) or "
        "KubeletConfiguration, alone or inside another document",
    )
    assert str(refused.value) == "; ".join(refused.value.mistakes)


def test_of_a_file_that_is_none_the_first_mistakes_are_told() -> None:
    with pytest.raises(ConfigError) as refused:
        parse([("a.yaml", (OWN + "\n" + "".join(f"no{each}: 1\n" for each in range(30))).encode())])
    assert len(refused.value.mistakes) == MISTAKES_MAX + 1
    assert refused.value.mistakes[-1] == "and 10 more"


def test_each_file_of_the_corpus_is_loaded_or_refused_in_one_line() -> None:
    read_or_refused(corpus("config"), lambda path: load([path]), ConfigError, MISTAKES_MAX)
