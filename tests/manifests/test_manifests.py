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

from ebbtide import manifests
from ebbtide.actors.edges.pod_spec import ExecAction, HttpGetAction, SleepAction, TcpSocketAction
from ebbtide.actors.policy.planning import PlanWarning
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import Container, Deletion, Hook
from ebbtide.manifests import Manifest, ManifestError, load_local_pods, load_manifests, parse_manifests
from tests.corpus_files import corpus, read_or_refused


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
    """A priority; the API's default for the grace is 30 s."""
    found = read(pod()).pod
    assert (found.namespace, found.name, found.label) == ("default", "web-0", "default/web-0")
    assert (found.priority, found.grace_seconds) == (None, 30)
    assert found.containers == (Container(name="main"),)


def test_what_the_api_reads_otherwise_than_written() -> None:
    """A negative grace of an old object, an empty namespace."""
    found = read(pod(metadata={"namespace": ""}, terminationGracePeriodSeconds=-5)).pod
    assert (found.namespace, found.grace_seconds) == ("default", 1)


def test_a_uid_is_taken_or_follows_from_namespace_and_name() -> None:
    """The derived one is a version 5 UUID, equal at every start."""
    assert read(pod(metadata={"uid": "abc-1"})).pod.uid == "abc-1"
    derived = read(pod()).pod.uid
    assert uuid.UUID(derived).version == 5
    assert derived == read(pod(priority=7)).pod.uid == "bbf8b92d-bbba-5eeb-80ab-3ece8db54806"
    assert derived != read(pod(metadata={"namespace": "other"})).pod.uid


def test_containers_keep_their_order_and_sidecars_come_first() -> None:
    """Plain init containers belong to the process edge."""
    hook = {"preStop": {"exec": {"command": ["/bin/drain", "--token=x"]}}}
    found = read(
        pod(
            [{"name": "a", "command": ["x"], "lifecycle": hook}, {"name": "b", "command": ["z"]}],
            initContainers=[
                {"name": "setup", "command": ["true"]},
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
    """Only named ports."""
    main = {"lifecycle": {"stopSignal": "SIGRTMIN+3"}, "workingDir": "/srv"}
    ports = [{"containerPort": 1}, {"name": "web", "containerPort": 80}]
    document = with_main(**main, ports=ports)
    document["spec"]["os"] = {"name": "linux"}
    found = read(document).spec.containers[0]
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


def test_a_class_without_its_object_is_noted_with_its_pods(tmp_path: Path) -> None:
    """As 0 it may be in the wrong wave; finished pods are exempt."""
    names = [*(f"p{each}" for each in range(7)), "done"]
    pods = [pod(metadata={"name": name}, priorityClassName="gold") for name in names]
    pods[-1]["status"] = {"phase": "Succeeded"}
    pods.append(pod(metadata={"name": "s"}, priorityClassName="silver"))
    found, notes = loaded(pods, tmp_path)
    assert len(found) == 9
    cure = "; add it (kubectl get priorityclasses -o yaml), or write spec.priority"
    assert notes == {
        "class-unknown": [
            f"no object here has the value of 'gold', planned as 0: p0, p1, p2, p3, p4 and 2 more{cure}",
            f"no object here has the value of 'silver', planned as 0: s{cure}",
        ]
    }


def loaded(objects: list[Any], folder: Path) -> tuple[list[Manifest], dict[str, list[str]]]:
    """And the notes, by code."""
    file = folder / "f.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    notes: list[PlanWarning] = []
    found = load_manifests([file], notes=notes)
    by_code: dict[str, list[str]] = {}
    for code, message in notes:
        by_code.setdefault(code, []).append(message.replace(str(file), "f"))
    return found, by_code


@pytest.mark.parametrize("document, message", [
    (priority_class("gold", "many"), "value is 'many': it must be a whole number"),
    (priority_class("gold", 2**31), "value is 2147483648: it must be a whole number"),
    (priority_class("gold", None), "the document needs value"),
    (priority_class("Gold", 1), "metadata.name is 'Gold': it must be"),
    ({**priority_class("gold", "x"), "apiVersion": "scheduling.k8s.io/v1beta1"}, "value is 'x': it must be"),
    ({**priority_class("gold", 1), "apiVersion": "v1"},
     "apiVersion is 'v1': it must be scheduling.k8s.io/v1"),
])  # fmt: skip
def test_a_priority_class_that_says_nothing_is_refused(document: dict[str, object], message: str) -> None:
    with pytest.raises(ManifestError, match=re.escape(message)):
        parse_manifests("f", yaml.safe_dump(document).encode())
    twice = [priority_class("gold", 1), priority_class("gold", 1), priority_class("gold", 2)]
    with pytest.raises(ManifestError, match="f:13: priority class 'gold' occurs twice, with two values"):
        parse_manifests("f", yaml.safe_dump_all(twice).encode())


@pytest.mark.parametrize("document, part", [
    (pod(metadata={"name": "Web_0"}),
     "f.yaml:4: pod 'Web_0': metadata.name is 'Web_0': it must be at most 253"),
    (pod(metadata={"name": None}), "metadata: it needs name"),
    (pod(metadata={"generateName": "Run-"}), "metadata.generateName is 'Run-'"),
    (pod(metadata={"labels": {"version": 1.5}}), "metadata.labels.version must be a word"),
    (pod(metadata={"annotations": {"on": True}}), "metadata.annotations.on must be a word"),
    (pod(metadata={"name": 5}), "metadata.name is 5: it must be at most 253 lower case"),
    (pod(metadata={"namespace": "a.b"}), "pod 'web-0': metadata.namespace is 'a.b'"),
    (pod(metadata={"uid": "../x"}), "metadata.uid is '../x'"),
    (pod(priority=2**31), "spec.priority is 2147483648: it must be a whole number"),
    (pod(priority=float("nan")), "spec.priority is nan: it must be a whole number"),
    (pod(priority=True), "spec.priority is true: it must be a whole number"),
    (pod(terminationGracePeriodSeconds=2**63), "terminationGracePeriodSeconds is 9223372036854775808"),
    (pod(initContainers=[{"name": "i", "restartPolicy": "Sometimes"}]), "restartPolicy is 'Sometimes'"),
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
    (with_main(env=[{"name": "\u00fc"}]), "env[0].name is '\u00fc': it must be a variable's name"),
    (with_main(ports=[{"containerPort": 0}]), "containerPort is 0"),
    (with_main(ports=[{"containerPort": "80"}]), "containerPort is '80'"),
    (with_main(ports=[{"name": "Web", "containerPort": 1}]), "ports[0].name is 'Web': it must be up to 15"),
    (with_main(ports=[{"name": "8", "containerPort": 1}]), "ports[0].name is '8'"),
    (with_main(ports=[{"name": "a", "containerPort": 1}, {"name": "a", "containerPort": 2}]),
     "ports[1].name: two ports are called 'a'"),
    (pod(initContainers=[{"name": "i", "lifecycle": {}}]),
     "initContainers[0].lifecycle: only a sidecar (restartPolicy: Always) may have it"),
    (with_main(lifecycle={"stopSignal": "SIGTERM"}), "lifecycle.stopSignal: it needs spec.os.name"),
    (pod([{"name": "a", "lifecycle": {"stopSignal": "SIGUSR1"}}], os={"name": "windows"}),
     "lifecycle.stopSignal: on Windows it must be SIGTERM or SIGKILL"),
    (with_main(lifecycle={"stopSignal": "SIGRTMIN+16"}), "stopSignal is 'SIGRTMIN+16'"),
    (with_main(lifecycle={"stopSignal": "TERM"}), "stopSignal is 'TERM': it must be a name such as SIGTERM"),
    (with_main(lifecycle={"stopSignal": "SIGterm"}), "it must be a name such as SIGTERM"),
    (with_main(lifecycle={"stopSignal": "SIGNOPE"}), "use a name such as SIGTERM"),
    (with_hook(), "has no handler: give one of exec, httpGet, sleep, tcpSocket"),
    (with_hook(exec={"command": ["a"]}, sleep={"seconds": 1}), "more than one handler (exec, sleep)"),
    (with_hook(exec={}), "exec.command: it is empty: name a program"),
    (with_hook(httpGet={}), "httpGet needs port"),
    (with_hook(httpGet={"port": 0}), "port: '0' is no port and no port's name"),
    (with_hook(httpGet={"port": 65536}), "'65536' is no port and no port's name"),
    (with_hook(httpGet={"port": "80"}), "'80' in quotes is a name without a letter: take the quotes away"),
    (with_hook(tcpSocket={"port": 0}), "tcpSocket.port: '0' is no port and no port's name"),
    (with_hook(tcpSocket={"port": "80"}), "tcpSocket.port: '80' in quotes"),
    (with_hook(tcpSocket={}), "tcpSocket needs port"),
    (with_hook(sleep={"seconds": 31}), "31: must be non-negative and less than terminationGracePeriodSecon"),
    (with_hook(httpGet={"port": "a--b"}), "is no port and no port's name"),
    (with_hook(httpGet={"port": 1, "scheme": "gopher"}), "it must be HTTP or HTTPS"),
    (with_hook(httpGet={"port": 1, "host": "a/b"}), "it must be a host's name or address"),
    (with_hook(httpGet={"port": 1, "path": "/a\r\nb"}), "httpGet.path must be printable"),
    (with_hook(httpGet={"port": 1, "path": "/" * 9000}), "and up to 8192 characters"),
    (with_hook(httpGet={"port": 1, "httpHeaders": [{"name": "A B"}]}), "it must be a header's name"),
    (with_hook(httpGet={"port": 1, "httpHeaders": [{"name": "A_B"}]}), "it must be a header's name"),
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


# --- where manifests come from


#: The message for other kinds.
NO_KIND = "it must name a kind, such as Pod or Deployment"
WANTED = "only Pod, PriorityClass and lists of them are read (kubectl get pods -o yaml)"


def pod_yaml(name: str, command: str = "[sleep, '9']") -> str:
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n"
        f"spec: {{containers: [{{name: c, command: {command}}}]}}\n"
    )


def as_object(name: str) -> dict[str, object]:
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


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
    ("a: b", f"f:1: kind is missing: {NO_KIND}"),
    ("hello", "f:1: the document is 'hello': it must be a mapping"),
    ("apiVersion: apps/v1\nkind: Pod", "f:1: apiVersion is 'apps/v1': it must be v1"),
    ('{"kind": "List", "items": []}\n{"kind": "List", "items": [{"kind": "Service"}]}',
     "f, document 2, items[0]: kind is 'Service': only Pod, PriorityClass and lists of them are read "
     "(kubectl get pods -o yaml)"),
    ('{"kind": "List", "items": [{"metadata": {"name": "a"}}]}',
     f"f, document 1, items[0]: kind is missing: {NO_KIND}"),
    ("kind: List\nitems: 5", "f:2: items is 5: it must be a list"),
    (pod_yaml("a") + "---\n" + pod_yaml("a"), "f:6: pod default/a occurs twice, first at f:1: keep one"),
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


def test_a_pod_counts_once(tmp_path: Path) -> None:
    """By its name and its UID; a note names the second one."""
    twin = pod(metadata={"name": "other", "uid": "u"})
    found, notes = loaded([pod(metadata={"uid": "u"}), pod(), twin], tmp_path)
    assert [each.pod.name for each in found] == ["web-0"]
    assert notes["unreadable"] == [
        "f:13: pod default/web-0 occurs twice, first at f:1: keep one",
        "f:24: UID u occurs twice, first at f:1: keep one",
    ]


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


# --- what lies in Git and in a cluster


def workload(kind: str, name: str = "web", version: str = "apps/v1", **spec: Any) -> dict[str, Any]:
    """One container, 60 s of grace."""
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 60}}
    metadata = {"name": name, "namespace": "shop"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {"template": template} | spec}


def labels(found: list[Manifest]) -> list[str]:
    return [each.pod.label for each in found]


@pytest.mark.parametrize("document, names", [
    (workload("Deployment"), ["web-0"]),
    (workload("Deployment", replicas=3), ["web-0", "web-1", "web-2"]),
    (workload("Deployment", replicas=0), []),
    (workload("Deployment", version="extensions/v1beta1"), ["web-0"]),
    (workload("ReplicaSet", replicas=2), ["web-0", "web-1"]),
    (workload("StatefulSet", replicas=2), ["web-0", "web-1"]),
    (workload("ReplicationController", version="v1"), ["web-0"]),
    (workload("DaemonSet", replicas=9), ["web-0"]),
    (workload("Job", version="batch/v1", parallelism=3, completions=2), ["web-0", "web-1"]),
    (workload("Job", version="batch/v1", suspend=True), []),
    (workload("CronJob", version="batch/v1", jobTemplate=workload("Job", parallelism=2)), ["web-0", "web-1"]),
    (workload("CronJob", version="batch/v1", suspend=True, jobTemplate=workload("Job")), []),
    (workload("Job", version="batch/v1", parallelism=3) | {"status": {"startTime": "t", "active": 1}},
     ["web-0"]),
    (workload("Job", version="batch/v1") | {"status": {"startTime": "t", "succeeded": 1}}, []),
])  # fmt: skip
def test_a_workload_is_its_template_as_often_as_it_runs(
    document: dict[str, Any], names: list[str], tmp_path: Path
) -> None:
    """A DaemonSet has one pod a node; a UID follows from the pod's name, as always."""
    found, _ = loaded([document], tmp_path)
    assert labels(found) == [f"shop/{each}" for each in names]
    for each in found:
        assert (each.pod.grace_seconds, each.pod.owner) == (60, f"{document['kind']}/web")
        assert each.pod.daemon == (document["kind"] == "DaemonSet")
    assert len({each.pod.uid for each in found}) == len(names)


def test_a_rendered_chart_is_read(tmp_path: Path) -> None:
    """Comments, empty and null documents, lists in lists, kinds that run no pod, workloads of one name."""
    inner = {"kind": "DeploymentList", "items": [workload("Deployment") | {"kind": None}]}
    parts: list[Any] = [workload("DaemonSet"), {"kind": "List", "items": [inner, pod(), {"kind": "Secret"}]}]
    text = "---\n# Source: a.yaml\n---\nnull\n---\n" + yaml.safe_dump_all(parts, explicit_start=True)
    text += "---\nkind: Namespace\n---\nkind: Job\napiVersion: batch.volcano.sh/v1alpha1\n---\n# end\n"
    file = tmp_path / "chart.yaml"
    file.write_text(text)
    notes: list[PlanWarning] = []
    assert labels(load_manifests([file], notes=notes)) == ["default/web-0", "shop/web-0", "shop/web-1"]
    passed = "3 (1 Job of batch.volcano.sh, 1 Namespace, 1 Secret)"
    assert notes == [("passed-over", f"objects without a pod on this node: {passed}")]


def test_a_document_that_is_no_yaml_is_a_note_and_the_others_stay(tmp_path: Path) -> None:
    """As with kubectl. A file of a folder too; a byte order mark may begin each document."""
    texts = [pod_yaml("a"), "a: [\n", "name: {{ .Values.name }}\n", "\ufeff" + pod_yaml("b"), "a: b: c\n"]
    (tmp_path / "all.yaml").write_text("---\n".join(texts))
    (tmp_path / "cut.yaml").write_text("a: [\n")
    os.truncate(tmp_path / "cut.yaml", 2**30)
    (tmp_path / "list.yaml").write_text(yaml.safe_dump([pod(), workload("Deployment")]))
    notes: list[PlanWarning] = []
    found = load_manifests([tmp_path], notes=notes)
    assert labels(found) == ["default/a", "default/b", "default/web-0", "shop/web-0"]
    assert found[1].source == f"{tmp_path / 'all.yaml'}:10"
    assert [text.removeprefix(str(tmp_path)) for _, text in notes] == [
        "/all.yaml:6: not YAML: did not find expected node content",
        "/all.yaml:8: a field's name must be a word, not a list or a mapping; render a template first (helm "
        "template)",
        "/all.yaml:15: not YAML: mapping values are not allowed in this context",
        "/cut.yaml: larger than 16 MiB: split it into several files",
    ]
    # A daemon's pods are all of their file or none.
    with pytest.raises(ManifestError, match=r"all\.yaml:6: not YAML"):
        load_local_pods(tmp_path / "all.yaml")


@pytest.mark.parametrize("document, message", [
    (workload("Deployment", version="v1"),
     "f:1: Deployment 'web': apiVersion is 'v1': it must name the group apps"),
    (workload("Deployment", template=5), "f:7: Deployment 'web': spec.template is 5: it must be a mapping"),
    (workload("Deployment", template={"spec": {"containers": [{}]}}),
     "f:10: Deployment 'web': spec.template.spec.containers[0] needs name"),
    (workload("CronJob", version="batch/v1", jobTemplate=workload("Job", template={})),
     "f:14: CronJob 'web': spec.jobTemplate.spec.template needs spec"),
])  # fmt: skip
def test_a_mistake_in_a_template_has_its_whole_path(document: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as raised:
        loaded([document], tmp_path)
    assert str(raised.value).replace(str(tmp_path / "f.yaml"), "f").startswith(message)


def test_a_bad_pod_is_a_note_with_its_name_and_the_others_stay(tmp_path: Path) -> None:
    """A user of one namespace cannot end the plan of a node."""
    bad = pod(metadata={"name": "bad"}, tolerations="x")
    worse = pod([{"name": "c", "lifecycle": {"preStop": {"httpGet": {"port": 1, "path": "/\n"}}}}])
    huge = workload("Deployment", "huge", replicas=2**31 - 1)
    claims = {"metadata": {"name": "m", "annotations": MIRROR, "ownerReferences": NODE}}
    wrong = [pod() | {"metadata": {"name": "worse"}, "spec": worse["spec"]}, {"kind": "Pod"}, 5, huge]
    found, notes = loaded([bad, pod(metadata={"uid": "u"}), *wrong, pod() | claims], tmp_path)
    assert labels(found) == ["default/web-0", "default/m"]
    assert [re.sub("^f:[0-9]+: ", "", each)[:40] for each in notes["unreadable"]] == [
        "pod 'bad': spec.tolerations has another type than in the API"[:40],
        "pod 'worse': spec.containers[0].lifecycl",
        "the document needs metadata",
        "the document is 5: it must be a mapping",
        "shop/Deployment/huge has 2147483647 repl",
    ]


def test_one_huge_pod_of_a_json_list_is_a_note(tmp_path: Path) -> None:
    """A dozen of the largest pods that an API server takes, more than one text may have."""
    file, env = tmp_path / "pods.json", [{"name": f"E{number}"} for number in range(40_000)]
    huge = [pod([{"name": "c", "env": env}], metadata={"name": f"huge-{number}"}) for number in range(12)]
    file.write_text(json.dumps({"kind": "PodList", "items": [*huge, pod() | {"kind": None}]}))
    notes: list[PlanWarning] = []
    assert labels(load_manifests([file], notes=notes)) == ["default/web-0"]
    assert len(notes) == len(huge)
    assert notes[0][1].startswith(f"{file}, items[0]: 'huge-0': more than 50000 values")


def test_an_item_of_a_json_list_is_named_by_its_place(tmp_path: Path) -> None:
    """JSON has no lines."""
    bare = {"kind": "Pod", "metadata": {"name": "bare"}, "spec": {"containers": []}}
    wrong = [{"kind": "Pod", "metadata": "str"}, {"kind": "List", "items": [5, bare]}]
    file, notes = tmp_path / "pods.json", list[PlanWarning]()
    file.write_text(json.dumps({"kind": "List", "items": [as_object("a"), *wrong]}))
    (found,) = load_manifests([file], notes=notes)
    assert found.source == f"{file}, items[0]"
    assert [text.removeprefix(f"{file}, ") for _, text in notes] == [
        "items[1]: metadata is 'str': it must be a mapping",
        "items[2].items[0]: the document is 5: it must be a mapping",
        "items[2].items[1]: pod 'bare': spec.containers: add a container: a pod has at least one",
    ]


def test_a_text_without_one_good_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ManifestError, match=r"f\.yaml:1: the document is 5: it must be a mapping; and 1 more like"
    ):
        loaded([5, 6], tmp_path)


#: Of a static pod's mirror.
MIRROR = {"kubernetes.io/config.mirror": "u-static", "kubernetes.io/config.source": "file"}
NODE = [{"kind": "Node", "name": "m", "controller": True}]


def test_an_object_of_a_cluster_is_read_as_a_node_reads_it(tmp_path: Path) -> None:
    """A container that ended well is left out: it must not make its pod Failed."""
    mirror = {"name": "etcd-m", "annotations": MIRROR, "ownerReferences": NODE, "uid": "u-mirror"}
    owners = [{"kind": "DaemonSet", "name": "cni", "controller": True}]
    mesh, *ended = (
        {"name": each, "state": {"terminated": {"exitCode": code}}}
        for each, code in (("mesh", 0), ("d", 0), ("e", 3))
    )
    statuses = [{"name": "a", "state": {"running": {}}}, {"name": "b", "state": {"waiting": {}}}, *ended]
    status = {"phase": "Running", "initContainerStatuses": [mesh], "containerStatuses": statuses}
    objects = [
        pod(metadata=mirror),
        pod(metadata={"name": "cni", "ownerReferences": owners}, tolerations=[{"operator": "Exists"}]),
        pod(
            [{"name": each, "image": "i"} for each in "abcde"],
            initContainers=[{"name": "mesh", "image": "i", "restartPolicy": "Always"}],
            volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}],
        )
        | {"status": status},
        pod(metadata={"name": "waits"}) | {"status": {"phase": "Pending"}},
        pod(metadata={"name": "pulls"}, nodeName="n1") | {"status": {"phase": "Pending"}},
    ]
    found, notes = loaded(objects, tmp_path)
    etcd, cni, web, pulls = (each.pod for each in found)
    assert (etcd.uid, etcd.static, etcd.owner) == ("u-static", True, "")
    assert (cni.daemon, cni.tolerates_all, cni.owner) == (True, True, "DaemonSet/cni")
    assert (web.volumes, [(each.name, each.running, each.exit_code) for each in web.containers]) == (
        True,
        [("a", True, None), ("b", False, None), ("c", True, None), ("e", False, 3)],
    )
    assert pulls.name == "pulls"
    assert notes == {"passed-over": ["objects without a pod on this node: 1 (1 Pod without a node)"]}


def test_a_false_mirror_takes_no_place_and_a_twin_leaves_its_first(tmp_path: Path) -> None:
    """Any user who may create pods can claim a static pod's UID, but not write a status."""
    claims = {"annotations": MIRROR, "ownerReferences": NODE, "uid": "u"}
    false = pod(metadata={**claims, "name": "a-m", "uid": "v"}) | {"status": {"phase": "Pending"}}
    true = pod(metadata={**claims, "name": "etcd-m"}, nodeName="m") | {"status": {"phase": "Running"}}
    false["spec"]["nodeName"] = "m"
    found, notes = loaded([false, true], tmp_path)
    assert labels(found) == ["default/etcd-m"]
    assert "UID u-static occurs twice" in notes["unreadable"][0]
    file = tmp_path / "twins.json"
    file.write_text(json.dumps({"kind": "List", "items": [as_object("a"), as_object("a")]}))
    assert labels(load_manifests([file])) == ["default/a"]


@pytest.mark.parametrize(
    "objects", [[], [{"kind": "List", "items": []}], [pod() | {"status": {"phase": "Failed"}}]]
)
def test_no_pod_that_runs_is_noted(objects: list[Any], tmp_path: Path) -> None:
    """A pipe whose left side failed must not look like an empty node."""
    assert list(loaded(objects, tmp_path)[1]) == ["no-pods"]


def test_pods_of_several_nodes_are_noted(tmp_path: Path) -> None:
    _, notes = loaded([pod(nodeName="n1"), pod(metadata={"name": "b"}, nodeName="n2")], tmp_path)
    assert notes == {
        "several-nodes": [
            "pods of 2 nodes are planned as those of one: name one with --field-selector spec.nodeName=NODE"
        ]
    }


def test_a_workload_whose_pods_or_controller_are_listed_adds_none(tmp_path: Path) -> None:
    """``kubectl get all`` prints a Deployment, its ReplicaSet and their pods."""
    of_deployment = [{"kind": "Deployment", "name": "web", "controller": True}]
    replicas = workload("ReplicaSet", "web-1", replicas=2)
    replicas["metadata"]["ownerReferences"] = of_deployment
    template = {"pod-template-hash": "1"}
    of_replicas = [{"kind": "ReplicaSet", "name": "web-1", "controller": True}]
    meta = {"name": "p", "namespace": "shop", "labels": template, "ownerReferences": of_replicas}
    deployment = workload("Deployment", replicas=2)
    assert labels(loaded([deployment, replicas, pod(metadata=meta)], tmp_path)[0]) == ["shop/p"]
    assert labels(loaded([replicas, deployment], tmp_path)[0]) == ["shop/web-0", "shop/web-1"]


def test_a_field_that_stands_twice_counts_once_for_a_plan(tmp_path: Path) -> None:
    """Helm and the API server take the last one; the daemon's own pods must be right."""
    text = pod_yaml("a") + "spec: {containers: [{name: c, image: i}], terminationGracePeriodSeconds: 5}\n"
    file, notes = tmp_path / "f.yaml", list[PlanWarning]()
    file.write_text(text)
    assert [each.pod.grace_seconds for each in load_manifests([file], notes=notes)] == [5]
    assert [code for code, _ in notes] == ["field-twice"]
    with pytest.raises(ManifestError, match="'spec' occurs twice"):
        names(text)


@pytest.mark.parametrize(
    "deleted, grace, left_seconds, seconds",
    [
        ("2026-01-01T00:00:06Z", 8, 6, 8),
        ("2026-01-01T01:00:00+01:00", 8, 0, 8),
        # A clock that is ahead of ours.
        ("2027-01-01T00:00:00Z", 8, 8, 8),
        ("2026-01-01T00:00:06Z", None, 6, 40),
    ],
)
def test_a_pod_that_is_being_deleted(
    deleted: str, grace: int | None, left_seconds: int, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time until the deletionTimestamp is left, at most the deletion's grace. Now is 0 on its clock."""
    monkeypatch.setattr(manifests.time, "time_ns", lambda: 1_767_225_600 * NS_PER_SECOND)
    given = {"deletionTimestamp": deleted} | ({} if grace is None else {"deletionGracePeriodSeconds": grace})
    found = read(pod(metadata=given, terminationGracePeriodSeconds=40)).pod.deletion
    assert found == Deletion(since_ns=(left_seconds - seconds) * NS_PER_SECOND, grace_seconds=seconds)
    for wrong in ("soon", "2026-01-01T00:00:06", "2026-13-01T00:00:06Z"):
        message = f"metadata.deletionTimestamp is '{wrong}': it must be a time such as 2026-01-31T12:00:00Z"
        assert message in error(pod(metadata={"deletionTimestamp": wrong}))


def test_each_file_of_the_corpus_is_read_or_refused_in_one_line() -> None:
    """For a plan a bad object is a note beside a good one; variables may grow: a plan runs no command."""
    files = corpus("manifests")
    read_or_refused(files, lambda path: parse_manifests(str(path), path.read_bytes()), ManifestError)
    noted = {"bad-list-item.json", "bad-twins.yaml", "bad-uid-twins.yaml"}
    rest = [path for path in files if path.name not in {*noted, "bad-env-bomb.yaml"}]
    read_or_refused(rest, lambda path: load_manifests([path]), ManifestError)
    for path in (path for path in files if path.name in noted):
        notes: list[PlanWarning] = []
        load_manifests([path], notes=notes)
        assert notes
        assert all(message.isprintable() for _, message in notes)
