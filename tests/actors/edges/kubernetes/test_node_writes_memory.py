"""The note on the Node, as functions: our changes are reverted to the byte."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.actors.edges.kubernetes import node_writes as memory
from ebbtide.actors.edges.kubernetes.api_calls import ApiNode, JsonObject

KINDS = ("DrainInProgress", "GracefulNodeShutdownInProgress", "Drained")
#: A fixed choice: one draw each, fast enough on a busy machine.
TAINTS = st.lists(
    st.sampled_from(
        [{"key": key, "effect": effect} for key in "abc" for effect in ("NoSchedule", "NoExecute")]
    ),
    max_size=3,
)
STATES = [
    None,
    *(
        {"status": status, "reason": reason, "message": message, "lastTransitionTime": "2020-01-01T00:00:00Z"}
        for status in ("True", "False", "Unknown")
        for reason in ("Theirs", "Other")
        for message in ("", "m")
    ),
]
STATED = st.tuples(*[st.sampled_from(STATES)] * (len(KINDS) + 1))


def node_of(
    taints: list[JsonObject], unschedulable: bool, stated: tuple[JsonObject | None, ...]
) -> JsonObject:
    conditions = [
        {"type": kind, **state} for kind, state in zip((*KINDS, "Ready"), stated, strict=True) if state
    ]
    return {
        "metadata": {"resourceVersion": "1", "annotations": {"theirs": "x"}},
        "spec": {"taints": taints, **({"unschedulable": True} if unschedulable else {})},
        "status": {"conditions": conditions},
    }


NODES = st.builds(node_of, TAINTS, st.booleans(), STATED)
SHOWN = st.lists(st.lists(st.sampled_from(KINDS), unique=True), min_size=1, max_size=3)


def view(node: JsonObject) -> ApiNode:
    return msgspec.convert(node, ApiNode)


def patched(node: JsonObject, patch: JsonObject | None) -> JsonObject:
    """The API server's merge: conditions by type; null removes."""
    made: Any = copy.deepcopy(node)
    for name, value in (patch or {}).items():
        for key, change in value.items():
            if key == "conditions":
                made["status"]["conditions"] = merged(made["status"]["conditions"], change)
            elif key == "annotations":
                both = {**made["metadata"]["annotations"], **change}
                made["metadata"]["annotations"] = {k: v for k, v in both.items() if v is not None}
            elif change is None:
                made[name].pop(key, None)
            else:
                made[name][key] = change
    made["spec"].setdefault("taints", [])
    return made


def merged(conditions: list[JsonObject], changes: list[JsonObject]) -> list[JsonObject]:
    by_type = {each["type"]: each for each in conditions}
    for change in changes:
        if change.get("$patch") == "delete":
            by_type.pop(change["type"], None)
            continue
        both = {**by_type.get(change["type"], {}), **change}
        by_type[change["type"]] = {key: value for key, value in both.items() if value is not None}
    return list(by_type.values())


def down(node: JsonObject, kinds: list[str], *, taint: bool = True) -> JsonObject:
    node = patched(node, memory.cordon_patch(view(node), taint=taint))
    return patched(node, memory.conditions_patch(view(node), tuple(kinds), None))


def up(node: JsonObject) -> JsonObject:
    node = patched(node, memory.uncordon_patch(view(node)))
    return patched(node, memory.restore_conditions_patch(view(node)))


def sorted_conditions(node: JsonObject) -> JsonObject:
    conditions = [
        {key: value for key, value in each.items() if key != "lastHeartbeatTime"}
        for each in node["status"]["conditions"]
    ]
    return {**node, "status": {"conditions": sorted(conditions, key=lambda each: str(each["type"]))}}


@given(NODES, SHOWN, st.booleans())
def test_taken_back(node: JsonObject, shown: list[list[str]], taint: bool) -> None:
    """After any number of announcements, a restore gives the original."""
    now = node
    for kinds in shown:
        now = down(now, kinds, taint=taint)
    assert bool(now["spec"].get("unschedulable"))
    assert memory.is_tainted(view(now)) == taint
    assert sorted_conditions(up(now)) == sorted_conditions(node)


@given(NODES, SHOWN)
def test_said_twice(node: JsonObject, shown: list[list[str]]) -> None:
    """Repeated writes and repeated restores are no-ops."""
    now = down(node, shown[0])
    assert memory.cordon_patch(view(now), taint=True) is None
    assert memory.conditions_patch(view(now), tuple(shown[0]), None) is None
    back = up(now)
    assert memory.uncordon_patch(view(back)) is None
    assert memory.restore_conditions_patch(view(back)) is None


@given(NODES, SHOWN, TAINTS, st.booleans())
def test_others_in_between(
    node: JsonObject, shown: list[list[str]], theirs: list[JsonObject], cut: bool
) -> None:
    """Others' changes between our writes stay, also after a crash half way."""
    now = patched(node, memory.cordon_patch(view(node), taint=True))
    if not cut:
        now = patched(now, memory.conditions_patch(view(now), tuple(shown[0]), None))
    now["spec"]["taints"] = [*theirs, *now["spec"]["taints"]]
    now["metadata"]["annotations"]["later"] = "y"
    back = up(now)
    assert back["spec"]["taints"] == [*theirs, *node["spec"]["taints"]]
    assert back["metadata"]["annotations"] == {"theirs": "x", "later": "y"}


@given(NODES)
def test_lost_note(node: JsonObject) -> None:
    """Without the note, our next write adopts our own marks."""
    now = down(node, list(KINDS))
    ours = memory.read_note(view(now)).conditions
    del now["metadata"]["annotations"][memory.CHANGED_ANNOTATION]
    back = up(down(now, list(KINDS)))
    assert not memory.is_tainted(view(back))
    assert not [each["type"] for each in back["status"]["conditions"] if each["type"] in ours]


@given(NODES, st.sampled_from(["", "{", "[]", '{"taint": 3}', '{"conditions": {"A": 1}}', '{"future": 1}']))
def test_spoilt_note(node: JsonObject, text: str) -> None:
    """A spoilt note, or a newer version's, blocks no write."""
    node["metadata"]["annotations"][memory.CHANGED_ANNOTATION] = text
    now = down(node, list(KINDS))
    assert memory.is_tainted(view(now))
    assert not memory.is_tainted(view(up(now)))
