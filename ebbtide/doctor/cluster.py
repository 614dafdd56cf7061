"""Looking at the API server for the doctor: who we are, what we may do, our Node, and its pods.

Every question is a read, a review, or a dry run: nothing there is changed. They go out side by side, since a
server far away makes each of them slow.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import trio

from actors.edges.kubernetes.calling import JSON, MERGE_PATCH, Answer, Caller, Unanswered
from actors.edges.kubernetes.kubeconfig import Unusable, in_cluster, read
from actors.edges.kubernetes.light import Missing
from actors.edges.kubernetes.link import Link
from actors.edges.side_by_side import side_by_side
from ebbtide.doctor.certificate import validity
from ebbtide.doctor.listed import Listed, pods_in
from ebbtide.doctor.rights import NOT_OF_NODES, RIGHTS
from ebbtide.doctor.seen import NODE_USER, Api, Right, Validity

#: A person waits for the doctor; a server that needs longer is as good as away for a shutdown.
API_SECONDS_MAX = 5.0
TAINT = {"key": "ebbtide.dev/shutting-down", "effect": "NoSchedule"}

REVIEW_SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW_ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, INVALID = 401, 403, 404, 422
#: A node has at most some hundred pods: one list is enough. Objects of this size are not a node's pods.
PODS_MAX = 1000


async def look(kubeconfig: Path | None, node: str) -> tuple[Api, Listed]:
    """Ask everything, bounded; ``kubeconfig`` None: as the pod that we run in. Raises nothing."""
    source = "in-cluster" if kubeconfig is None else str(kubeconfig)
    found = Api(source=source)
    try:
        access = await trio.to_thread.run_sync(
            in_cluster if kubeconfig is None else partial(read, kubeconfig)
        )
    except Unusable as error:
        return found._replace(problem=str(error)), Listed()
    if access.certificate and (times := validity(access.certificate)):
        found = found._replace(certificate=Validity(source, *times))
    link = Link(kubeconfig)
    async with trio.open_nursery() as nursery:
        try:
            await nursery.start(link.run)
        except Missing as error:
            return found._replace(problem=str(error)), Listed()
        try:
            return await examine(link, found, node)
        finally:
            nursery.cancel_scope.cancel()


async def examine(caller: Caller, found: Api, node: str) -> tuple[Api, Listed]:
    """The same through a connection that is there."""
    try:
        who = await _ask(caller, "POST", REVIEW_SELF, _review("SelfSubjectReview", "authentication", None))
        if who.code == UNAUTHORIZED:
            return found._replace(
                problem="401 Unauthorized: the token or certificate is wrong or too old"
            ), Listed()
        found = found._replace(**_user(who))
        denied, (known, taint), pods = await side_by_side(
            Unanswered,
            lambda: _denied(caller, node, found.user),
            lambda: _node(caller, node),
            lambda: _ask(caller, "GET", pods_path(node)),
        )
        listed = pods_in(pods.body) if pods.ok else Listed()
    except (Unanswered, ValueError) as error:
        return found._replace(problem=str(error)), Listed()
    return found._replace(denied=denied, taint=taint, known=_known(known)), listed


def pods_path(node: str) -> str:
    """This node's pods; a node's identity may only list with this selector."""
    return f"/api/v1/pods?fieldSelector=spec.nodeName%3D{quote(node)}&limit={PODS_MAX}"


async def _ask(
    caller: Caller, method: str, path: str, body: object = None, content_type: str = JSON
) -> Answer:
    return await caller.call(method, path, body=body, content_type=content_type, seconds_max=API_SECONDS_MAX)


def _review(kind: str, group: str, spec: object) -> dict[str, object]:
    made: dict[str, object] = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind}
    return made if spec is None else made | {"spec": spec}


def _user(answer: Answer) -> dict[str, Any]:
    """A server before 1.28 does not tell: who we are is then not known."""
    info = _field(answer, "status", "userInfo")
    if not isinstance(info, dict):
        return {}
    groups = info.get("groups")
    return {"user": str(info.get("username", "")), "groups": tuple(map(str, groups or ()))}


def _field(answer: Answer, *names: str) -> Any:
    """Raises ValueError for what is no JSON."""
    value: Any = json.loads(answer.body) if answer.ok else None
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


async def _denied(caller: Caller, node: str, user: str) -> tuple[Right, ...]:
    """Those of `RIGHTS` that the server says no to; a review that fails says nothing."""
    asked = [each for each in RIGHTS if each != NOT_OF_NODES or not user.startswith(NODE_USER)]
    questions = [partial(_ask, caller, "POST", REVIEW_ACCESS, _access(right, node)) for right in asked]
    answers = await side_by_side(Unanswered, *questions)
    return tuple(
        right
        for right, answer in zip(asked, answers, strict=True)
        if _field(answer, "status", "allowed") is False
    )


def _access(right: Right, node: str) -> dict[str, object]:
    """Asked as it will be used: a list with its selector, a Node by its name."""
    asked: dict[str, object] = {"verb": right.verb, "resource": right.resource, "group": right.group}
    if right.subresource:
        asked["subresource"] = right.subresource
    if right.resource == "nodes":
        asked["name"] = node
    if right.verb in ("list", "watch"):
        only = {"key": "spec.nodeName", "operator": "In", "values": [node]}
        asked["fieldSelector"] = {"requirements": [only]}
    return _review("SelfSubjectAccessReview", "authorization", {"resourceAttributes": asked})


async def _node(caller: Caller, node: str) -> tuple[Answer, bool | None]:
    """The Node, and whether we may taint it."""
    known = await _ask(caller, "GET", f"/api/v1/nodes/{quote(node)}")
    return known, await _may_taint(caller, node, known)


async def _may_taint(caller: Caller, node: str, known: Answer) -> bool | None:
    """A dry run of the taint goes through admission, where NodeRestriction, or our own policy, refuses it; a
    review does not. Others' taints are in it: a patch replaces them all.
    """
    taints = _field(known, "spec", "taints") or []
    ours = [each for each in taints if each.get("key") != TAINT["key"]] + [TAINT]
    path = f"/api/v1/nodes/{quote(node)}?dryRun=All"
    answer = await _ask(caller, "PATCH", path, {"spec": {"taints": ours}}, MERGE_PATCH)
    return True if answer.ok else False if answer.code in (FORBIDDEN, INVALID) else None


def _known(answer: Answer) -> bool | None:
    return True if answer.ok else False if answer.code == NOT_FOUND else None
