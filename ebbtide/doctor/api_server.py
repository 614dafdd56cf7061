"""The doctor's look at the API server: our identity, our rights, our Node and its pods.

Each call is a read, a review or a dry run, and changes no object. The calls run side by side, since a distant
server makes each of them slow.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import trio

from ebbtide.actors.edges.kubernetes.api_calls import (
    JSON,
    MERGE_PATCH,
    Answer,
    ApiCaller,
    Unanswered,
)
from ebbtide.actors.edges.kubernetes.api_client import ApiClient, ClientMissing
from ebbtide.actors.edges.kubernetes.credentials import UnusableCredentials, in_cluster, read_kubeconfig
from ebbtide.actors.edges.kubernetes.known_pods import KnownPod
from ebbtide.actors.edges.kubernetes.pod_object import PodObject, project_pod
from ebbtide.actors.edges.linux.bus import side_by_side
from ebbtide.doctor import snapshot

#: For a shutdown, a server that needs longer is away.
API_SECONDS_MAX = 5.0
#: A label that we never set.
FOREIGN_LABEL = {"metadata": {"labels": {"ebbtide.dev/never": "set"}}}
TAINT = {"key": "ebbtide.dev/shutting-down", "effect": "NoSchedule"}

REVIEW_SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW_ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, INVALID = 401, 403, 404, 422
TERMINAL_PHASES = ("Succeeded", "Failed")
#: A node has at most some hundred pods: one list is enough.
PODS_MAX = 1000


async def look_at_api_server(
    kubeconfig: Path | None, node: str
) -> tuple[snapshot.ApiServerState, tuple[KnownPod, ...]]:
    """``kubeconfig`` None: the service account of our own pod. Does not raise."""
    source = "in-cluster" if kubeconfig is None else str(kubeconfig)
    found = snapshot.ApiServerState(source=source)
    try:
        await trio.to_thread.run_sync(
            in_cluster if kubeconfig is None else partial(read_kubeconfig, kubeconfig)
        )
    except UnusableCredentials as error:
        return found._replace(problem=str(error)), ()
    # The daemon's own client, as in a shutdown.
    link = ApiClient(kubeconfig)
    async with trio.open_nursery() as nursery:
        try:
            await nursery.start(link.run)
        except ClientMissing as error:
            return found._replace(problem=str(error)), ()
        try:
            return await examine_api_server(link, found, node)
        finally:
            nursery.cancel_scope.cancel()


async def examine_api_server(
    caller: ApiCaller, found: snapshot.ApiServerState, node: str
) -> tuple[snapshot.ApiServerState, tuple[KnownPod, ...]]:
    """The same through an open connection."""
    try:
        who = await ask_bounded(
            caller, "POST", REVIEW_SELF, _review_object("SelfSubjectReview", "authentication", None)
        )
        if who.code == UNAUTHORIZED:
            return found._replace(
                problem="401 Unauthorized: the token or certificate is wrong or too old"
            ), ()
        # A server before 1.28 has no such review: our name stays unknown.
        if isinstance(info := _body_field(who, "status", "userInfo"), dict):
            found = found._replace(user=str(info.get("username", "")))
        own = f"/api/v1/nodes/{quote(node)}"
        denied, (known, taint), foreign, pods = await side_by_side(
            Unanswered,
            lambda: _denied_rights(caller, node, found.user),
            lambda: _node_and_taint(caller, node),
            lambda: ask_bounded(caller, "PATCH", f"{own}/status?dryRun=All", FOREIGN_LABEL, MERGE_PATCH),
            lambda: ask_bounded(caller, "GET", pods_path(node)),
        )
        listed = known_pods_of(pods.body) if pods.ok else ()
    except (Unanswered, ValueError) as error:
        return found._replace(problem=str(error)), ()
    # A dry run that the role allows and the policy refuses; None where the role refuses it.
    confined = False if foreign.ok else True if foreign.code == INVALID else None
    is_known = True if known.ok else False if known.code == NOT_FOUND else None
    return found._replace(denied=denied, taint=taint, confined=confined, known=is_known), listed


class _Pods(msgspec.Struct):
    items: list[PodObject] = []


def known_pods_of(body: bytes) -> tuple[KnownPod, ...]:
    """A PodList's pods that have not ended. Raises ValueError."""
    try:
        listed = msgspec.json.decode(body, type=_Pods).items
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its list of pods cannot be read: {error}") from None
    return tuple(project_pod(each) for each in listed if each.status.phase not in TERMINAL_PHASES)


def pods_path(node: str) -> str:
    """A node's identity may list pods only with this selector."""
    return f"/api/v1/pods?fieldSelector=spec.nodeName%3D{quote(node)}&limit={PODS_MAX}"


async def ask_bounded(
    caller: ApiCaller, method: str, path: str, body: object = None, content_type: str = JSON
) -> Answer:
    """Raises Unanswered."""
    return await caller.call(method, path, body=body, content_type=content_type, seconds_max=API_SECONDS_MAX)


def _review_object(kind: str, group: str, spec: object) -> dict[str, object]:
    made: dict[str, object] = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind}
    return made if spec is None else made | {"spec": spec}


def _body_field(answer: Answer, *names: str) -> Any:
    """Raises ValueError where the body is no JSON."""
    value: Any = json.loads(answer.body) if answer.ok else None
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


async def _denied_rights(caller: ApiCaller, node: str, user: str) -> tuple[snapshot.Right, ...]:
    """The `RIGHTS` that the server denies. A review that fails counts as no denial."""
    asked = [
        each
        for each in snapshot.RIGHTS
        if each != snapshot.RIGHT_NOT_OF_NODES or not user.startswith(snapshot.NODE_USER)
    ]
    questions = []
    for right in asked:
        # As a shutdown uses it: a list with its selector, a Node by its name. Without them the answer is
        # about all nodes, which a node's identity is refused.
        spec: dict[str, object] = {"verb": right.verb, "resource": right.resource, "group": right.group}
        if right.subresource:
            spec["subresource"] = right.subresource
        if right.resource == "nodes":
            spec["name"] = node
        if right.verb in ("list", "watch"):
            only = {"key": "spec.nodeName", "operator": "In", "values": [node]}
            spec["fieldSelector"] = {"requirements": [only]}
        review = _review_object("SelfSubjectAccessReview", "authorization", {"resourceAttributes": spec})
        questions.append(partial(ask_bounded, caller, "POST", REVIEW_ACCESS, review))
    answers = await side_by_side(Unanswered, *questions)
    return tuple(
        right
        for right, answer in zip(asked, answers, strict=True)
        if _body_field(answer, "status", "allowed") is False
    )


async def _node_and_taint(caller: ApiCaller, node: str) -> tuple[Answer, bool | None]:
    """The Node, and whether we may taint it."""
    known = await ask_bounded(caller, "GET", f"/api/v1/nodes/{quote(node)}")
    # A dry run goes through admission, where NodeRestriction or our own policy refuses the taint; a review
    # does not. The patch replaces all taints, so it contains the others too.
    taints = _body_field(known, "spec", "taints") or []
    ours = [each for each in taints if each.get("key") != TAINT["key"]] + [TAINT]
    path = f"/api/v1/nodes/{quote(node)}?dryRun=All"
    answer = await ask_bounded(caller, "PATCH", path, {"spec": {"taints": ours}}, MERGE_PATCH)
    return known, True if answer.ok else False if answer.code in (FORBIDDEN, INVALID) else None
