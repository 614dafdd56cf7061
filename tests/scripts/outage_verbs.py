"""The outage scripts' commands: node ``node-1``, UID ``n1``, boot ``b1``, UUID ``u1``.

``reads`` repeats the last Node with changes; ``about``: the boot in our taint's note. A pod is its name and
words: ``db-0 owner=StatefulSet/db tolerates terminating finalizers=a,b volumes=pv-a``; an attachment its
name, ``deleting``, ``error=words-with-dashes``, ``unique=name`` and ``driver=name``, with the volume's name
after ``pv-``. An owner's UID is its name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from ebbtide.actors.system import System
from ebbtide.events import outage_events as o
from ebbtide.events.base import Fact, Order, Record
from ebbtide.events.segment import OUTAGE_LOGIC
from tests.scripts.bench import Bench
from tests.scripts.parse import Command, duration_ns

NODE = {
    "ready": "True",
    "boot": "b1",
    "taint": "none",
    "about": "",
    "in-use": "",
    "lease": "l1",
    "status": "s1",
    "version": "1",
    "uuid": "u1",
    "first": "",
    "same-uuid": "",
    "provider": "",
    "same-provider": "",
}


def _word(text: str) -> Any:
    """Interned, as in edges and decoders: a default is omitted by identity."""
    return sys.intern(text)


def _leader(bench: Bench, command: Command) -> None:
    bench.daemon_runs = True
    settings = o.OutageSettings(
        effect=_word(command.options.get("effect", "NoExecute")),
        dry_run="dry-run" in command.words,
        power_off_seconds=duration_ns(command.options.get("power-off", "0s")) // 1_000_000_000,
        bound="bound" in command.words,
        proof_seconds=duration_ns(command.options.get("proof", "60s")) // 1_000_000_000,
        reminder_seconds=duration_ns(command.options.get("reminder", "60s")) // 1_000_000_000,
    )
    bench.feed(
        o.LeaderStarted(
            version="0",
            replica=command.options.get("replica", "a"),
            node="node-1",
            node_uid="n1",
            settings=settings,
        )
    )


def _lost_journal(bench: Bench, command: Command) -> None:
    """The records are unreadable: the next leader starts a new journal."""
    next_seq = bench.system.next_seq
    bench.system = System(logic=OUTAGE_LOGIC)
    bench.system.next_seq, bench.daemon_runs = next_seq, False
    bench.orders.clear()


def _reads(bench: Bench, command: Command) -> None:
    seen: dict[str, str] = vars(bench).setdefault("node_seen", dict(NODE))
    if command.words:
        seen["ready"] = command.words[0]
    seen["version"] = str(int(seen["version"]) + 1)
    seen.update(command.options)
    bench.feed(
        o.NodeRead(
            uid="n1",
            boot_id=seen["boot"],
            ready=_word(seen["ready"]),
            resource_version=seen["version"],
            system_uuid=seen["uuid"],
            first_uuid=seen["first"],
            same_uuid_node=seen["same-uuid"],
            provider_id=seen["provider"],
            same_provider_node=seen["same-provider"],
            taint=_word(seen["taint"]),
            volumes_in_use=tuple(each for each in seen["in-use"].split(",") if each),
            lease_mark=seen["lease"],
            status_mark=seen["status"],
            taint_boot=seen["about"],
        )
    )


def _beats(bench: Bench, command: Command) -> None:
    """``beats lease=l2``"""
    seen: dict[str, str] = vars(bench).setdefault("node_seen", dict(NODE))
    seen.update(command.options)
    for source, mark in command.options.items():
        bench.feed(o.HeartbeatSeen(mark=mark, source=_word(source)))


def _says(bench: Bench, command: Command) -> None:
    """``says redfish off uuid=u1``: asked now, or ``ago`` a duration."""
    source, verdict = command.words
    given = command.options
    named = {"redfish": "systemUUID", "ipmi": "systemUUID", "cloud": "systemUUID"}.get(source, "nodeUID")
    named = given.get("by", named)
    identity = {"systemUUID": "u1", "nodeUID": "n1", "nodeName": "node-1", "providerID": "aws:///z/i-1"}[
        named
    ]
    bench.feed(
        o.EvidenceRead(
            source=_word(source),
            name=given.get("name", ""),
            verdict=_word(verdict),
            begun_ns=bench.now_ns - duration_ns(given.get("ago", "0s")),
            identity_kind=_word(named),
            identity=given.get("uuid", identity),
            boot_id=given.get("boot", ""),
            mark=given.get("mark", ""),
            status_mark=given.get("status", ""),
            valid_seconds=duration_ns(given.get("valid", "0s")) // 1_000_000_000,
            at=given.get("at", ""),
        )
    )


def _pod(line: str) -> o.LostPod:
    name, *words = line.split()
    given = dict(word.split("=", 1) for word in words if "=" in word)
    owner = given.get("owner", "")
    return o.LostPod(
        uid=name,
        namespace="default",
        name=name,
        owner=owner,
        owner_uid=owner.partition("/")[2],
        same_name=owner.startswith("StatefulSet/"),
        daemon="daemon" in words,
        tolerates="tolerates" in words,
        terminating="terminating" in words,
        finalizers=tuple(each for each in given.get("finalizers", "").split(",") if each),
        volumes=tuple(each for each in given.get("volumes", "").split(",") if each),
    )


def _attachment(line: str) -> o.Attachment:
    name, *words = line.split()
    given = dict(word.split("=", 1) for word in words if "=" in word)
    error = given.get("error", "").replace("-", " ")
    return o.Attachment(
        name=name,
        volume=f"pv-{name}",
        driver=given.get("driver", "drv"),
        deleting="deleting" in words,
        error=error,
        unique_name=given.get("unique", ""),
    )


def _work(bench: Bench, command: Command) -> None:
    """``work``, with ``more=5`` for so many that are not followed, and a line each: ``pod …`` or ``va …``.
    After the taint the list repeats by itself; ``meanwhile`` adds objects only to that.
    """
    lines = [line.partition(" ") for line in command.body]
    pods = {pod.uid: pod for pod in (_pod(rest) for kind, _, rest in lines if kind == "pod")}
    attached = {each.name: each for each in (_attachment(rest) for kind, _, rest in lines if kind == "va")}
    since, more = len(bench.records), int(command.options.get("more", "0"))

    def find(order: Order, records: list[Record]) -> o.WorkListed | None:
        found = _found_again(bench.records[since:], pods, attached, order, records)
        return found and replace(found, more=more)

    bench.finds = find
    if "meanwhile" in command.words:
        return
    bench.feed(
        o.WorkListed(
            key=bench.open_key(o.ListWork),
            pods=tuple(pods.values()),
            attachments=tuple(attached.values()),
            more=int(command.options.get("more", "0")),
        )
    )


def _found_again(
    told: list[Record],
    pods: dict[str, o.LostPod],
    attached: dict[str, o.Attachment],
    order: Order,
    records: list[Record],
) -> o.WorkListed | None:
    """The last list with later reports. The script gives a new leader's list."""
    kinds = [type(each.event) for each in records]
    if not isinstance(order, o.ListWork) or o.OutOfService not in kinds or o.OutageBegan in kinds:
        return None
    pods, attached = dict(pods), dict(attached)
    for event in (each.event for each in told):
        match event:
            case o.LostPodRead() if event.pod.uid in pods:
                pods[event.pod.uid] = event.pod
            case o.LostPodGone():
                pods.pop(event.uid, None)
            case o.AttachmentRead() if event.attachment.name in attached:
                attached[event.attachment.name] = event.attachment
            case o.AttachmentGone():
                attached.pop(event.name, None)
    return o.WorkListed(key=order.key, pods=tuple(pods.values()), attachments=tuple(attached.values()))


def _elsewhere(command: Command) -> o.ElsewhereRead:
    """``elsewhere db-0b name=db-0 owner=db node=node-2 ready``, with ``namespace=other``."""
    uid, given = command.words[0], command.options
    return o.ElsewhereRead(
        uid=uid,
        namespace=given.get("namespace", "default"),
        name=given.get("name", uid),
        owner_uid=given["owner"],
        node=given.get("node", ""),
        ready="ready" in command.words,
        waiting=given.get("waiting", ""),
    )


def _last_boot(command: Command) -> o.LastBootStated:
    """``boot-ended b1 cut-short why=panic wave=2 by=b2``"""
    (boot, ending), given = command.words, command.options
    return o.LastBootStated(
        boot_id=boot,
        ending=_word(ending),
        why=_word(given.get("why", "")),
        wave=int(given.get("wave", "-1")),
        journal_id="a" * 32,
        trace_id="b" * 32 if ending in ("cut-short", "graceful") else "",
        said_by=given.get("by", "b2"),
    )


OUTAGE_FACTS: dict[str, Callable[[Command], Fact | Iterable[Fact]]] = {
    "silent": lambda command: o.HeartbeatMissed(silent_ns=duration_ns(command.words[0]), mark="l1"),
    "pod-read": lambda command: (o.LostPodRead(pod=_pod(line)) for line in command.body),
    "pod-gone": lambda command: (o.LostPodGone(uid=uid) for uid in command.words),
    "va-read": lambda command: (o.AttachmentRead(attachment=_attachment(line)) for line in command.body),
    "va-gone": lambda command: (o.AttachmentGone(name=name) for name in command.words),
    "elsewhere": _elsewhere,
    "boot-ended": _last_boot,
    "deleted": lambda command: o.NodeDeleted(replaced="replaced" in command.words),
    "owner": lambda command: o.OwnerRead(
        namespace=command.options.get("namespace", "default"),
        owner_uid=command.words[0],
        wants=int(command.options["wants"]),
        ready=int(command.options["ready"]),
    ),
    "pauses": lambda command: o.PauseRead(by=command.options.get("by", "")),
    "closes": lambda command: o.CloseRead(by="ann", why="scaled down", at=command.options["at"]),
}

OUTAGE_VERBS: dict[str, Callable[[Bench, Command], list[str] | None]] = {
    "leader": _leader,
    "journal-lost": _lost_journal,
    "reads": _reads,
    "beats": _beats,
    "says": _says,
    "work": _work,
}
