"""The section of a Kubernetes node, and the kubelet's folder of static pods."""

from __future__ import annotations

import pytest

from ebbtide.cli.config import configuration_json, configuration_yaml
from ebbtide.config import ConfigError, Loaded, parse
from ebbtide.config.schema import IN_CLUSTER, NodeSection

OWN = "apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\n"
KUBELET = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

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


def loaded(*texts: str) -> Loaded:
    return parse([(f"{number}.yaml", text.encode()) for number, text in enumerate(texts)])


def test_a_node_without_a_section_has_the_defaults() -> None:
    """Nothing is taken for given that can be found on the machine."""
    found = loaded(OWN)
    assert found.options.node == NodeSection()
    assert (found.options.node.kubelet_unit, found.options.node.kubeconfig) == (None, None)
    assert (found.settings.means, found.settings.unready, found.settings.left_pods) == (
        {},
        "poweroff",
        "keep",
    )


def test_every_field_of_the_section_arrives() -> None:
    """What is decided goes to the core, where things are to the edges."""
    found = loaded(OWN + EVERYTHING)
    assert found.settings.means == {"poweroff": "cri", "soft-reboot": "api"}
    assert (found.settings.unready, found.settings.left_pods) == ("never", "delete")
    assert found.options.node == NodeSection(
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


@pytest.mark.parametrize("text", ["", EVERYTHING, "node: {kubeconfig: in-cluster}\n"])
def test_what_is_shown_can_be_loaded_again(text: str) -> None:
    """And means the same."""
    once = loaded(OWN + text)
    again = loaded(configuration_yaml(once))
    assert again.config == once.config
    assert configuration_json(again)["values"] == configuration_json(once)["values"]


def test_later_files_win_field_by_field() -> None:
    """A section that says nothing takes nothing away, and each value has its own source."""
    found = loaded(
        OWN + "node:\n  unready: never\n  kubeconfig: /a\n",
        OWN + f"node:\n  kubeconfig: {IN_CLUSTER}\n",
        OWN + "node:\n",
    )
    assert found.options.node == NodeSection(unready="never", kubeconfig=IN_CLUSTER)
    assert (found.sources["node.unready"], found.sources["node.kubeconfig"]) == ("0.yaml:4", "1.yaml:4")
    assert found.sources["node.nodeName"] == "default"


@pytest.mark.parametrize(
    "texts, path, source",
    [
        ([KUBELET + "staticPodPath: /srv/static\n"], "/srv/static", "0.yaml:3"),
        ([KUBELET + 'staticPodPath: ""\n'], None, "default"),
        ([KUBELET + "node: {kubeconfig: 5}\n"], None, "default"),
        (
            [OWN + "node: {staticPodPath: /srv/other}\n", KUBELET + "staticPodPath: /srv/static\n"],
            "/srv/static",
            "1.yaml:3",
        ),
        (
            [KUBELET + "staticPodPath: /srv/static\n", OWN + "node: {staticPodPath: /srv/other}\n"],
            "/srv/other",
            "1.yaml:3",
        ),
    ],
    ids=["kubelets", "none", "passed-over", "kubelets-later", "ours-later"],
)
def test_the_folder_of_static_pods_is_also_read_from_the_kubelets_own_document(
    texts: list[str], path: str | None, source: str
) -> None:
    """There it stands without a section; a kubelet that has no such folder writes an empty text."""
    found = loaded(*texts)
    assert (found.options.node.static_pod_path, found.sources["node.staticPodPath"]) == (path, source)


@pytest.mark.parametrize(
    "fields, message",
    [
        ("kubeletunit: x.service", "unknown field 'kubeletunit' in node: did you mean kubeletUnit?"),
        ("means: {power-off: api}", "unknown field 'power-off' in node.means: did you mean poweroff?"),
        ("means: {reboot: observe}", "node.means.reboot is 'observe': it must be api or cri"),
        ("means: api", "node.means is 'api': it must be a mapping"),
        ("unready: sometimes", "node.unready is 'sometimes': it must be poweroff or always or never"),
        ("leftPods: true", "node.leftPods is true: it must be a word; put it in quotes"),
        ("kubeletUnit: kubelet", "node.kubeletUnit is 'kubelet': it must be a service unit"),
        ('kubeletUnit: "a b.service"', "node.kubeletUnit is 'a b.service': it must be a service unit"),
        ("kubeconfig: kubelet.conf", "node.kubeconfig is 'kubelet.conf': it must be an absolute path, or in"),
        ("nodeName: Node-1", "node.nodeName is 'Node-1': it must be the Node's name in the API"),
        ("nodeName: a..b", "node.nodeName is 'a..b': it must be"),
        (f"nodeName: {'a' * 254}", "node.nodeName is 'aaa"),
        ("criSocket: tcp://127.0.0.1:1", "node.criSocket is 'tcp://127.0.0.1:1': it must be an absolute"),
        ("kubeletRoot: var/lib", "node.kubeletRoot is 'var/lib': it must be an absolute path"),
    ],
    ids=lambda value: value[:24].replace(" ", "-"),
)
def test_a_wrong_value_is_named_with_its_line_and_its_cure(fields: str, message: str) -> None:
    """One line, and nothing of a wrong file is used."""
    with pytest.raises(ConfigError) as raised:
        loaded(OWN + f"node:\n  # this:\n  {fields}\n")
    assert str(raised.value).startswith(f"0.yaml:5: {message}")
