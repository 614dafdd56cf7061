"""Shared by the verbs about a live cluster: credentials, requests, and errors.

They read once, with a person's own rights. They watch nothing and retry nothing: the person sees the error.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import click
import msgspec
import trio

from ebbtide.actors.edges.kubernetes.api_calls import (
    Answer,
    ApiCaller,
    ApiNode,
    JsonObject,
    ListPart,
    Unanswered,
    find_condition,
    list_in_parts,
    listed_path,
    node_path,
)
from ebbtide.actors.edges.kubernetes.leadership import LEASE, NOTE_ANNOTATION
from ebbtide.actors.edges.kubernetes.lease_requests import Requests, read_requests
from ebbtide.actors.edges.kubernetes.node_view import (
    ALIVE_SECONDS,
    ApiLease,
    NodeView,
    lease_path,
    project_lease,
    project_node,
)
from ebbtide.cli.common.guard import Refused
from ebbtide.config import fields as kinds
from ebbtide.config.schema import IN_CLUSTER
from ebbtide.events.record.format import visible
from ebbtide.events.units import short_span
from ebbtide.extras import require
from ebbtide.modes import in_a_pod

T = TypeVar("T")
S = TypeVar("S")
Verb = TypeVar("Verb", bound=Callable[..., int])

#: A person waits: a slower server counts as down.
ANSWER_SECONDS_MAX = 10.0
#: Of some KiB each.
PART_OBJECTS = 250
#: A leader renews every 2 s; after this time without a change there is none. Only this machine's clock is
#: used: a person's may be wrong by more than a Lease counts.
LEADER_SECONDS_MAX = 6.0
LEADER_LOOK_SECONDS = 0.25
#: Any client that may write the Lease can write the leader's note.
NOTE_CHARACTERS_MAX = 300
HTTP_UNAUTHORIZED, HTTP_FORBIDDEN, HTTP_NOT_FOUND, HTTP_CONFLICT = 401, 403, 404, 409


class Named(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # older versions of click have none
    """Checked: with an empty name a path would mean the list."""

    def __init__(self, kind: str) -> None:
        self.name = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name, dots = str(value), self.name != "namespace"
        pattern, length_max = (
            (kinds.DNS_SUBDOMAIN, kinds.SUBDOMAIN_LENGTH_MAX)
            if dots
            else (kinds.DNS_LABEL, kinds.LABEL_LENGTH_MAX)
        )
        if len(name) > length_max or not pattern.fullmatch(name):
            of = f"small letters, digits{', dots' if dots else ''} and '-', {length_max} at most"
            self.fail(f"{name!r} is no name of a {self.name}: {of}", param, ctx)
        return name


NODE_NAME, POD_NAME, NAMESPACE_NAME = Named("Node"), Named("pod"), Named("namespace")


def namespace_option_of(default: str, text: str, *short: str) -> Callable[[Verb], Verb]:
    return click.option(
        *short,
        "--namespace",
        default=default,
        show_default=True,
        metavar="NAME",
        type=NAMESPACE_NAME,
        help=text,
    )


namespace_option = namespace_option_of("ebbtide", "Where the controller, its Lease and the journals are.")
node_argument = click.argument("node", type=NODE_NAME)
by_option = click.option(
    "--by", metavar="NAME", help="Your name, for the record.  [default: your user name in the cluster]"
)


def chosen_kubeconfig(given: str | None) -> Path | None:
    """None: in-cluster. Raises Refused."""
    if given == IN_CLUSTER:
        return None
    # kubectl merges the files of KUBECONFIG; in the first one a context has its plain meaning.
    named = [given] if given else list(filter(None, os.environ.get("KUBECONFIG", "").split(os.pathsep)))
    for path in [Path(each) for each in named] or [Path.home() / ".kube" / "config"]:
        if path.is_file():
            return path
    if in_a_pod() and not named:
        return None
    places = ", ".join(named) or "~/.kube/config"
    raise Refused(f"no kubeconfig file {places}: name one with --kubeconfig PATH")


kubeconfig_option = click.option(
    "--kubeconfig",
    metavar="PATH",
    callback=lambda context, option, given: chosen_kubeconfig(given),
    help="The API server and your identity there: a file, or in-cluster for the pod's service account."
    "  [default: $KUBECONFIG, ~/.kube/config, in-cluster]",
)


class Cluster:
    def __init__(self, caller: ApiCaller) -> None:
        self.caller = caller

    async def call(
        self, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> Answer:
        """Raises Refused without an answer."""
        try:
            return await self.caller.call(
                method, path, body=body, content_type=content_type, seconds_max=ANSWER_SECONDS_MAX
            )
        except Unanswered as error:
            raise Refused(f"cannot ask the API server: {error}") from None

    async def one(self, path: str, kind: type[T]) -> T | None:
        """None: it does not exist. Raises Refused."""
        answer = await self.call("GET", path)
        return None if answer.code == HTTP_NOT_FOUND else decoded(answer, f"get {path}", kind)

    async def some(self, path: str, kind: type[T], project: Callable[[T], S], **fields: object) -> list[S]:
        """Complete; empty for a kind that the server lacks. Raises Refused.

        Each object may have 1.5 MB: ``project`` takes the needed part.
        """

        async def ask(asked: str) -> Answer:
            answer = await self.caller.call("GET", asked, seconds_max=ANSWER_SECONDS_MAX)
            if not answer.ok and answer.code != HTTP_NOT_FOUND:
                raise refused(answer, f"list {path}")
            return answer if answer.ok else Answer(200, b'{"metadata":{},"items":[]}')

        decoder = msgspec.json.Decoder(ListPart[kind])  # type: ignore[valid-type]
        try:
            found, _ = await list_in_parts(
                ask, partial(listed_path, path, **fields), decoder, project, PART_OBJECTS
            )
        except Unanswered as error:
            raise Refused(f"cannot ask the API server: {error}") from None
        return found


class Look:
    """``unseen``: the refusals. Objects of refused requests count as absent."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.unseen: list[str] = []

    async def may(self, work: Callable[[], Awaitable[T]]) -> T | None:
        try:
            return await work()
        except Refused as error:
            if error.message not in self.unseen:
                self.unseen.append(error.message)
            return None

    async def some(self, path: str, kind: type[S], project: Callable[[S], T], **fields: object) -> list[T]:
        return await self.may(lambda: self.cluster.some(path, kind, project, **fields)) or []

    async def one(self, path: str) -> JsonObject | None:
        return await self.may(lambda: self.cluster.one(path, dict[str, Any]))


def decoded(answer: Answer, what: str, kind: type[T]) -> T:
    """Raises Refused for a refusal or an unreadable answer."""
    if not answer.ok:
        raise refused(answer, what)
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the API server's answer to {what} cannot be read: {error}") from None


def refused(answer: Answer, what: str) -> Refused:
    """In the server's own words."""
    said = status_text(answer.body)
    if answer.code == HTTP_UNAUTHORIZED:
        return Refused("the API server rejects your credentials (401): renew the user in the kubeconfig")
    if answer.code == HTTP_FORBIDDEN:
        return Refused(said or f"the API server does not let us {what} (403)")
    return Refused(f"the API server refuses to {what}: {answer.code} {said}".rstrip())


def status_text(body: bytes) -> str:
    try:
        found = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return ""
    message = found.get("message") if isinstance(found, dict) else None
    return message if isinstance(message, str) else ""


def executed_code(ended: bytes) -> tuple[int | None, str]:
    """From the ``Status`` of a command's end; None with the reason."""
    try:
        status = msgspec.json.decode(ended, type=dict[str, Any])
        if status.get("status") == "Success":
            return 0, ""
        (cause,) = (each for each in status["details"]["causes"] if each["reason"] == "ExitCode")
        return int(cause["message"]), ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, status_text(ended) or "the connection was lost"


def ask_cluster(kubeconfig: Path | None, work: Callable[[Cluster], Awaitable[T]], context: str = "") -> T:
    """Raises Refused, PackagesMissing."""
    require("node", "this command")
    from ebbtide.actors.edges.kubernetes.api_client import ApiClient

    async def linked() -> T:
        link = ApiClient(kubeconfig, context=context)
        async with trio.open_nursery() as nursery:
            await nursery.start(link.run)
            found = await work(Cluster(link))
            nursery.cancel_scope.cancel()
        return found

    return trio.run(linked)


class Seen(NamedTuple):
    """``mark``: the lease's renewTime; empty: it has none."""

    node: ApiNode
    view: NodeView
    mark: str = ""
    lease_seconds: int = 0

    @property
    def ready(self) -> str:
        return ready_text(self.node.status.conditions)


async def see_node(cluster: Cluster, name: str, *, lease: bool = True) -> Seen | None:
    """None: no such Node. Raises Refused."""
    node = await cluster.one(node_path(name), ApiNode)
    if node is None:
        return None
    found = await cluster.one(lease_path(name), ApiLease) if lease else None
    view = project_lease(found or ApiLease())
    return Seen(node, project_node(node), view.mark, view.seconds)


def age_seconds(text: object, *, signed: bool = False) -> float:
    """Since a time in RFC 3339, by this machine's clock, never less than 0 unless ``signed``; NaN for other
    texts. Only for display.
    """
    try:
        then = datetime.fromisoformat(str(text))
        seconds = time.time() - then.timestamp() if then.tzinfo else math.nan
        return seconds if signed else max(0.0, seconds)
    except (ValueError, OverflowError):
        return math.nan


def ago(text: object) -> str:
    """Empty for other texts."""
    seconds = age_seconds(text)
    return "" if math.isnan(seconds) else f"{short_span(seconds)} ago"


def alive_by(node: NodeView) -> str:
    """The author of a statement that this boot runs; empty without one, or if it expired by this clock."""
    said = node.alive
    if said is None or said.problem or said.node_uid != node.uid or said.boot_id not in ("", node.boot_id):
        return ""
    return "" if age_seconds(said.at) > (said.seconds or ALIVE_SECONDS) else said.by


def ready_text(conditions: list[JsonObject]) -> str:
    status = (find_condition(conditions, "Ready") or {}).get("status")
    return {"True": "Ready", "False": "NotReady", "Unknown": "Unknown"}.get(str(status), "no Ready condition")


def leader_path(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases/{LEASE}"


class Leading(NamedTuple):
    """``holder``: renews the controller's Lease; empty: none does; None: no right to read it. ``blocked``:
    why the leader stores no record.
    """

    holder: str | None = ""
    blocked: str = ""
    requests: Requests | None = None

    def paused(self, node: str = "") -> str:
        """All pauses, or one node's; empty without one."""
        return visible(self.requests.pauses_text(node)) if self.requests is not None else ""


async def leader_of(cluster: Cluster, namespace: str) -> Leading:
    async def lease() -> tuple[Leading, str]:
        found: JsonObject = await cluster.one(leader_path(namespace), dict[str, Any]) or {}
        spec, said = found.get("spec") or {}, found.get("metadata", {}).get("annotations") or {}
        holder, blocked = spec.get("holderIdentity") or "", said.get(NOTE_ANNOTATION) or ""
        note = visible(str(blocked))[:NOTE_CHARACTERS_MAX]
        return Leading(str(holder), note, read_requests(found)), str(spec.get("renewTime") or "")

    try:
        leading, renewed = await lease()
        since = asked = trio.current_time()
        # A slow server is no dead leader: the last look begins after the time.
        while leading.holder and asked - since < LEADER_SECONDS_MAX:
            await trio.sleep(LEADER_LOOK_SECONDS)
            asked = trio.current_time()
            leading, renewed_now = await lease()
            if renewed_now != renewed:
                return leading
    except Refused:
        return Leading(None)
    return Leading(requests=leading.requests)
