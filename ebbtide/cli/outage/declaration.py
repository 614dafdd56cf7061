"""A declaration about a node: the comparison before it, its content, and the write to the Node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ebbtide.cli.common.guard import Refused
from ebbtide.cli.outage.outage_common import (
    HTTP_CONFLICT,
    Cluster,
    ago,
    alive_by,
    decoded,
    ready_text,
    refused,
)

if TYPE_CHECKING:
    from ebbtide.actors.edges.kubernetes.api_calls import ApiNode


REVIEW_SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
#: Other clients write to the Node too; each try compares it again.
TRIES_MAX = 5


class Seen(NamedTuple):
    """A node and its last heartbeats. ``mark``: the lease's renewTime."""

    node: ApiNode
    mark: str
    lease_seconds: int

    @property
    def uid(self) -> str:
        return self.node.metadata.uid

    @property
    def boot(self) -> str:
        return self.node.status.node_info.boot_id

    @property
    def status_mark(self) -> str:
        from ebbtide.actors.edges.kubernetes.api_calls import find_condition

        return str((find_condition(self.node.status.conditions, "Ready") or {}).get("lastHeartbeatTime"))


async def read_node(cluster: Cluster, name: str) -> Seen:
    """The present Node and lease. Raises Refused."""
    from ebbtide.actors.edges.kubernetes.node_view import ApiLease, lease_path, project_lease

    node = await get_node(cluster, name)
    lease = await cluster.one(lease_path(name), ApiLease)
    view = project_lease(lease or ApiLease())
    return Seen(node, view.mark, view.seconds)


async def user_name(cluster: Cluster) -> str:
    """Our name at the API server, if it fits a person's name; else empty."""
    from ebbtide.actors.edges.kubernetes.node_view import PERSON

    answer = await cluster.call(
        "POST", REVIEW_SELF, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    )
    if not answer.ok:
        return ""
    name = (
        decoded(answer, "ask who we are", dict[str, Any])
        .get("status", {})
        .get("userInfo", {})
        .get("username", "")
    )
    return name if PERSON.fullmatch(str(name)) else ""


def refuse_living(seen: Seen, before: Seen | None = None) -> None:
    """Raises Refused for a node that must not be declared off; ``before``: an earlier reading."""
    name = seen.node.metadata.name
    if before is not None and seen.uid != before.uid:
        raise Refused(
            f"{name} was made anew meanwhile, with UID {seen.uid}: look again, and declare that one"
        )
    if before is not None and seen.boot != before.boot:
        raise Refused(
            f"{name} has booted meanwhile (boot id {seen.boot}): it lives, so there is no declaration"
        )
    if before is not None and seen.mark != before.mark:
        raise Refused(
            f"{name} renewed its lease {ago(seen.mark) or 'meanwhile'}: it lives, so there is no declaration"
        )
    if before is not None and seen.status_mark != before.status_mark:
        raise Refused(f"{name} reported its status meanwhile: it lives, so there is no declaration")
    _refuse_contradicted(seen)
    if ready_text(seen.node.status.conditions) == "Ready":
        raise Refused(
            f"{name} is Ready: it lives, or has died less than a minute ago; declare it when it is Unknown"
        )
    if not seen.boot:
        raise Refused(f"{name} has no boot id in its status: a statement has to name one")
    if not seen.mark:
        raise Refused(
            f"{name} has no lease, or it was never renewed: a statement has to name its last heartbeat"
        )


def _refuse_contradicted(seen: Seen) -> None:
    """Raises Refused where this boot is declared alive: that statement would win."""
    from ebbtide.actors.edges.kubernetes.node_view import project_node

    name = seen.node.metadata.name
    if who := alive_by(project_node(seen.node)):
        raise Refused(
            f"{who} has declared that {name} lives, and that wins: ask, then take it back with"
            f" 'ebbtide outage declare {name} --alive --withdraw'"
        )


def statement_of(seen: Seen, by: str, seconds: int, reason: str) -> dict[str, Any]:
    """The annotation's content; ``at`` distinguishes it from an expired one with the same words."""
    from ebbtide.actors.edges.kubernetes.api_calls import rfc3339_now

    said = {"uid": seen.uid, "boot": seen.boot, "mark": seen.mark, "by": by, "seconds": seconds}
    said |= {"at": rfc3339_now()}
    return said | ({"reason": reason} if reason else {})


def alive_statement_of(node: ApiNode, by: str, seconds: int, reason: str) -> dict[str, Any]:
    """The same for a running node. Raises Refused."""
    from ebbtide.actors.edges.kubernetes.api_calls import rfc3339_now

    boot = node.status.node_info.boot_id
    if not boot:
        raise Refused(f"{node.metadata.name} has no boot id in its status: it has never been heard of")
    said = {"uid": node.metadata.uid, "boot": boot, "by": by, "seconds": seconds, "at": rfc3339_now()}
    return said | ({"reason": reason} if reason else {})


def annotation(statement: dict[str, Any] | None, *, alive: bool = False) -> dict[str, str | None]:
    import msgspec

    from ebbtide.actors.edges.kubernetes.node_view import ALIVE_ANNOTATION, DECLARED_ANNOTATION

    text = None if statement is None else msgspec.json.encode(statement).decode()
    return {ALIVE_ANNOTATION if alive else DECLARED_ANNOTATION: text}


async def get_node(cluster: Cluster, name: str) -> ApiNode:
    """Raises Refused."""
    from ebbtide.actors.edges.kubernetes.api_calls import ApiNode, node_path

    node = await cluster.one(node_path(name), ApiNode)
    if node is None:
        raise Refused(f"there is no Node {name}: 'kubectl get nodes' lists them")
    return node


async def annotate(cluster: Cluster, node: ApiNode, annotations: dict[str, str | None]) -> None:
    """Only if the Node has the same UID. Raises Refused."""
    from ebbtide.actors.edges.kubernetes.api_calls import MERGE_PATCH, node_path

    meta = node.metadata
    body = {"metadata": {"uid": meta.uid, "annotations": annotations}}
    answer = await cluster.call("PATCH", node_path(meta.name), body, MERGE_PATCH)
    if not answer.ok:
        raise refused(answer, f"patch the Node {meta.name}")


async def write(cluster: Cluster, name: str, seen: Seen, statement: dict[str, Any]) -> None:
    """Only if the Node did not change since the comparison. Raises Refused."""
    from ebbtide.actors.edges.kubernetes.api_calls import MERGE_PATCH, node_path

    for _ in range(TRIES_MAX):
        now = await read_node(cluster, name)
        refuse_living(now, seen)
        meta = {"uid": now.uid, "resourceVersion": now.node.metadata.resource_version}
        body = {"metadata": {**meta, "annotations": annotation(statement)}}
        answer = await cluster.call("PATCH", node_path(name), body, MERGE_PATCH)
        if answer.ok:
            return
        if answer.code != HTTP_CONFLICT:
            raise refused(answer, f"patch the Node {name}")
    raise Refused(f"{name} was changed by others at each of {TRIES_MAX} tries: try again")


async def withdraw_statement(cluster: Cluster, name: str, *, alive: bool) -> tuple[bool, bool]:
    """Whether an annotation existed, and whether our taint is set. Raises Refused."""
    from ebbtide.actors.edges.kubernetes.node_view import project_node

    node = await get_node(cluster, name)
    tainted = project_node(node).taint == "ours"
    nothing = annotation(None, alive=alive)
    if not nothing.keys() & node.metadata.annotations.keys():
        return False, tainted
    await annotate(cluster, node, nothing)
    return True, tainted
