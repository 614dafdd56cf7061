"""The doctor's dry run: may we taint this node?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ebbtide.actors.edges.kubernetes import api_client as light
from ebbtide.actors.edges.kubernetes.api_calls import Answer
from ebbtide.doctor.node_looks import examine_api_server, look_at_api_server
from ebbtide.doctor.rules import ApiServerState
from tests.actors.edges.kubernetes.write_fake import Scripted
from tests.node.client import Object

OURS = {"key": "ebbtide.dev/shutting-down", "effect": "NoSchedule"}
THEIRS = {"key": "example.com/theirs", "effect": "NoSchedule"}
NODE = "/api/v1/nodes/node-1"


def answered(taints: list[Object], patch: Answer) -> Scripted:
    said: Mapping[str, Any] = {"metadata": {}, "spec": {"taints": taints}}

    def behave(asked: Any) -> tuple[float, Answer]:
        if asked.method == "PATCH":
            return 0.0, patch
        return 0.0, Answer(200, json.dumps(said if asked.path == NODE else {}).encode())

    return Scripted(behave)


@pytest.mark.parametrize("code, may", [(200, True), (403, False), (422, False), (404, None), (500, None)])
async def test_what_the_dry_run_says(code: int, may: bool | None) -> None:
    """A refusal by NodeRestriction or by our policy is a no; a failure is no proof."""
    server = answered([THEIRS, OURS], Answer(code, b"{}"))
    api, _ = await examine_api_server(server, ApiServerState(), "node-1")
    assert api.taint is may
    patches = {each.path: each.body for each in server.asked if each.method == "PATCH"}
    assert patches[f"{NODE}?dryRun=All"] == {"spec": {"taints": [THEIRS, OURS]}}
    assert all("?dryRun=All" in path for path in patches)


@pytest.mark.parametrize("code, confined", [(200, False), (422, True), (403, None), (404, None), (500, None)])
async def test_whether_a_policy_is_in_force(code: int, confined: bool | None) -> None:
    """A role without the right hides the policy."""
    server = answered([], Answer(code, b"{}"))
    api, _ = await examine_api_server(server, ApiServerState(), "node-1")
    assert api.confined is confined


async def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding names the missing package and the fix."""
    monkeypatch.setattr(light, "PACKAGE", "no_such_package")
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": ""}}],
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    api, _ = await look_at_api_server(path, "node-1")
    assert "[node]'" in api.problem
