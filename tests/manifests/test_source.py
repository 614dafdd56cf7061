"""Where manifests come from: files, folders, lists, standard input."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from ebbtide.manifests import (
    ManifestError,
    load_local_pods,
    load_manifest_file,
    load_manifests,
    parse_manifests,
)


def pod(name: str, command: str = "[sleep, '9']") -> str:
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n"
        f"spec: {{containers: [{{name: c, command: {command}}}]}}\n"
    )


def as_object(name: str) -> dict[str, object]:
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c"}]}}


def names(text: str) -> list[str]:
    return [each.pod.name for each in parse_manifests("f", text.encode())]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", []),
        ("---\n---\n", []),
        (pod("a"), ["a"]),
        (f"{pod('b')}---\n{pod('a')}", ["b", "a"]),
        (json.dumps(as_object("a")), ["a"]),
        (json.dumps(as_object("a")) + "\n" + json.dumps(as_object("b")), ["a", "b"]),
        (
            json.dumps({"kind": "List", "apiVersion": "v1", "items": [as_object("a"), as_object("b")]}),
            ["a", "b"],
        ),
        (json.dumps({"kind": "PodList", "items": [as_object("a") | {"kind": None}]}), ["a"]),
        ("kind: List\nitems: []\n", []),
        ("kind: List\n", []),
        ("{kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}", ["a"]),
    ],
)
def test_pods_come_from_documents_lists_and_json(text: str, expected: list[str]) -> None:
    """In the order in which they stand; empty documents are nothing."""
    assert names(text) == expected


@pytest.mark.parametrize(
    "text, message",
    [
        (
            "kind: Deployment",
            "f:1: kind is 'Deployment': only Pod, List and PodList are read (kubectl get pods -o yaml)",
        ),
        ("a: b", "f:1: kind is missing: only Pod, List and PodList are read (kubectl get pods -o yaml)"),
        ("hello", "f:1: the document must be a mapping"),
        ("apiVersion: apps/v1\nkind: Pod", "f:1: apiVersion is 'apps/v1': it must be v1"),
        (
            '{"kind": "List", "items": []}\n{"kind": "List", "items": [{"kind": "Service"}]}',
            "f, document 2: kind is 'Service': only Pod, List and PodList are read "
            "(kubectl get pods -o yaml)",
        ),
        (
            '{"kind": "List", "items": [{"metadata": {"name": "a"}}]}',
            "f, document 1: kind is missing: only Pod, List and PodList are read (kubectl get pods -o yaml)",
        ),
        ("kind: List\nitems: 5", "f:2: items is 5: it must be a list"),
        (pod("a") + "---\n" + pod("a"), "f:6: pod default/a stands twice, first at f:1: keep one"),
        ('{"kind": "Pod"', "f:1: not YAML: did not find expected ',' or '}'"),
    ],
)
def test_what_is_no_pod_is_refused_with_its_place(text: str, message: str) -> None:
    """By line where there are lines, by document where there are none."""
    with pytest.raises(ManifestError) as raised:
        names(text)
    assert str(raised.value) == message


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    """As the kubelet reads its static pods: no hidden files, no subfolders, no other kinds of file."""
    for file, name in (("b.yaml", "b"), ("a.yml", "a"), ("c.json", "c"), (".d.yaml", "d"), ("e.txt", "e")):
        (tmp_path / file).write_text(pod(name))
    (tmp_path / "sub.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe.yaml")
    assert [each.pod.name for each in load_manifests([tmp_path])] == ["a", "b", "c"]
    assert load_manifests([tmp_path])[0].source == f"{tmp_path / 'a.yml'}:1"


def test_a_pod_may_stand_in_one_file_only(tmp_path: Path) -> None:
    """The error names both places."""
    for file in ("a.yaml", "b.yaml"):
        (tmp_path / file).write_text(pod("web"))
    with pytest.raises(ManifestError, match=r"b\.yaml:1: pod default/web stands twice, first at .*a\.yaml:1"):
        load_manifests([tmp_path])
    (tmp_path / "a.yaml").write_text(pod("web").replace("name: web", "name: web, uid: u"))
    (tmp_path / "b.yaml").write_text(pod("other").replace("name: other", "name: other, uid: u"))
    with pytest.raises(ManifestError, match="UID u stands twice"):
        load_manifests([tmp_path])


def test_standard_input_is_a_file_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Named `-`."""

    class Input:
        buffer = io.BytesIO(pod("web").encode())

    monkeypatch.setattr(sys, "stdin", Input)
    (found,) = load_manifests(["-"])
    assert (found.pod.name, found.source) == ("web", "standard input:1")


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Also a name that is no name."""
    with pytest.raises(ManifestError, match=r"cannot read .*gone\.yaml: No such file"):
        load_manifest_file(tmp_path / "gone.yaml")
    with pytest.raises(ManifestError, match="cannot read"):
        load_manifests(["a\0b"])


def test_a_gigabyte_is_refused_by_its_size(tmp_path: Path) -> None:
    """It costs no more than its first piece."""
    huge = tmp_path / "huge.yaml"
    with open(huge, "wb") as file:
        os.truncate(file.fileno(), 2**30)
    with pytest.raises(ManifestError, match=r"huge\.yaml: larger than 16777216 bytes"):
        load_manifest_file(huge)


def test_a_folder_of_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits are far above any node; here they are lowered to be reached."""
    for number in range(3):
        (tmp_path / f"{number}.yaml").write_text(pod(f"p{number}"))
    monkeypatch.setattr("ebbtide.manifests.PODS_MAX", 2)
    with pytest.raises(ManifestError, match="more than 2 pods"):
        load_manifests([tmp_path])
    monkeypatch.setattr("ebbtide.manifests.FILES_MAX", 2)
    with pytest.raises(ManifestError, match="more than 2 manifests"):
        load_manifests([tmp_path])


def test_local_pods_can_all_be_run(tmp_path: Path) -> None:
    """A pod without a command is refused with its cure; an error is a ValueError, as the edge expects."""
    file = tmp_path / "web.yaml"
    file.write_text(pod("web"))
    ((found, spec),) = load_local_pods(file)
    assert spec.uid == found.uid
    file.write_text(pod("web", command="[]"))
    with pytest.raises(ValueError, match=r"web\.yaml:1: pod default/web: container c: it has no command"):
        load_local_pods(file)


def test_a_thousand_pods_are_read_quickly_enough_for_a_folder_that_is_watched() -> None:
    """As one JSON list; the time is checked by the corpus, here only that all of them arrive."""
    listed = {"kind": "List", "items": [as_object(f"p{number}") for number in range(1000)]}
    assert len(names(json.dumps(listed))) == 1000
