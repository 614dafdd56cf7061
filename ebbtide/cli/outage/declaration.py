"""A declaration about a node: the comparison before it, its content, and the write to the Node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ebbtide.cli.common.guard import Refused
from ebbtide.cli.outage.outage_common import (
    HTTP_CONFLICT,
    Cluster,
    Seen,
    ago,
    alive_by,
    decoded,
    refused,
    see_node,
)
from ebbtide.events.units import short_span

if TYPE_CHECKING:
    from ebbtide.actors.edges.kubernetes.api_calls import Answer

REVIEW_SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
#: Other clients write to the Node too; each try compares it again.
TRIES_MAX = 5


class Statement(Struct, omit_defaults=True, kw_only=True):
    """The annotation's content. ``mark``: the last heartbeat, for "off". ``at`` distinguishes it from an
    expired one with the same words.
    """

    uid: str
    boot: str
    mark: str = ""
    by: str
    seconds: int
    at: str
    reason: str = ""


def statement_of(seen: Seen, by: str, seconds: int, reason: str) -> Statement:
    """Raises Refused."""
    from ebbtide.actors.edges.kubernetes.api_calls import rfc3339_now

    view = seen.view
    if not view.boot_id:
        raise Refused(f"{view.name} has no boot id in its status: a statement has to name one")
    return Statement(
        uid=view.uid,
        boot=view.boot_id,
        mark=seen.mark,
        by=by,
        seconds=seconds,
        at=rfc3339_now(),
        reason=reason,
    )


def statement_rows(seen: Seen, statement: Statement) -> list[tuple[str, str]]:
    """For people, before they confirm it."""
    view, heard = seen.view, ago(seen.mark)
    rows = [
        ("node", f"{view.name}, {seen.ready}"),
        ("UID", view.uid),
        ("machine", view.system_uuid or "not in its status"),
        ("boot id", view.boot_id),
        ("last heartbeat", f"{seen.mark}{f' ({heard}, by this clock)' if heard else ''}"),
        ("counts for", f"{short_span(statement.seconds)}, from when the controller sees it"),
        ("by", statement.by),
        ("reason", statement.reason),
        ("replaces", f"the statement of {view.declared.by or 'an unknown person'}" if view.declared else ""),
    ]
    return [(name, value) for name, value in rows if value]


def whole_seconds(lasting_ns: int) -> int:
    """Raises Refused."""
    from ebbtide.actors.edges.kubernetes.node_view import DECLARED_SECONDS_MAX
    from ebbtide.events.base import NS_PER_SECOND

    seconds, rest_ns = divmod(lasting_ns, NS_PER_SECOND)
    if rest_ns or not 0 < seconds <= DECLARED_SECONDS_MAX:
        raise Refused("--for must be whole seconds, from 1s to 168h: declare again for longer")
    return seconds


def refuse_name(who: str, *, given: bool) -> None:
    """Raises Refused."""
    from ebbtide.actors.edges.kubernetes.node_view import PERSON

    if not who:
        raise Refused("your name in the cluster does not fit the record: say who you are with --by NAME")
    if given and not PERSON.fullmatch(who):
        raise Refused(f"--by {who!r}: up to 64 letters, digits and ._@+-, as in ann@example.com")


async def read_node(cluster: Cluster, name: str, *, lease: bool = True) -> Seen:
    """Raises Refused."""
    seen = await see_node(cluster, name, lease=lease)
    if seen is None:
        raise Refused(f"there is no Node {name}: 'kubectl get nodes' lists them")
    return seen


async def user_name(cluster: Cluster) -> str:
    """Our name at the API server, if it fits a person's name; else empty."""
    from ebbtide.actors.edges.kubernetes.node_view import PERSON

    answer = await cluster.call(
        "POST", REVIEW_SELF, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    )
    if not answer.ok:
        return ""
    status = decoded(answer, "ask who we are", dict[str, Any]).get("status") or {}
    name = str((status.get("userInfo") or {}).get("username") or "")
    return name if PERSON.fullmatch(name) else ""


def refuse_living(seen: Seen, before: Seen | None = None) -> None:
    """Raises Refused for a node that lives, for another one than ``before``, or where this boot is declared
    alive: that statement would win.
    """
    view, name = seen.view, seen.view.name
    none = "it is alive: nothing was declared"
    if before is not None and view.uid != before.view.uid:
        raise Refused(f"{name} was made anew meanwhile: it is another Node now")
    if before is not None and view.boot_id != before.view.boot_id:
        raise Refused(f"{name} has booted meanwhile (boot id {view.boot_id}): {none}")
    if before is not None and seen.mark != before.mark:
        raise Refused(f"{name} renewed its lease {ago(seen.mark) or 'meanwhile'}: {none}")
    if before is not None and view.status_mark != before.view.status_mark:
        raise Refused(f"{name} reported its status meanwhile: {none}")
    if who := alive_by(view):
        raise Refused(
            f"{who} has declared that {name} lives, and that wins: ask, then take it back with"
            f" 'ebbtide outage declare {name} --alive --withdraw'"
        )
    if seen.ready == "Ready":
        raise Refused(
            f"{name} is Ready: it lives, or has died less than a minute ago; declare it when it is Unknown"
        )
    if not seen.mark:
        raise Refused(
            f"{name} has no lease, or it was never renewed: a statement has to name its last heartbeat"
        )


def annotation(statement: Statement | None, *, alive: bool) -> dict[str, str | None]:
    import msgspec

    from ebbtide.actors.edges.kubernetes.node_view import ALIVE_ANNOTATION, DECLARED_ANNOTATION

    text = None if statement is None else msgspec.json.encode(statement).decode()
    return {ALIVE_ANNOTATION if alive else DECLARED_ANNOTATION: text}


async def annotate(cluster: Cluster, seen: Seen, annotations: dict[str, str | None], **meta: str) -> Answer:
    """Only if the Node has the same UID, and the further ``meta``. Raises Refused, but for a conflict."""
    from ebbtide.actors.edges.kubernetes.api_calls import MERGE_PATCH, node_path

    body = {"metadata": {"uid": seen.view.uid, **meta, "annotations": annotations}}
    answer = await cluster.call("PATCH", node_path(seen.view.name), body, MERGE_PATCH)
    if not answer.ok and not (meta and answer.code == HTTP_CONFLICT):
        raise refused(answer, f"patch the Node {seen.view.name}")
    return answer


async def write_off(cluster: Cluster, name: str, seen: Seen, statement: Statement) -> None:
    """Only if the Node did not change since the comparison. Raises Refused."""
    for _ in range(TRIES_MAX):
        now = await read_node(cluster, name)
        refuse_living(now, seen)
        version = now.node.metadata.resource_version
        if (await annotate(cluster, now, annotation(statement, alive=False), resourceVersion=version)).ok:
            return
    raise Refused(f"{name} was changed by others at each of {TRIES_MAX} tries: try again")


async def withdraw_statement(cluster: Cluster, name: str, *, alive: bool) -> tuple[bool, bool]:
    """Whether an annotation existed, and whether our taint is set. Raises Refused."""
    seen = await read_node(cluster, name, lease=False)
    nothing = annotation(None, alive=alive)
    existed = bool(nothing.keys() & seen.node.metadata.annotations.keys())
    if existed:
        await annotate(cluster, seen, nothing)
    return existed, seen.view.taint == "ours"
