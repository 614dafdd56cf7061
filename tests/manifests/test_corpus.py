"""Hostile manifests are read, or refused in one line."""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide.actors.policy.planning import PlanWarning
from ebbtide.manifests import Gathered, ManifestError, ReadOptions, load_manifests, parse_manifests
from tests.corpus_files import corpus, read_or_refused

CORPUS = corpus("manifests")

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(
        [
            "Pod",
            "List",
            "Deployment",
            "CronJob",
            "PodList",
            "Pending",
            "v1",
            "web-0",
            "Always",
            "SIGTERM",
            "$(A)",
            "$(B)$(B)",
            "HTTP",
            "metadata.name",
        ]
    ),
)
# fmt: off
KEYS = st.sampled_from([
    "kind", "apiVersion", "items", "metadata", "name", "namespace", "uid", "spec", "containers",
    "initContainers", "priority", "status", "phase", "terminationGracePeriodSeconds", "command",
    "args", "env", "value", "valueFrom", "fieldRef", "fieldPath", "lifecycle", "preStop", "exec",
    "httpGet", "port", "path", "host", "scheme", "httpHeaders", "sleep", "seconds", "tcpSocket",
    "stopSignal", "ports", "containerPort", "restartPolicy", "workingDir", "envFrom",
    "priorityClassName", "template", "jobTemplate", "replicas", "ownerReferences", "annotations",
    "tolerations", "volumes", "containerStatuses", "state", "running",
])
# fmt: on
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=25,
)


def complaint(raw: bytes) -> str:
    """The refusal, or empty. Any error but a ManifestError fails the test."""
    gathered = Gathered(ReadOptions(True))
    try:
        gathered.add("f", raw)
        assert all(each.isprintable() for _, each in gathered.notes(gathered.pods_of_node()))
        parse_manifests("f", raw)
    except ManifestError as error:
        return str(error)
    return ""


def test_each_file_of_the_corpus_is_read_or_refused_in_one_line() -> None:
    read_or_refused(CORPUS, lambda path: parse_manifests(str(path), path.read_bytes()), ManifestError)


def test_for_a_plan_a_bad_pod_is_a_note_where_another_object_is_good() -> None:
    """A plan runs no command, so it reads variables that grow without bound."""
    noted = {"bad-list-item.json", "bad-twins.yaml", "bad-uid-twins.yaml"}
    rest = [path for path in CORPUS if path.name not in {*noted, "bad-env-bomb.yaml"}]
    read_or_refused(rest, lambda path: load_manifests([path]), ManifestError)
    for path in (path for path in CORPUS if path.name in noted):
        notes: list[PlanWarning] = []
        load_manifests([path], notes=notes)
        assert notes


@settings(max_examples=100)
@given(tree=TREES)
def test_any_tree_is_a_list_of_pods_or_one_clear_error(tree: Any) -> None:
    """As YAML and as JSON, with equal results."""
    verdicts = [complaint(yaml.safe_dump(tree).encode()), complaint(json.dumps(tree).encode())]
    assert all(each.isprintable() for each in verdicts)
