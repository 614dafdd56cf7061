"""``ebbtide outage explain``: why a pod is still Terminating, from the live objects.

It needs no controller and no journal: `reasons` reads the objects, and judges.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace
from rich.console import RenderableType

from ebbtide.cli.common.guard import DONE, NOT_SO
from ebbtide.cli.common.output import NarrowTable, first_of_each, pairs, show, show_json
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.outage.outage_common import (
    NAMESPACE_NAME,
    NODE_NAME,
    POD_NAME,
    ask_cluster,
    kubeconfig_option,
    namespace_option,
)
from ebbtide.cli.outage.reasons import (
    AttachmentScene,
    Cause,
    NodeScene,
    PodScene,
    Scene,
    causes,
    gather,
    timer_text,
)
from ebbtide.events.messages import plural
from ebbtide.events.units import short_span

#: A node has a hundred pods: the output must fit on a screen.
ROWS_MAX = 20

EPILOG = """\b
Examples:
  ebbtide outage explain shop/db-0
  ebbtide outage explain worker-2
  ebbtide outage explain shop/db-0 -o json | jq -r '.causes[0].code'


Reads pods, Nodes, leases, PersistentVolumes and their claims, and VolumeAttachments; names objects that you
may not read. Exit code 1: something hangs.
"""


class Explanation(Struct, kw_only=True, rename="camel", tag_field="kind", tag="OutageExplanation"):
    """``pods``: the pods in the user's question."""

    version: int = 1
    subject: str
    causes: list[Cause]
    node: NodeScene | None
    pods: tuple[PodScene, ...]
    attachments: tuple[AttachmentScene, ...]
    leader: str | None
    paused: str
    unseen: tuple[str, ...]


def explanation(scene: Scene) -> Explanation:
    return Explanation(
        subject=scene.subject,
        causes=causes(scene),
        node=scene.node,
        pods=scene.asked,
        attachments=tuple(replace(each, timer=timer_text(scene, each)) for each in scene.attachments),
        leader=scene.leader,
        paused=scene.paused,
        unseen=scene.unseen,
    )


def pod_text(pod: PodScene) -> str:
    if pod.deleted is None:
        return "Ready" if pod.ready else pod.waiting or "not Ready"
    parts = [
        f"Terminating for {short_span(pod.deleted)}" if pod.deleted >= 0 else "Terminating, in its grace"
    ]
    parts += [f"finalizers: {', '.join(pod.finalizers)}"] if pod.finalizers else []
    parts += [f"tolerates {', '.join(pod.tolerates)}"] if pod.tolerates else []
    return "; ".join(parts)


def attachment_text(attachment: AttachmentScene) -> str:
    deleting = attachment.deleting
    state = "attached" if attachment.attached else "not attached yet"
    if deleting is not None:
        state = f"being detached for {short_span(deleting)}"
    elif not attachment.attached:
        return f"{state}: {attachment.error}" if attachment.error else state
    used = {True: "; the kubelet said that it is mounted", False: "; the kubelet has unmounted it", None: ""}
    return f"{state}{used[attachment.in_use]}"


def lines(found: Explanation) -> Iterator[RenderableType]:
    """The cause, its cures, the other causes, and the objects."""
    for cause, beyond in first_of_each(found.causes, lambda each: each.code):
        yield pairs([("cause" if cause is found.causes[0] else "also", cause.text)])
        if cause.do:
            yield pairs((f"  {number}.  ", step) for number, step in enumerate(cause.do, 1))
        if beyond:
            yield f"and {beyond} more of {cause.code}: see them all with -o json"
    yield ""
    node = found.node
    if node is not None:
        taint = f"out-of-service taint: {node.taint}" + (f" ({node.effect})" if node.effect else "")
        counts = f", for {short_span(node.declared_seconds)}" if node.declared_seconds else ""
        off = f"off, by {node.declared}{counts} from when the controller has read it"
        why = f"its statement does not count: {node.not_declared}"
        leader = {None: "cannot be seen", "": "no leader"}.get(found.leader, found.leader)
        rows = [
            ("node", f"{node.name}: {node.ready if node.there else 'gone'}; {taint}"),
            ("declared", off if node.declared else ""),
            ("not declared", why if node.not_declared else ""),
            ("declared", f"alive, by {node.alive}" if node.alive else ""),
            ("controller", str(leader)),
            ("paused", found.paused),
        ]
        yield pairs([*rows, *(("not seen", each) for each in found.unseen)])
    pods = [each for each in found.pods if each.deleted is not None or "/" in found.subject]
    if pods:
        yield ""
        listed = [(each.label, each.owner, pod_text(each)) for each in pods[:ROWS_MAX]]
        yield NarrowTable(("POD", "OWNER", "IS"), listed)
        if pods[ROWS_MAX:]:
            yield f"and {plural(len(pods) - ROWS_MAX, 'pod')} more: see them all with -o json"
    if found.attachments:
        yield ""
        rows_of = [
            (each.volume, each.node, each.driver, attachment_text(each), each.timer)
            for each in found.attachments[:ROWS_MAX]
        ]
        yield NarrowTable(("VOLUME", "NODE", "DRIVER", "IS", "SIX-MINUTE TIMER"), rows_of)
        if found.attachments[ROWS_MAX:]:
            yield f"and {plural(len(found.attachments) - ROWS_MAX, 'volume')} more: see them all with -o json"
        if any(row[-1] for row in rows_of):
            yield "no object shows whether the timer is disabled (disable-force-detach-on-timeout)"


class Subject(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # older versions of click have none
    """``NODE`` or ``NAMESPACE/POD``."""

    name = "subject"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        namespace, slash, name = str(value).partition("/")
        if not slash:
            return NODE_NAME.convert(value, param, ctx)
        return f"{NAMESPACE_NAME.convert(namespace, param, ctx)}/{POD_NAME.convert(name, param, ctx)}"


@click.command(epilog=EPILOG)
@click.argument("subject", type=Subject(), metavar="NODE|NAMESPACE/POD")
@kubeconfig_option
@namespace_option
@output_option("table", "json")
def explain(subject: str, kubeconfig: Path | None, namespace: str, output: str) -> int:
    """Explain why a pod is still Terminating, or what still hangs on a node: the cause, then the cures."""
    found = explanation(ask_cluster(kubeconfig, lambda each: gather(each, subject, namespace)))
    if output == "json":
        show_json(found)
    else:
        for each in lines(found):
            show(each)
    return NOT_SO if any(each.code != "nothing-hangs" for each in found.causes) else DONE
