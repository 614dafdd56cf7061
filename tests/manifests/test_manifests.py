"""From pod objects to manifests: the core's view, the process edge's view, and messages."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml

from ebbtide.actors.edges.pod_spec import ExecAction, HttpGetAction, SleepAction, TcpSocketAction
from ebbtide.events.values import Container, Hook
from ebbtide.manifests import (
    Manifest,
    ManifestError,
    load_local_pods,
    load_manifests,
    parse_manifests,
)


def pod(containers: list[Any] | None = None, metadata: Any = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "command": ["sleep", "9"]}] if containers is None else containers
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-0"} | (metadata or {}),
        "spec": {"containers": containers} | spec,
    }


def read(document: Any, *, allow_zero_sleep: bool = True) -> Manifest:
    (found,) = parse_manifests("f.yaml", yaml.safe_dump(document).encode(), allow_zero_sleep=allow_zero_sleep)
    return found


def error(document: Any, **options: bool) -> str:
    with pytest.raises(ManifestError) as raised:
        read(document, **options)
    assert str(raised.value).isprintable()
    return str(raised.value)


def with_main(**fields: Any) -> dict[str, Any]:
    return pod([{"name": "main", "command": ["sleep", "9"]} | fields])


def with_hook(**handlers: Any) -> dict[str, Any]:
    return with_main(lifecycle={"preStop": handlers})


def test_what_is_absent_stays_absent() -> None:
    """The reference distinguishes missing values from 0 and 30."""
    found = read(pod()).pod
    assert (found.namespace, found.name, found.label) == ("default", "web-0", "default/web-0")
    assert (found.priority, found.grace_seconds) == (None, None)
    assert found.containers == (Container(name="main"),)


def test_a_uid_is_taken_or_follows_from_namespace_and_name() -> None:
    """The derived one is a version 5 UUID, equal at every start."""
    assert read(pod(metadata={"uid": "abc-1"})).pod.uid == "abc-1"
    derived = read(pod()).pod.uid
    assert uuid.UUID(derived).version == 5
    assert derived == read(pod(priority=7)).pod.uid == "bbf8b92d-bbba-5eeb-80ab-3ece8db54806"
    assert derived != read(pod(metadata={"namespace": "other"})).pod.uid


def test_containers_keep_their_order_and_sidecars_come_first() -> None:
    """Plain init containers belong to the process edge and have no hook."""
    hook = {"preStop": {"exec": {"command": ["/bin/drain", "--token=x"]}}}
    found = read(
        pod(
            [{"name": "a", "command": ["x"], "lifecycle": hook}, {"name": "b", "command": ["y"]}],
            initContainers=[
                {"name": "setup", "command": ["true"], "lifecycle": hook},
                {"name": "proxy", "command": ["p"], "restartPolicy": "Always", "lifecycle": hook},
            ],
        )
    )
    drain = Hook(kind="exec", detail="drain")
    assert found.pod.containers == (
        Container(name="proxy", hook=drain, sidecar=True),
        Container(name="a", hook=drain),
        Container(name="b"),
    )
    assert [each.name for each in found.spec.init] == ["setup", "proxy"]
    assert [each.name for each in found.spec.lasting] == ["proxy", "a", "b"]
    assert found.spec.init[0].pre_stop is None


@pytest.mark.parametrize("handlers, action, hook", [
    ({"exec": {"command": ["/usr/bin/drain", "-a"]}}, ExecAction(argv=("/usr/bin/drain", "-a")),
     Hook(kind="exec", detail="drain")),
    ({"httpGet": {"port": 8080, "path": "/bye?key=secret", "host": "h", "scheme": "HTTPS"}},
     HttpGetAction(port=8080, path="/bye?key=secret", host="h", scheme="HTTPS"),
     Hook(kind="httpGet", detail=":8080/bye")),
    ({"httpGet": {"port": "admin", "httpHeaders": [{"name": "Authorization", "value": "secret"}]}},
     HttpGetAction(port="admin", headers=(("Authorization", "secret"),)),
     Hook(kind="httpGet", detail=":admin")),
    ({"sleep": {"seconds": 5}}, SleepAction(seconds=5), Hook(kind="sleep", sleep_seconds=5)),
    ({"tcpSocket": {"port": 80}}, TcpSocketAction(), Hook(kind="tcpSocket")),
])  # fmt: skip
def test_each_hook_goes_whole_to_the_edge_and_without_secrets_to_the_core(
    handlers: dict[str, Any], action: object, hook: Hook
) -> None:
    """No argument, header value or query reaches an event."""
    found = read(with_hook(**handlers))
    assert found.spec.containers[0].pre_stop == action
    assert found.pod.containers[0].hook == hook


def test_variables_are_expanded_as_kubernetes_expands_them() -> None:
    """A variable sees earlier ones, a command sees all; unknown ones stay, $$ is a dollar."""
    found = read(
        with_main(
            command=["sh", "$(A)-$(B)-$(NO)-$$(A)-$$$(A)-$A-$(a$$b$"],
            args=["$(B)$(B)"],
            env=[
                {"name": "A", "value": "1"},
                {"name": "B", "value": "$(A)$(C)"},
                {"name": "C", "value": "3"},
            ],
        )
    ).spec.containers[0]
    assert found.argv == ("sh", "1-1$(C)-$(NO)-$(A)-$1-$A-$(a$b$", "1$(C)1$(C)")
    assert found.env == {"A": "1", "B": "1$(C)", "C": "3"}


@pytest.mark.parametrize("fields, part", [
    ({"command": None}, "write command"),
    ({"command": None, "args": ["x"]}, "write command"),
    ({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}, "variable 'A'"),
    *(({"env": [{"name": "A", "valueFrom": {reference: {"name": "s"}}}]}, "variable 'A'")
      for reference in ("fieldRef", "resourceFieldRef", "configMapKeyRef")),
    ({"envFrom": [{"secretRef": {"name": "s", "optional": True}}]}, "envFrom"),
])  # fmt: skip
def test_what_only_a_cluster_could_run_is_noted_and_planned_all_the_same(
    fields: dict[str, Any], part: str
) -> None:
    """A plan needs no command; a local process does."""
    (obstacle,) = read(with_main(**fields)).obstacles
    assert part in obstacle


def test_stop_signal_ports_and_directory_arrive() -> None:
    """Only named ports, and the first of a name."""
    found = read(
        with_main(
            lifecycle={"stopSignal": "SIGRTMIN+3"},
            workingDir="/srv",
            ports=[
                {"containerPort": 1},
                {"name": "web", "containerPort": 80},
                {"name": "web", "containerPort": 81},
            ],
        )
    ).spec.containers[0]
    assert (found.stop_signal, found.working_dir, found.ports) == ("SIGRTMIN+3", "/srv", {"web": 80})


@pytest.mark.parametrize("phase, finished", [("Succeeded", True), ("Failed", True), ("Running", False)])
def test_a_pod_that_has_ended_says_so(phase: str, finished: bool) -> None:
    """It takes no part in a plan."""
    assert read(pod() | {"status": {"phase": phase}}).finished is finished


@pytest.mark.parametrize("name, priority, value, unknown", [
    ("system-node-critical", None, 2_000_001_000, ""), ("system-cluster-critical", None, 2_000_000_000, ""),
    ("system-node-critical", 7, 7, ""), ("gold", 7, 7, ""), ("gold", None, None, "gold"),
])  # fmt: skip
def test_the_classes_that_every_cluster_has_are_known(
    name: str, priority: int | None, value: int | None, unknown: str
) -> None:
    """A written number wins, as in the API server, except with another class's name."""
    found = read(pod(priorityClassName=name, priority=priority))
    assert (found.pod.priority, found.class_name) == (value, unknown)


def priority_class(name: str, value: object, **more: object) -> dict[str, object]:
    version = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return {**version, "metadata": {"name": name}, "value": value, **more}


def test_priority_classes_of_one_file_hold_for_the_pods_of_all(tmp_path: Path) -> None:
    """Before or after the pods, alone or in a list; the global default is for pods without a class."""
    pods = [pod(metadata={"name": "a"}, priorityClassName="gold"), pod(metadata={"name": "b"})]
    (tmp_path / "a-pods.yaml").write_text(yaml.safe_dump_all(pods))
    items: list[Any] = [priority_class("gold", 1000), priority_class("all", 5, globalDefault=True)]
    (tmp_path / "b-classes.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    found = load_manifests([tmp_path])
    assert [(each.pod.name, each.pod.priority, each.class_name) for each in found] == [
        ("a", 1000, ""),
        ("b", 5, ""),
    ]
    kubectl = {"kind": "PriorityClassList", "apiVersion": "scheduling.k8s.io/v1", "items": items}
    items += [priority_class("more", 7, globalDefault=True)]
    for each in items:
        del each["kind"], each["apiVersion"]
    (tmp_path / "b-classes.json").write_text(json.dumps(kubectl))
    assert [each.pod.priority for each in load_manifests([tmp_path])] == [1000, 5]


def test_a_class_that_nobody_explains_is_refused_with_its_pods(tmp_path: Path) -> None:
    """As 0 it would promise the wrong wave; finished pods are exempt."""
    names = [*(f"p{each}" for each in range(7)), "done"]
    pods = [pod(metadata={"name": name}, priorityClassName="gold") for name in names]
    pods[-1]["status"] = {"phase": "Succeeded"}
    pods.append(pod(metadata={"name": "s"}, priorityClassName="silver"))
    file = tmp_path / "pods.yaml"
    file.write_text(yaml.safe_dump_all(pods))
    with pytest.raises(ManifestError) as refused:
        load_manifests([file])
    assert str(refused.value) == (
        f"{file}:1: no object here has the value of priority class 'gold' of p0, p1, p2, p3, p4 and 2 more; "
        "'silver' of s: add them (kubectl get priorityclasses -o yaml), or write spec.priority"
    )


@pytest.mark.parametrize("document, message", [
    (priority_class("gold", "many"), "value is 'many': it must be a whole number"),
    (priority_class("gold", 2**31), "value is 2147483648: it must be a whole number"),
    (priority_class("gold", None), "the document needs value"),
    (priority_class("Gold", 1), "metadata.name is 'Gold': it must be"),
    ({**priority_class("gold", 1), "apiVersion": "v1"},
     "apiVersion is 'v1': it must be scheduling.k8s.io/v1"),
])  # fmt: skip
def test_a_priority_class_that_says_nothing_is_refused(document: dict[str, object], message: str) -> None:
    with pytest.raises(ManifestError, match=re.escape(message)):
        parse_manifests("f", yaml.safe_dump(document).encode())
    twice = [priority_class("gold", 1), priority_class("gold", 1), priority_class("gold", 2)]
    with pytest.raises(ManifestError, match="f:13: priority class 'gold' stands twice, with two values"):
        parse_manifests("f", yaml.safe_dump_all(twice).encode())


@pytest.mark.parametrize("document, part", [
    (pod(metadata={"name": "Web_0"}),
     "f.yaml:4: pod 'Web_0': metadata.name is 'Web_0': it must be at most 253"),
    (pod(metadata={"name": None}), "metadata needs name"),
    (pod(metadata={"name": 5}), "metadata.name is 5: it must be at most 253 lower case"),
    (pod(metadata={"namespace": "a.b"}), "pod 'web-0': metadata.namespace is 'a.b'"),
    (pod(metadata={"uid": "../x"}), "metadata.uid is '../x'"),
    (pod(priority=2**31), "spec.priority is 2147483648: it must be a whole number"),
    (pod(priority=float("nan")), "spec.priority is nan: it must be a whole number"),
    (pod(priority=True), "spec.priority is true: it must be a whole number"),
    (pod(terminationGracePeriodSeconds=-1), "terminationGracePeriodSeconds is -1: it must be a whole"),
    (pod(terminationGracePeriodSeconds="30s"), "terminationGracePeriodSeconds is '30s'"),
    (pod([]), "spec.containers: add a container"),
    (pod(initContainers={}), "spec.initContainers is a mapping: it must be a list"),
    (pod([{"name": "a"}, {"name": "a"}]), "two containers are called 'a': rename one"),
    (pod([{"name": "A"}]), "spec.containers[0].name is 'A'"),
    (pod([3]), "spec.containers[0] is 3: it must be a mapping"),
    (with_main(command="sleep 9"), "command is 'sleep 9': it must be a list"),
    (with_main(command=["sleep", 9]), "command[1] must be a word"),
    (with_main(env=[{"name": "A=B"}]), "env[0].name is 'A=B': it must be a variable's name"),
    (with_main(env=[{"value": "x"}]), "env[0] needs name"),
    (with_main(ports=[{"containerPort": 0}]), "containerPort is 0"),
    (with_main(lifecycle={"stopSignal": "TERM"}), "use a name such as SIGTERM"),
    (with_main(lifecycle={"stopSignal": "SIGNOPE"}), "use a name such as SIGTERM"),
    (with_hook(), "has no handler: give one of exec, httpGet, sleep, tcpSocket"),
    (with_hook(exec={"command": ["a"]}, sleep={"seconds": 1}), "more than one handler (exec, sleep)"),
    (with_hook(exec={}), "exec.command: it is empty: name a program"),
    (with_hook(httpGet={}), "httpGet needs port"),
    (with_hook(httpGet={"port": 0}), "port: '0' is no port and no port's name"),
    (with_hook(httpGet={"port": "65536"}), "is no port and no port's name"),
    (with_hook(httpGet={"port": "a--b"}), "is no port and no port's name"),
    (with_hook(httpGet={"port": 1, "scheme": "gopher"}), "it must be HTTP or HTTPS"),
    (with_hook(httpGet={"port": 1, "host": "a/b"}), "it must be a host's name or address"),
    (with_hook(httpGet={"port": 1, "path": "/a\r\nb"}), "httpGet.path must be printable"),
    (with_hook(httpGet={"port": 1, "path": "/" * 9000}), "and up to 8192 characters"),
    (with_hook(httpGet={"port": 1, "httpHeaders": [{"name": "A B"}]}), "it must be the name of a header"),
    (with_hook(sleep={}), "sleep needs seconds"),
    (with_hook(sleep={"seconds": -1}), "sleep.seconds: -1: must be non-negative"),
    (with_hook(sleep={"seconds": 2**63}), "sleep.seconds is 9223372036854775808"),
])  # fmt: skip
def test_what_cannot_be_used_is_refused_with_its_cure(document: Any, part: str) -> None:
    found = error(document)
    assert part in found
    assert found.startswith("f.yaml:")


@pytest.mark.parametrize(
    "document",
    [
        with_main(env=[{"name": "KEY", "value": 123456}]),
        with_main(env=[{"name": "KEY", "value": ["123456"]}]),
        with_main(args=[123456]),
        with_hook(exec={"command": ["login", 123456]}),
        with_hook(httpGet={"port": 1, "httpHeaders": [{"name": "A", "value": 123456}]}),
        with_hook(httpGet={"port": 1, "httpHeaders": [{"name": "A", "value": "x\n123456"}]}),
        with_main(command=["x" * 140_000 + "123456"]),
    ],
)
def test_no_message_repeats_a_value_that_could_be_secret(document: Any) -> None:
    """A rejection goes to logs and to the journal."""
    assert "123456" not in error(document)


def test_variables_that_double_each_other_are_stopped() -> None:
    """Ten lines could request all memory."""
    env = [{"name": "E0", "value": "x" * 100}]
    env += [{"name": f"E{n}", "value": f"$(E{n - 1})" * 10} for n in range(1, 12)]
    assert "longer than 128 KiB" in error(with_main(env=env))


def test_many_pods_cannot_grow_without_bound_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alone fits Linux's limit; the test lowers the limit for all."""
    monkeypatch.setattr("ebbtide.manifests.EXPANDED_BYTES_MAX", 1000)
    env = [{"name": "A", "value": "x" * 100}, {"name": "B", "value": "$(A)" * 4}]
    assert read(with_main(env=env)).spec.containers[0].env["B"] == "x" * 400
    listed = [pod([{"name": "c", "env": env}], metadata={"name": f"p{number}"}) for number in range(4)]
    with pytest.raises(ManifestError, match=r"pod 'p2': .*variables add more than 1000 bytes in all"):
        parse_manifests("f", yaml.safe_dump_all(listed).encode())


# --- where manifests come from -----------------------------------------------------------------


#: The message for other kinds.
WANTED = "only Pod, PriorityClass and lists of them are read (kubectl get pods -o yaml)"


def pod_yaml(name: str, command: str = "[sleep, '9']") -> str:
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n"
        f"spec: {{containers: [{{name: c, command: {command}}}]}}\n"
    )


def as_object(name: str) -> dict[str, object]:
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c"}]}}


def names(text: str) -> list[str]:
    return [each.pod.name for each in parse_manifests("f", text.encode())]


@pytest.mark.parametrize("text, expected", [
    ("", []),
    ("---\n---\n", []),
    (pod_yaml("a"), ["a"]),
    (f"{pod_yaml('b')}---\n{pod_yaml('a')}", ["b", "a"]),
    (json.dumps(as_object("a")), ["a"]),
    (json.dumps(as_object("a")) + "\n" + json.dumps(as_object("b")), ["a", "b"]),
    (json.dumps({"kind": "List", "apiVersion": "v1", "items": [as_object("a"), as_object("b")]}),
     ["a", "b"]),
    (json.dumps({"kind": "PodList", "items": [as_object("a") | {"kind": None}]}), ["a"]),
    ("kind: List\nitems: []\n", []),
    ("kind: List\n", []),
    ("{kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}", ["a"]),
])  # fmt: skip
def test_pods_come_from_documents_lists_and_json(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize("text, message", [
    ("kind: Deployment", f"f:1: kind is 'Deployment': {WANTED}"),
    ("a: b", f"f:1: kind is missing: {WANTED}"),
    ("hello", "f:1: the document is 'hello': it must be a mapping"),
    ("apiVersion: apps/v1\nkind: Pod", "f:1: apiVersion is 'apps/v1': it must be v1"),
    ('{"kind": "List", "items": []}\n{"kind": "List", "items": [{"kind": "Service"}]}',
     "f, document 2: kind is 'Service': only Pod, PriorityClass and lists of them are read "
     "(kubectl get pods -o yaml)"),
    ('{"kind": "List", "items": [{"metadata": {"name": "a"}}]}',
     f"f, document 1: kind is missing: {WANTED}"),
    ("kind: List\nitems: 5", "f:2: items is 5: it must be a list"),
    (pod_yaml("a") + "---\n" + pod_yaml("a"), "f:6: pod default/a stands twice, first at f:1: keep one"),
    ('{"kind": "Pod"', "f:1: not YAML: did not find expected ',' or '}'"),
])  # fmt: skip
def test_what_is_no_pod_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ManifestError) as raised:
        names(text)
    assert str(raised.value) == message


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    """Like the kubelet's static pods: no hidden files, no subfolders, no other types."""
    for file, name in (("b.yaml", "b"), ("a.yml", "a"), ("c.json", "c"), (".d.yaml", "d"), ("e.txt", "e")):
        (tmp_path / file).write_text(pod_yaml(name))
    (tmp_path / "sub.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe.yaml")
    assert [each.pod.name for each in load_manifests([tmp_path])] == ["a", "b", "c"]
    assert load_manifests([tmp_path])[0].source == f"{tmp_path / 'a.yml'}:1"


def test_a_pod_may_stand_in_one_file_only(tmp_path: Path) -> None:
    for file in ("a.yaml", "b.yaml"):
        (tmp_path / file).write_text(pod_yaml("web"))
    with pytest.raises(ManifestError, match=r"b\.yaml:1: pod default/web stands twice, first at .*a\.yaml:1"):
        load_manifests([tmp_path])
    (tmp_path / "a.yaml").write_text(pod_yaml("web").replace("name: web", "name: web, uid: u"))
    (tmp_path / "b.yaml").write_text(pod_yaml("other").replace("name: other", "name: other, uid: u"))
    with pytest.raises(ManifestError, match="UID u stands twice"):
        load_manifests([tmp_path])


def test_standard_input_is_a_file_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO(pod_yaml("web").encode())

    monkeypatch.setattr(sys, "stdin", Input)
    (found,) = load_manifests(["-"])
    assert (found.pod.name, found.source) == ("web", "standard input:1")


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"cannot read .*gone\.yaml: No such file"):
        load_manifests([tmp_path / "gone.yaml"])
    with pytest.raises(ManifestError, match="cannot read"):
        load_manifests(["a\0b"])
    huge = tmp_path / "huge.yaml"
    with open(huge, "wb") as file:
        os.truncate(file.fileno(), 2**30)
    with pytest.raises(ManifestError, match=r"huge\.yaml: larger than 16 MiB"):
        load_manifests([huge])


def test_local_pods_can_all_be_run(tmp_path: Path) -> None:
    """A pod without a command is refused with the fix; the error is a ValueError, as the edge expects."""
    file = tmp_path / "web.yaml"
    file.write_text(pod_yaml("web"))
    ((found, spec),) = load_local_pods(file)
    assert spec.uid == found.uid
    file.write_text(pod_yaml("web", command="[]"))
    with pytest.raises(ValueError, match=r"web\.yaml:1: pod default/web: container c: it has no command"):
        load_local_pods(file)
