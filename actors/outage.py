"""OutageActor: one node's outage, from the first suspicion to the last record (docs/outage.md).

    quiet -> suspected -> asking -> tainting -> recovering -> out -> untainting -> (following) -> quiet
               ^  ^        |   reading |            quarantined -> untainting
               |  +--------|-----------+        aside: another controller's taint
               +- switching (the machine off)
                                     any -> gone: the Node is deleted

A node is put out of service when it is not Ready **and** a proof counts (`actors.outage_proof`), after the
storm brake has granted a permit (``asking``). The taint's order names everything it was decided from. If any
of that has changed, the edge does not write, and the actor reads the Node again (``reading``). An actor
follows each pod and volume (`actors.outage_work`) to its end (``recovering``, then ``out``).

The way back depends on the boot id: with another boot the taint is removed, with the boot that was proved off
the node is ``quarantined``. Only a status names its boot: a starting kubelet may renew its lease long before.

The answer to a power-off (``switching``) is no proof: the sources are read again.

Only `_consider`, `_switch_off`, `_quarantine` and `_untaint` change the cluster; in a dry run they record the
change instead. A failed taint is never repeated before the Node is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Literal, get_args

from msgspec.structs import replace

from ebbtide.actors.actor import (
    EVERY,
    NEVER_NS,
    ActorType,
    Result,
    Row,
    State,
    Transitions,
    fresh_but,
    ignored,
    takes,
)
from ebbtide.actors.outage_proof import NO_UUID, POWER, PROOF, UUID_PROBLEMS, Machine
from ebbtide.actors.outage_work import DETACH, STUCK_POD, is_unsafe
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events import kinds
from ebbtide.events import outage_events as o
from ebbtide.events.base import (
    NS_PER_SECOND,
    BoundedDict,
    BoundedTuple,
    Event,
    Order,
    order_key,
    parse_order_key,
)
from ebbtide.events.outage_events import NodesCounted

NAME = "OutageActor"

OutagePhase = Literal[
    "quiet",
    "suspected",
    "asking",
    "tainting",
    "switching",
    "reading",
    "recovering",
    "out",
    "quarantined",
    "untainting",
    "following",
    "gone",
    "aside",
]

#: A read is two requests, and a hundred outages share the controller's 20 requests a second.
READ_RETRY_NS = 10 * NS_PER_SECOND
#: By the number of failed writes in a row. One request may fail by chance. Missing rights or an overloaded
#: API server last minutes, and each refused taint costs some ten requests.
RETRIES_NS = tuple(seconds * NS_PER_SECOND for seconds in (5, 10, 20, 40, 60))
#: How often in a row a taint is decided anew at once because the Node has changed.
CHANGES_AT_ONCE = 3
#: Between two requests for a permit, and how long one allows the next command.
PERMIT_RETRY_NS = 15 * NS_PER_SECOND
#: Between two commands to switch off. A machine is off within seconds, a hung management controller restarts
#: within minutes, and both must be read twice.
POWER_OFF_PAUSE_NS = 300 * NS_PER_SECOND
#: In one outage: a management controller that reported success three times is broken if the machine is on.
POWER_OFFS_MAX = 3
#: Readings of the sources before a command: a management controller's proof takes two, and the machine may be
#: off already.
READINGS_BEFORE = 2
#: Its kubelet reports the node down, or has stopped reporting.
DOWN: tuple[o.Ready, ...] = ("False", "Unknown")

#: Why the node is not out of service, or not back. Others begin with `BRAKE_SAYS`.
NO_CONDITION, NOT_PROVED, IS_READY, TAKEN_AWAY, NOT_OURS, NO_STATUS, PAUSED, *DRY = WAITS = (
    "the Node has no Ready condition",
    "no proof that the machine is off",
    "the node is Ready",
    "another client has removed our taint: declare the machine off again to have it set again",
    "by its note the taint on the node is not ours any more: it stays until it is removed by hand",
    "the node has renewed its lease, and no status has named its boot yet",
    "paused by a person: no taint, and no power-off",
    "dry run: the node would be out of service now",
    "dry run: the machine would be switched off now",
    "dry run: the node would be quarantined now",
    "dry run: our taint would be taken away now",
)
#: Without a valid systemUUID a management controller is no proof.
UNPROVED = {each: f"{NOT_PROVED}: {each}" for each in UUID_PROBLEMS if each != NO_UUID}
DRY_TAINT, DRY_POWER_OFF, DRY_QUARANTINE, DRY_UNTAINT = DRY
BRAKE_SAYS = "the storm brake: "
ANOTHERS = "another controller's taint stands on the node"
UNRECORDED = "a proof that is not on record"
#: A sign of life of the boot that was proved off.
REPORTS, IS_READY_NOW = "it reports its status", "Ready is True"
NOT_FOLLOWED = "{} more, not followed"
#: Why the machine is not switched off any more; also `UUID_PROBLEMS`.
STILL_NOT_PROVED = "no proof that the machine is off, however often it was switched off"

# The storm brake (docs/outage.md): each node *in recovery* has a place from its permit until its work is
# elsewhere.

#: Above this share of the nodes in service a broken view is likelier than so many dead nodes, and the rest
#: could not take over their work.
DEAD_PERCENT_MAX = 50
#: From so many nodes on the share is two at least: the second one's volumes need not wait for the first.
TWO_FROM_NODES = 5
#: Work that hangs for longer takes no place: it waits for a person or an owner. Longer than the six-minute
#: timer and an attacher's tries.
PLACE_NS = 900 * NS_PER_SECOND

NOT_SEEN, MANY_DEAD, FEW_HEALTHY, *_LIMITED, NO_PLACE, BEHIND = REFUSALS = (
    "the controller's own view is broken: it sees no lease renewed",
    "the controller's own view is broken: more than half of all nodes look dead at once",
    "healthy nodes: {}; at least {} must be",
    "control-plane nodes out of service: {}; at most {} may be",
    "etcd's PodDisruptionBudget allows no disruption",
    "nodes of its pool in recovery: {}; at most {} may be",
    "nodes of its zone in recovery: {}; at most {} may be",
    "nodes in recovery: {}; at most {} may be",
    "the free places are for nodes that asked earlier",
)
LIMITED = dict(zip(("control-plane", "etcd", "pool", "zone"), _LIMITED, strict=True))
#: Every reason that `refusal` gives.
REFUSAL = re.compile("|".join(re.escape(each).replace(r"\{\}", r"\d+") for each in REFUSALS))


def refusal(counted: NodesCounted) -> str:
    """Why the node may not be out of service; empty: it may."""
    healthy, recovering, dead = counted.healthy, counted.recovering, counted.dead
    if not counted.sees_leases:
        return NOT_SEEN
    # The asking node looks dead too.
    if (dead + 1) * 100 > (healthy + dead + 1) * DEAD_PERCENT_MAX:
        return MANY_DEAD
    if healthy < counted.min_healthy:
        return FEW_HEALTHY.format(healthy, counted.min_healthy)
    if limited := limit_of(counted):
        return limited
    nodes = healthy + recovering + dead + 1
    share = max(2 if nodes >= TWO_FROM_NODES else 1, nodes * counted.max_share_percent // 100)
    places = min(counted.max_nodes, share)
    if recovering >= places:
        return NO_PLACE.format(recovering, places)
    return BEHIND if recovering + counted.ahead >= places else ""


def limit_of(counted: NodesCounted) -> str:
    """The limit of the node's part of the cluster. A node that it refuses is not ahead of nodes elsewhere."""
    for each in counted.limits:
        if each.out >= each.most:
            return LIMITED[each.part].format(each.out, each.most)
    return ""


class OutageState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    phase: OutagePhase = "quiet"
    node: str = ""
    node_uid: str = ""
    effect: o.Effect = "NoExecute"
    dry_run: bool = False
    reminder_ns: int = 3600 * NS_PER_SECOND
    #: 0: never switch the machine off.
    power_off_ns: int = 0
    resource: BoundedDict[str, str] = {}
    #: By whom.
    paused: str = ""
    #: The last request to close, over all outages.
    close_at: str = ""
    # As last read from the Node.
    boot_id: str = ""
    machine: Machine = Machine()
    #: The configuration names its system.
    bound: bool = False
    ready: o.Ready = ""
    resource_version: str = ""
    taint: o.TaintOwner = "none"
    taint_boot: str = ""
    volumes_in_use: BoundedTuple[kinds.VolumeInUse] = ()
    lease_mark: str = ""
    status_mark: str = ""
    #: This leader has seen a heartbeat since the last one was missed.
    heard: bool = False
    #: Sources that report a running node, not only a machine with power.
    opposed: tuple[kinds.ProofSource, ...] = ()
    # This outage.
    proof: kinds.ProofSource = ""
    proof_until_ns: int = 0
    #: The proof that the taint was ordered for.
    taint_proof: kinds.ProofSource = ""
    #: The boot on record when it began, and the one that was proved off.
    first_boot: str = ""
    off_boot: str = ""
    #: Another client has removed our taint. Only a declaration with another time than ``removed_at``
    #: counts.
    removed: bool = False
    declared_at: str | None = None
    removed_at: str | None = None
    permit: bool = False
    #: When the brake granted it. A permit older than `PERMIT_RETRY_NS` allows no command.
    permit_ns: int = 0
    #: The latest end of its place in recovery.
    place_ns: int = NEVER_NS
    counted: o.NodesCounted | None = None
    waits: kinds.OutageWait = ""
    returned: bool = False
    #: The boot that was proved off has given a sign of life.
    wrong: bool = False
    #: Our quarantine was ordered and not removed.
    quarantine: bool = False
    #: The first status with which it was Ready in quarantine. Only a later one counts: a kubelet that has
    #: just started reports Ready and no volume in use before it has found the mounted ones (measured: 0.9 s
    #: before it released one).
    ready_mark: str | None = None
    listed: bool = False
    #: An earlier list of this outage is on record.
    known: bool = False
    #: What hangs: labels of pods by UID, of volumes by attachment.
    pods: BoundedDict[kinds.Uid, kinds.PodReference] = {}
    attachments: BoundedDict[kinds.Uid, str] = {}
    #: The outage does not wait for these: their actors have failed, or a person asked to close it.
    unknown: BoundedTuple[kinds.Uid] = ()
    #: Over all lists, so that no actor is created twice.
    followed: BoundedTuple[kinds.Uid] = ()
    #: As in the last `WorkListed`, for the next leader.
    elsewhere: BoundedTuple[kinds.Uid] = ()
    #: So many pods and attachments are not followed.
    more: int = 0
    #: The ProofActor has failed: no contradiction is reported.
    blind: bool = False
    #: Since when this leader has seen the node down without a sign of life.
    down_ns: int = NEVER_NS
    #: Completed ones, up to `READINGS_BEFORE`.
    readings: int = 0
    #: How often the machine was switched off. The permit is kept until ``switch_ns``, the earliest next time,
    #: also in the next outage.
    switched: int = 0
    switch_ns: int = 0
    #: On record that it is not switched off any more, or in a dry run that it would be.
    gave_up: bool = False
    #: The order to switch off is withdrawn unless it has begun.
    withdrawn: bool = False
    #: Failed writes in a row, and taints in a row that found a changed Node.
    refused: int = 0
    changed: int = 0
    key: str = ""
    wake_ns: int = NEVER_NS
    #: Over all outages.
    ordinal: int = 0

    @property
    def uuid_problem(self) -> str:
        return "" if self.bound else self.machine.uuid_problem

    @property
    def not_proved(self) -> str:
        return UNPROVED.get(self.uuid_problem, NOT_PROVED)


KEPT_FIELDS = (
    *("node", "node_uid", "effect", "dry_run", "reminder_ns", "power_off_ns", "resource"),
    *("bound", "paused", "close_at", "boot_id", "machine", "ready", "resource_version", "taint"),
    *("taint_boot", "volumes_in_use"),
    *("lease_mark", "status_mark", "heard", "opposed", "switch_ns", "ordinal"),
)

#: Without an outage, or with the node back, a renewed lease has no effect.
WELL = ("quiet", "quarantined", "untainting", "following", "gone")
#: In these phases a taint has a place, until the work is elsewhere.
PLACED = ("recovering", "quarantined", "gone", "aside")
#: In these phases the taint is, or may be, ours.
TAINTED = ("recovering", "out", "quarantined", "untainting")


# fmt: off
_REBOOTED = (o.NodeReturned, o.ReturnPermit, o.RemoveTaint, o.OutageWaits)
_SAME_BOOT = (o.ReturnPermit, o.ProofWasWrong, o.NodeReturned, o.SetQuarantine, o.OutageWaits)
_CONSIDER = (
    *(o.OutageWaits, o.StoodAside, o.RequestPermit, o.ReturnPermit, o.SetTaint, o.PowerOff),
    *(o.PowerOffGivenUp, o.OutOfService, o.ListWork, o.WorkRecovered, *_REBOOTED),
)
_BEGIN = (o.OutageBegan, *_CONSIDER)
_CLOSE = (d.CancelOrder, o.ReturnPermit, o.OutageClosed)
_FOLLOW = (*_CLOSE, *_BEGIN)
_CONSIDERED = "suspected aside asking tainting switching recovering out untainting"
_UNTAINTED = f"following quiet {_CONSIDERED}"
_BEFORE = "suspected asking tainting switching reading"
_TAINTED = "recovering out"
_WAITING = "recovering out quarantined untainting following gone"
_OPEN = f"{_BEFORE} {_WAITING} aside"

def _transitions() -> Transitions:
    return Transitions(
        get_args(OutagePhase), attrgetter("phase"),
        # --- the process
        Row("quiet", o.LeaderStarted,
            lambda state, event, now: (replace(_configured(state, event, now), proof=""), ())),
        Row(f"{_BEFORE} aside", o.LeaderStarted, _started_before, "reading", (o.ReadNode, o.ListWork)),
        Row(f"{_TAINTED} following gone", o.LeaderStarted,
            lambda state, event, now: _with_list(*_placed_anew(_configured(state, event, now), now)),
            decides=(o.ReturnPermit, o.ListWork)),
        # If our taint is gone, the outage ends or another begins.
        Row("quarantined untainting", o.LeaderStarted, _started_back, f"= {_UNTAINTED}",
            (o.ListWork, o.SetQuarantine, o.RemoveTaint, *_FOLLOW)),
        # --- the Node
        Row("quiet", o.NodeRead, _read_quiet, f"= {_CONSIDERED}", _BEGIN),
        Row(_BEFORE, o.NodeRead, _read_suspected, f"= quiet quarantined following {_CONSIDERED}",
            (*_CONSIDER, *_SAME_BOOT, *_CLOSE)),
        Row("aside", o.NodeRead, _read_aside, f"= quiet {_CONSIDERED}", (*_CONSIDER, *_CLOSE)),
        Row(_TAINTED, o.NodeRead, _read_tainted, f"= quarantined {_UNTAINTED}",
            (*_SAME_BOOT, *_FOLLOW)),
        Row("quarantined", o.NodeRead, _read_quarantined, f"= {_UNTAINTED}", _FOLLOW),
        Row("untainting", o.NodeRead, _read_untainting, f"= {_UNTAINTED}", _FOLLOW),
        Row("following", o.NodeRead, _read_following, f"= quarantined {_UNTAINTED}", (*_SAME_BOOT, *_FOLLOW)),
        # A new leader finds it after all.
        Row("gone", o.NodeRead, lambda state, event, now: _consider(_with_node(state, event, now), now),
            _CONSIDERED, _CONSIDER),
        Row(_OPEN, o.NodeDeleted, _deleted, "gone quiet", _CLOSE),
        Row(_BEFORE, o.HeartbeatSeen, _heartbeat_before, "= quiet quarantined",
            (d.CancelOrder, *_SAME_BOOT, *_CLOSE)),
        Row("recovering out following", o.HeartbeatSeen, _heartbeat_off, "= quarantined", _SAME_BOOT),
        Row("quiet quarantined untainting aside gone", o.HeartbeatSeen,
            lambda state, event, now: (_marked(state, event, now), ())),
        Row("quiet", o.HeartbeatMissed, _missed_quiet, _CONSIDERED, _BEGIN),
        Row(_OPEN, o.HeartbeatMissed, _missed),
        # --- the proof
        Row("quiet", o.ProofAccepted, _proof_quiet, _CONSIDERED, _BEGIN),
        Row(f"{_BEFORE} aside", o.ProofAccepted, _proof, f"= {_CONSIDERED}", _CONSIDER),
        Row(f"{_BEFORE} aside quiet", o.ProofVoided, _no_proof, "= quiet",
            (d.CancelOrder, o.OutageWaits, *_CLOSE)),
        Row("following", o.ProofAccepted, _declared_again, decides=(o.ReadSources,)),
        Row("following", o.ProofVoided, takes(proof="")),
        ignored("recovering out quarantined untainting gone", o.ProofAccepted, o.ProofVoided),
        Row(f"{_BEFORE} aside quiet", d.ActorFailed, _failed_before, "= quiet",
            (d.CancelOrder, o.OutageWaits, *_CLOSE)),
        Row(_WAITING, d.ActorFailed, _actor_failed, "= out quiet", (o.WorkRecovered, *_CLOSE)),
        Row(f"quiet suspected asking tainting reading aside {_WAITING}", o.Contradicted, _contradicted),
        Row("switching", o.Contradicted, _contradicted, decides=(d.CancelOrder,)),
        Row(EVERY, o.ContradictionEnded, _contradiction_ended),
        # --- a person's requests
        Row(EVERY, o.PauseRead, _paused, f"= {_CONSIDERED}", (d.CancelOrder, o.ReadSources, *_CONSIDER)),
        Row(_OPEN, o.CloseRead, _asked_to_close, "= out quiet untainting following",
            (o.WorkRecovered, o.RemoveTaint, o.OutageWaits, *_FOLLOW)),
        ignored("quiet", o.CloseRead),
        # --- outcomes and deadlines
        Row("suspected", f.OrderEnded, _sources_read),
        Row("switching", f.OrderEnded, _own(_switch_ended), f"= reading {_CONSIDERED}",
            (o.ReadNode, *_CONSIDER)),
        Row("asking", o.NodesCounted,
            lambda state, event, now: (
                replace(state, counted=event) if event.key == state.key else state, ())),
        ignored(f"quiet suspected tainting switching reading aside {_WAITING}", o.NodesCounted),
        Row("asking", f.OrderEnded, _own(_permit_ended), f"following {_CONSIDERED}", _CONSIDER),
        Row("tainting", f.OrderEnded, _own(_taint_ended), "= reading recovering out untainting",
            (o.OutOfService, o.ListWork, o.WorkRecovered, o.ReadNode, *_REBOOTED)),
        Row("reading", f.OrderEnded, _own(_read_ended), f"= quiet quarantined following {_CONSIDERED}",
            (*_CONSIDER, *_SAME_BOOT, *_CLOSE)),
        Row("quarantined", f.OrderEnded, _own(_quarantine_ended), "= untainting",
            (o.ReturnPermit, o.RemoveTaint)),
        Row("untainting", f.OrderEnded, _own(_untaint_ended), f"= {_UNTAINTED}", _FOLLOW),
        Row("following", f.OrderEnded,
            _own(lambda state, event, now: (
                _consider(state, now) if state.proof else (replace(state, key=""), ()))),
            f"= {_CONSIDERED}", _CONSIDER),
        ignored("quiet recovering out gone aside", f.OrderEnded),
        Row("suspected", f.Tick, lambda state, event, now: _consider(state, now), _CONSIDERED, _CONSIDER),
        Row("reading", f.Tick, lambda state, event, now: _read(state), decides=(o.ReadNode,)),
        Row("recovering out aside gone", f.Tick, _ticked(_remind),
            decides=(o.ReturnPermit, o.OutageReminded)),
        Row("following", f.Tick, _tick_following, f"= {_UNTAINTED}",
            (o.OutageReminded, o.ReadSources, *_FOLLOW)),
        Row("quarantined", f.Tick, _ticked(lambda state, event, now: (
                _quarantine(state, now) if state.key else _remind(state, event, now))),
            decides=(o.ReturnPermit, o.OutageReminded, o.SetQuarantine)),
        Row("untainting", f.Tick,
            lambda state, event, now: _remind(state, event, now) if state.dry_run else _untaint(state, now),
            decides=(o.OutageReminded, o.RemoveTaint)),
        ignored("quiet asking tainting switching", f.Tick),
        # --- what hangs
        Row(_OPEN, o.WorkListed, _listed, "= out quiet",
            (o.PodLost, o.AttachmentLeft, o.DetachForced, o.OutOfService, o.WorkRecovered, *_CLOSE)),
        Row(_OPEN, o.PodRecovered, _pod_ended, "= out quiet", (o.WorkRecovered, *_CLOSE)),
        Row(_OPEN, o.Detached, _detached, "= out quiet", (o.WorkRecovered, *_CLOSE)),
        ignored("quiet", o.NodeDeleted, o.WorkListed, o.PodRecovered, o.Detached),
    )
# fmt: on


def _ordered(
    state: OutageState, what: str, kind: Callable[..., Order], *, awaited: bool = True, **fields: Any
) -> Result:
    """``what`` is a part of its key. ``awaited``: the phase waits for its outcome."""
    key = order_key(NAME, what, "", state.ordinal)
    state = replace(state, ordinal=state.ordinal + 1, key=key if awaited else state.key)
    return state, [kind(key=key, **fields)]


def _own(
    ended: Callable[[OutageState, f.OrderEnded, int], Result],
) -> Callable[[OutageState, f.OrderEnded, int], Result]:
    """Calls ``ended`` only for the order that the phase waits for."""
    return lambda state, event, now: ended(state, event, now) if event.key == state.key else (state, ())


def _listing(state: OutageState) -> Result:
    return _ordered(state, "list", o.ListWork, awaited=False, node=state.node)


def _cancel_open(state: OutageState) -> Result:
    """Cancels the awaited order unless it has begun."""
    return _ordered(state, "cancel", d.CancelOrder, awaited=False, target=state.key, waiting_only=True)


def _hanging(state: OutageState) -> tuple[str, ...]:
    more = [NOT_FOLLOWED.format(state.more)] if state.more else []
    return (*more, *state.pods.values(), *state.attachments.values())


# --- begin and end


def _begin(state: OutageState, reason: str, now: int) -> Result:
    proved = {"proof": state.proof, "proof_until_ns": state.proof_until_ns}
    down_ns = now if state.ready in DOWN else NEVER_NS
    state = fresh_but(
        state, KEPT_FIELDS, phase="suspected", down_ns=down_ns, first_boot=state.boot_id, **proved
    )
    began = o.OutageBegan(
        node=state.node,
        node_uid=state.node_uid,
        boot_id=state.boot_id,
        reason=reason,
        resource=state.resource,
    )
    state, listing = _listing(state)
    after, decisions = _consider(state, now)
    return after, [began, *listing, *decisions]


def _close(state: OutageState, outcome: o.OutageOutcome) -> Result:
    outcome = "proof-wrong" if state.wrong else outcome
    closed = o.OutageClosed(outcome=outcome, unrecovered=_hanging(state))
    # Also without an answer yet: returning a permit that was not granted is a no-op.
    state, orders = _permit_back(replace(state, permit=state.permit or state.phase == "asking"))
    state, cancel = _withdraw(state)
    # The ProofActor forgets the proof as well: it was for this outage.
    return fresh_but(state, KEPT_FIELDS), [*cancel, *orders, closed]


def _permit_back(state: OutageState) -> Result:
    if not state.permit:
        return state, ()
    state = replace(state, permit=False, place_ns=NEVER_NS)
    return _ordered(state, "return-permit", o.ReturnPermit, awaited=False, node=state.node)


def _wait(state: OutageState, reason: str, **more: Any) -> Result:
    decisions: list[Event] = [o.OutageWaits(reason=reason)] if reason != state.waits else []
    return replace(state, waits=reason, key="", **more), decisions


# --- the one decision


def _consider(state: OutageState, now: int) -> Result:
    state = replace(state, phase="suspected", key="", wake_ns=NEVER_NS, place_ns=NEVER_NS)
    if state.removed:
        # Our taint was removed: stay in ``following`` until it is set again. After a reboot a tick follows at
        # once and may end the outage.
        over = state.boot_id != state.off_boot
        state = replace(state, phase="following", wake_ns=now if over else now + state.reminder_ns)
    if state.taint == "ours":
        # Set by an order with an unknown outcome.
        return _out_of_service(state, now, found=True)
    if state.taint == "other":
        # The taint has a place, but it is no permit for one of ours.
        state = replace(state, phase="aside", permit=True, permit_ns=now - PERMIT_RETRY_NS)
        state = replace(state, place_ns=now + PLACE_NS, wake_ns=now + state.reminder_ns)
        after, orders = _recovered(state)
        return after, [o.StoodAside(), *orders]
    why = ""
    if state.ready == "":
        why = NO_CONDITION
    elif state.paused:
        why = PAUSED
    elif not state.proof or state.proof_until_ns <= now:
        if _switch_ns(state) <= now:
            return _switch_off(state, now)
        why = TAKEN_AWAY if state.removed else state.not_proved
    elif state.ready == "True":
        why = IS_READY
    elif state.dry_run:
        why = DRY_TAINT
    if why:
        # Until the sources were read, a machine that was switched off counts as out of service: it keeps its
        # permit.
        after, orders = (state, ()) if now < state.switch_ns else _permit_back(state)
        after, waits = _wait(after, why)
        return after, [*orders, *waits]
    if not _is_permitted(state, now):
        return _ask(state)
    state = replace(state, phase="tainting", waits="", taint_proof=state.proof, off_boot=state.boot_id)
    return _ordered(
        state,
        "taint",
        o.SetTaint,
        resource_version=state.resource_version,
        effect=state.effect,
        **_decided_from(state),
    )


def _decided_from(state: OutageState) -> dict[str, Any]:
    """The edge compares it with the Node before it acts."""
    names = ("node", "node_uid", "boot_id", "ready", "lease_mark", "status_mark")
    return {name: getattr(state, name) for name in names}


def _is_permitted(state: OutageState, now: int) -> bool:
    return state.permit and now < state.permit_ns + PERMIT_RETRY_NS


def _ask(state: OutageState) -> Result:
    return _ordered(replace(state, phase="asking", counted=None), "permit", o.RequestPermit, node=state.node)


def _switch_ns(state: OutageState) -> int:
    """When to switch the machine off. Never with a sign of life, with a proof, or before the readings."""
    may = state.power_off_ns > 0 and not (state.gave_up or state.paused) and not state.removed
    dead = state.ready in DOWN and not state.opposed and not state.blind
    if not may or not dead or state.proof or state.readings < READINGS_BEFORE:
        return NEVER_NS
    return max(state.down_ns + state.power_off_ns, state.switch_ns)


def _switch_off(state: OutageState, now: int) -> Result:
    if why := STILL_NOT_PROVED if state.switched >= POWER_OFFS_MAX else state.uuid_problem:
        after, orders = _permit_back(replace(state, gave_up=True))
        after, waits = _wait(after, state.not_proved)
        return after, [*orders, o.PowerOffGivenUp(ordered=state.switched, reason=why), *waits]
    if state.dry_run:
        return _wait(replace(state, gave_up=True), DRY_POWER_OFF)
    if not _is_permitted(state, now):
        return _ask(state)
    state = replace(state, switched=state.switched + 1, readings=0, withdrawn=False, waits="")
    return _ordered(
        replace(state, phase="switching", switch_ns=now + POWER_OFF_PAUSE_NS),
        "power-off",
        o.PowerOff,
        system_uuid="" if state.machine.uuid_problem else state.machine.system_uuid,
        silent_ns=state.power_off_ns,
        **_decided_from(state),
    )


def _switch_ended(state: OutageState, event: f.OrderEnded, now: int) -> Result:
    if event.reason == o.CHANGED or event.result == "cancelled":
        # No command was sent: the Node has changed, or this leader's watch was broken. So the silence counts
        # from now on.
        switched, why = state.switched - 1, state.uuid_problem
        given_up = [o.PowerOffGivenUp(ordered=switched, reason=why)] if why else []
        state, orders = _read(replace(state, switched=switched, switch_ns=0, down_ns=now, gave_up=bool(why)))
        return state, [*given_up, *orders]
    return _consider(replace(state, switch_ns=now + POWER_OFF_PAUSE_NS), now)


def _withdraw(state: OutageState) -> Result:
    """A sign of life: cancel what still waits at its barrier. Once: a heartbeat and the voided proof come in
    one step.
    """
    if state.phase == "tainting" and state.proof:
        return _cancel_open(replace(state, proof=""))
    if state.phase == "switching" and not state.withdrawn:
        return _cancel_open(replace(state, withdrawn=True))
    return state, ()


def _contradicted(state: OutageState, event: o.Contradicted, now: int) -> Result:
    if event.source in POWER:
        return state, ()  # a machine that is on is the reason to switch it off
    state = replace(state, opposed=(*state.opposed, o.who_of(event)))
    # A taint is withdrawn with its proof.
    return _withdraw(state) if state.phase == "switching" else (state, ())


def _contradiction_ended(state: OutageState, event: o.ContradictionEnded, now: int) -> Result:
    return replace(state, opposed=tuple(each for each in state.opposed if each != o.who_of(event))), ()


def _sources_read(state: OutageState, event: f.OrderEnded, now: int) -> Result:
    read = parse_order_key(event.key).what == "sources" and event.result == "done"
    return replace(state, readings=min(state.readings + read, READINGS_BEFORE)), ()


def _permit_ended(state: OutageState, event: f.OrderEnded, now: int) -> Result:
    refused = refusal(state.counted) if state.counted else ""
    if state.counted and not refused and event.result == "done":
        return _consider(replace(state, permit=True, permit_ns=now), now)
    reason = f"{BRAKE_SAYS}{refused or event.reason or event.result}"
    # A refusal ends an earlier permit, but a machine that was switched off keeps its place.
    after, orders = _permit_back(state) if refused and now >= state.switch_ns else (state, ())
    phase: OutagePhase = "suspected" if not state.removed else "following"
    after, waits = _wait(after, reason, phase=phase, wake_ns=now + PERMIT_RETRY_NS)
    return after, [*orders, *waits]


def _taint_ended(state: OutageState, event: f.OrderEnded, now: int) -> Result:
    if event.result == "done":
        return _out_of_service(state, now)
    # Cancelled before it began, or refused because the Node has changed: no write took place. Read it first.
    if event.result == "cancelled":
        return _read(state)
    if event.reason == o.CHANGED and state.changed < CHANGES_AT_ONCE:
        return _read(replace(state, changed=state.changed + 1))
    return _refused(state, now, phase="reading", key="")


def _refused(state: OutageState, now: int, **more: Any) -> Result:
    wake_ns = now + RETRIES_NS[min(state.refused, len(RETRIES_NS) - 1)]
    return replace(state, refused=state.refused + 1, changed=0, wake_ns=wake_ns, **more), ()


def _read(state: OutageState) -> Result:
    return _ordered(replace(state, phase="reading", wake_ns=NEVER_NS), "read", o.ReadNode)


def _read_ended(state: OutageState, event: f.OrderEnded, now: int) -> Result:
    if event.result != "done":
        return replace(state, key="", wake_ns=now + READ_RETRY_NS), ()
    return _calm(state, now) or _consider(state, now)


# --- the node before the taint


def _with_node(state: OutageState, event: o.NodeRead, now: int) -> OutageState:
    """A sign of life voids the proof; the ProofActor records that later in the step."""
    marks = (state.lease_mark, event.lease_mark), (state.status_mark, event.status_mark)
    lives = any(old and new and old != new for old, new in marks) or event.boot_id != state.boot_id
    since_ns = now if lives or state.down_ns == NEVER_NS else state.down_ns
    machine = state.machine.read(event)
    return replace(
        state,
        node_uid=event.uid,
        boot_id=event.boot_id,
        machine=machine,
        # Not if another Node stops naming it: that kubelet could do so again and again.
        gave_up=state.gave_up and machine.system_uuid == state.machine.system_uuid,
        ready=event.ready,
        resource_version=event.resource_version,
        taint=event.taint,
        taint_boot=event.taint_boot,
        volumes_in_use=event.volumes_in_use,
        lease_mark=event.lease_mark or state.lease_mark,
        status_mark=event.status_mark or state.status_mark,
        proof="" if lives else state.proof,
        down_ns=since_ns if event.ready in DOWN else NEVER_NS,
    )


def _read_quiet(state: OutageState, event: o.NodeRead, now: int) -> Result:
    state = _with_node(state, event, now)
    if event.taint == "ours":
        return _begin(state, "our taint stands on the node", now)
    if event.ready in ("False", "Unknown"):
        return _begin(state, f"Ready is {event.ready}", now)
    return state, ()


def _calm(state: OutageState, now: int) -> Result | None:
    """Ready, and rebooted or with a heartbeat that this leader has seen: over without a taint. A new leader
    waits for its list, which may show a detach while no leader watched.
    """
    if state.removed:
        return _same_boot(state, IS_READY_NOW, now) if _is_off(state) and state.ready == "True" else None
    unlisted = not state.listed and state.attachments
    if state.ready != "True" or state.proof or state.taint != "none" or unlisted:
        return None
    if state.first_boot not in ("", state.boot_id):
        return _close(state, "rebooted")
    return _close(state, "false-alarm") if state.heard else None


def _read_suspected(state: OutageState, event: o.NodeRead, now: int) -> Result:
    before, state = state, _with_node(state, event, now)
    if closed := _calm(state, now):
        return closed
    if state.proof and state.machine != before.machine:
        return state, ()  # the ProofActor decides later in the step whether it still counts
    if state.phase == "switching" and state.uuid_problem:
        return _withdraw(state)
    # Wait for the outcome of an open order.
    waits = state.phase != "suspected" or (state.wake_ns != NEVER_NS and state.taint == "none")
    return (state, ()) if waits else _consider(state, now)


def _read_aside(state: OutageState, event: o.NodeRead, now: int) -> Result:
    state = _with_node(state, event, now)
    if state.taint == "other":
        return state, ()
    # The other controller may have restarted the machine.
    state = replace(state, down_ns=now if state.ready in DOWN else NEVER_NS)
    return _close(state, "left-to-other") if state.ready == "True" else _consider(state, now)


def _heartbeat_before(state: OutageState, event: o.HeartbeatSeen, now: int) -> Result:
    state = _marked(state, event, now)
    if state.removed and event.source == "status" and _is_off(state):
        return _same_boot(state, REPORTS, now)
    # The order names an older mark, so the edge would refuse it.
    if state.phase in ("tainting", "switching"):
        return _withdraw(state)
    state = replace(state, proof="")
    return _calm(state, now) or (state, ())


def _marked(state: OutageState, event: o.HeartbeatSeen, now: int) -> OutageState:
    down_ns = NEVER_NS if state.down_ns == NEVER_NS else now
    state = replace(state, heard=True, down_ns=down_ns)
    if event.source == "lease":
        return replace(state, lease_mark=event.mark)
    return replace(state, status_mark=event.mark)


def _missed_quiet(state: OutageState, event: o.HeartbeatMissed, now: int) -> Result:
    state = replace(state, heard=False, lease_mark=state.lease_mark or event.mark)
    return _begin(state, f"no renewal of the lease for {event.silent_ns // NS_PER_SECOND} s", now)


def _missed(state: OutageState, event: o.HeartbeatMissed, now: int) -> Result:
    return replace(state, heard=False, lease_mark=state.lease_mark or event.mark), ()


def _proof(state: OutageState, event: o.ProofAccepted, now: int) -> Result:
    state = _with_proof(state, event)
    return _consider(state, now) if state.phase == "suspected" and state.wake_ns == NEVER_NS else (state, ())


def _with_proof(state: OutageState, event: o.ProofAccepted) -> OutageState:
    if event.source == "declared":
        state = replace(state, declared_at=event.at)
    return replace(state, proof=o.who_of(event), proof_until_ns=event.until_ns)


def _declared_again(state: OutageState, event: o.ProofAccepted, now: int) -> Result:
    """Another client knew why it removed our taint: only a person's later statement on this boot counts."""
    new = event.source == "declared" and event.at != state.removed_at
    if not (new and state.removed and _is_off(state)):
        return state, ()
    state = _with_proof(state, event)
    # While the sources are read (``key``), their proof comes here too.
    return (state, ()) if state.key else _reconsider(state)


def _reconsider(state: OutageState) -> Result:
    """First ask whether a source contradicts: the ProofActor rests."""
    return _ordered(state, "sources", o.ReadSources, node=state.node)


def _proof_quiet(state: OutageState, event: o.ProofAccepted, now: int) -> Result:
    state = _with_proof(state, event)
    return _begin(state, f"{state.proof} says that the machine is off", now)


def _failed_before(state: OutageState, event: d.ActorFailed, now: int) -> Result:
    """Without the ProofActor no proof is voided, so none counts; and contradictions are unknown."""
    if event.actor != PROOF.name:
        return _actor_failed(state, event, now)
    state = replace(state, blind=True)
    return _withdraw(state) if state.phase == "switching" else _no_proof(state, event, now)


def _no_proof(state: OutageState, event: Event, now: int) -> Result:
    if state.phase == "tainting":
        return _withdraw(state)
    state = replace(state, proof="")
    if state.phase != "suspected":
        return state, ()
    return _calm(state, now) or _wait(state, state.not_proved, wake_ns=state.wake_ns)


# --- out of service


def _out_of_service(state: OutageState, now: int, *, found: bool = False) -> Result:
    out = o.OutOfService(effect=state.effect, proof=state.taint_proof, found=found)
    # The note beside a found taint names the boot that was proved off; for our own the journal names it.
    off_boot = (state.taint_boot if found else "") or state.off_boot
    state = replace(
        state,
        phase="recovering",
        taint="ours",
        off_boot=off_boot or state.boot_id,
        removed=False,
        permit=True,
        place_ns=now + PLACE_NS,
        refused=0,
        changed=0,
        key="",
        wake_ns=now + state.reminder_ns,
    )
    # Until now the scheduler could still bind pods to it: list again.
    again: Sequence[Event] = ()
    if state.listed:
        state, again = _listing(replace(state, listed=False))
    if state.boot_id != state.off_boot:
        after, decisions = _rebooted(state, now)
    else:
        after, decisions = _recovered(state)
    return after, [out, *again, *decisions]


def _recovered(state: OutageState) -> Result:
    """Close, or free its place, once all listed work is over."""
    if not state.listed or any(each not in state.unknown for each in (*state.pods, *state.attachments)):
        return state, ()
    if state.phase == "gone":
        return _close(state, "node-deleted")
    # Another's taint keeps the node out of service until a person removes it.
    if state.phase == "following" and state.returned and state.ready == "True" and state.taint != "other":
        return _close(state, "recovered")
    if state.phase not in PLACED:
        return state, ()
    after, orders = _permit_back(state)
    if state.phase != "recovering":
        return after, orders
    return replace(after, phase="out"), [o.WorkRecovered(unrecovered=_hanging(state)), *orders]


def _listed(state: OutageState, event: o.WorkListed, now: int) -> Result:
    """The pods' and volumes' own actors find out which are gone."""
    known = dict.fromkeys(state.followed)
    places: dict[tuple[str, str], int] = {}
    effect = state.effect if state.phase in TAINTED else ""
    decisions: list[Event] = []
    pods, attachments = dict(state.pods), dict(state.attachments)
    # Late pods come behind the followed ones.
    pods_here = [pod for pod in event.pods if not pod.daemon]
    late = [pod for pod in pods_here if pod.uid not in known]
    for pod in (*(pod for pod in pods_here if pod.uid in known), *late):
        owner = pod.namespace, pod.owner_uid
        place = places.get(owner, 0)
        places[owner] = place + 1
        if pod.uid not in known:
            pods[pod.uid] = pod.label
            decisions.append(o.PodLost(pod=pod, place=place, replaced=event.replaced, effect=effect))
    for each in event.attachments:
        if each.name not in known:
            attachments[each.name] = each.volume or each.name
            left = o.AttachmentLeft(
                attachment=each,
                tainted=bool(effect),
                unsafe=is_unsafe(
                    each.unique_name, each.driver, state.ready, state.taint, state.volumes_in_use
                ),
            )
            decisions.append(left)
    if not state.known:
        decisions += _found_detached(state, event)
    followed = (*state.followed, *(name for name in (*pods, *attachments) if name not in known))
    state = replace(state, listed=True, known=True, pods=pods, attachments=attachments, followed=followed)
    state = replace(state, elsewhere=event.elsewhere, more=event.more)
    return (state, decisions) if decisions else _recovered(state)


def _found_detached(state: OutageState, event: o.WorkListed) -> list[Event]:
    """Volumes in use without an attachment. A kubelet also reports a volume whose attach has not begun, so
    the alarm is not sure. A pod that still waits for its attach explains it.
    """
    here = tuple(each.unique_name for each in event.attachments)
    attached = tuple(each.volume for each in event.attachments)
    if "" in here or any(volume not in attached for pod in event.pods for volume in pod.volumes):
        return []
    return [
        o.DetachForced(name="", volume=each, sure=False)
        for each in state.volumes_in_use
        if each not in here
        and each.startswith(kinds.CSI_VOLUME)
        and is_unsafe(each, "", state.ready, state.taint, (each,))
    ]


def _deleted(state: OutageState, event: o.NodeDeleted, now: int) -> Result:
    """Kubernetes deletes its pods and detaches its volumes all the same: follow them to their end."""
    state, cancel = _cancel(state)
    # Only a taint had a place; the deletion takes it over.
    state, back = (state, ()) if state.place_ns != NEVER_NS else _permit_back(replace(state, permit=True))
    state = replace(state, phase="gone", key="", proof="", waits="", wake_ns=now + state.reminder_ns)
    after, decisions = _recovered(state)
    return after, [*cancel, *back, *decisions]


def _cancel(state: OutageState) -> Result:
    return _cancel_open(state) if state.phase == "tainting" else _withdraw(state)


def _paused(state: OutageState, event: o.PauseRead, now: int) -> Result:
    """A pause forbids new taints and power-offs, but not the removal of a taint."""
    paused = bool(event.by) and not state.paused
    state = replace(state, paused=event.by)
    if paused:
        return _cancel(state)
    if state.phase == "following" and state.removed and state.proof:
        return _reconsider(state)
    return _consider(state, now) if state.phase == "suspected" else (state, ())


def _asked_to_close(state: OutageState, event: o.CloseRead, now: int) -> Result:
    """Do not wait for what hangs. The outage ends with the node's return, or now if it is back or deleted."""
    if event.at == state.close_at:
        return state, ()
    left = (each for each in (*state.pods, *state.attachments) if each not in state.unknown)
    state = replace(state, close_at=event.at, unknown=(*state.unknown, *left))
    if state.phase == "quarantined" and state.ready == "True":
        return _untaint(state, now)
    return _recovered(state)


def _pod_ended(state: OutageState, event: o.PodRecovered, now: int) -> Result:
    pods = {uid: label for uid, label in state.pods.items() if uid != event.uid}
    return _recovered(replace(state, pods=pods))


def _detached(state: OutageState, event: o.Detached, now: int) -> Result:
    left = {name: volume for name, volume in state.attachments.items() if name != event.name}
    return _recovered(replace(state, attachments=left))


def _actor_failed(state: OutageState, event: d.ActorFailed, now: int) -> Result:
    if event.actor not in (STUCK_POD.name, DETACH.name):
        return state, ()
    return _recovered(replace(state, unknown=(*state.unknown, event.subject)))


def _ticked(
    then: Callable[[OutageState, f.Tick, int], Result],
) -> Callable[[OutageState, f.Tick, int], Result]:
    """Also end the node's place when its time is over."""

    def tick(state: OutageState, event: f.Tick, now: int) -> Result:
        state, orders = _permit_back(state) if state.place_ns <= now else (state, ())
        if state.wake_ns > now:
            return state, orders
        after, decisions = then(state, event, now)
        return after, [*orders, *decisions]

    return tick


def _tick_following(state: OutageState, event: f.Tick, now: int) -> Result:
    if state.removed and state.boot_id != state.off_boot and not state.returned:
        return _follow(replace(state, wake_ns=now + state.reminder_ns), now)
    if state.removed and state.proof and state.proof_until_ns > now:
        return _reconsider(replace(state, wake_ns=now + PERMIT_RETRY_NS))
    return _remind(state, event, now)


def _remind(state: OutageState, event: f.Tick, now: int) -> Result:
    reasons = {
        "recovering": state.waits
        or f"waits for {', '.join(_hanging(state)[:3]) or 'the list of what hangs'}",
        "out": state.waits or "the node has not come back",
        "aside": ANOTHERS,
        "gone": f"the Node is deleted; waits for {', '.join(_hanging(state)[:3]) or 'the list'}",
        "quarantined": "the node is not Ready, or reports volumes in use",
        "untainting": state.waits,
        "following": NOT_OURS
        if state.waits == NOT_OURS
        else ANOTHERS
        if state.taint == "other"
        else f"waits for {', '.join(_hanging(state)[:3]) or 'the node'}",
    }
    reminded = o.OutageReminded(reason=reasons[state.phase])
    return replace(state, wake_ns=now + state.reminder_ns), [reminded]


# --- the way back


def _life_of(state: OutageState, event: o.NodeRead) -> str:
    """The sign of life of the boot that the Node names; empty: none."""
    if state.status_mark and event.status_mark not in ("", state.status_mark):
        return REPORTS
    return IS_READY_NOW if event.ready == "True" else ""


def _read_tainted(state: OutageState, event: o.NodeRead, now: int) -> Result:
    life = _life_of(state, event)
    lease = bool(state.lease_mark) and event.lease_mark not in ("", state.lease_mark)
    state = _with_node(state, event, now)
    if state.boot_id != state.off_boot:
        return _rebooted(state, now)
    if event.taint != "ours":
        # Another client has removed it or its note: do not set it again.
        why = NOT_OURS if state.taint == "other" else TAKEN_AWAY
        state, decisions = _wait(state, why, phase="following", proof="")
        state = replace(state, removed=state.taint == "none", removed_at=state.declared_at)
        after, orders = _permit_back(replace(state, wake_ns=now + state.reminder_ns))
        return after, [*decisions, *orders]
    if life:
        return _same_boot(state, life, now)
    return _wait(state, NO_STATUS) if lease else (state, ())


def _heartbeat_off(state: OutageState, event: o.HeartbeatSeen, now: int) -> Result:
    """A status names its boot: another boot would have been read with it."""
    state = _marked(state, event, now)
    if event.source == "status" and _is_off(state):
        return _same_boot(state, REPORTS, now)
    return (state, ()) if event.source == "status" or state.phase == "following" else _wait(state, NO_STATUS)


def _rebooted(state: OutageState, now: int) -> Result:
    """Ready or not: the old pods do not run, no proof is about this boot, and the taint would detach its
    volumes.
    """
    state, returned = _returned(state)
    after, orders = _untaint(state, now)
    return after, [*returned, *orders]


def _returned(state: OutageState) -> Result:
    """A starting node is not Ready yet."""
    if state.returned or state.ready != "True":
        return state, ()
    returned = o.NodeReturned(boot_id=state.boot_id, same_boot=state.boot_id == state.off_boot)
    return replace(state, returned=True), [returned]


def _same_boot(state: OutageState, what: str, now: int) -> Result:
    back: Sequence[Event] = ()
    if state.removed:
        state, back = _permit_back(replace(state, removed=False, permit=True))
    alarm = o.ProofWasWrong(proof=state.taint_proof or UNRECORDED, what=what)
    returned = o.NodeReturned(boot_id=state.boot_id, same_boot=True)
    state = _ready_since(replace(state, phase="quarantined", returned=True, wrong=True))
    after, orders = _quarantine(state, now)
    return after, [*back, alarm, returned, *orders]


def _ready_since(state: OutageState) -> OutageState:
    heard = state.ready_mark is not None or state.ready != "True"
    return state if heard else replace(state, ready_mark=state.status_mark)


def _quarantine(state: OutageState, now: int) -> Result:
    state = replace(state, wake_ns=now + state.reminder_ns)
    if state.dry_run:
        return _wait(state, DRY_QUARANTINE)
    state = replace(state, quarantine=True)
    return _ordered(state, "quarantine", o.SetQuarantine, node=state.node, node_uid=state.node_uid)


def _read_quarantined(state: OutageState, event: o.NodeRead, now: int) -> Result:
    state = _with_node(state, event, now)
    if state.boot_id != state.off_boot:
        return _rebooted(state, now)
    return _freed(_ready_since(state), now)


def _freed(state: OutageState, now: int) -> Result:
    """Ready in two statuses, the later one without volumes in use."""
    settled = state.ready_mark not in (None, state.status_mark)
    free = state.ready == "True" and settled and not state.volumes_in_use and not state.key
    return _untaint(state, now) if free else (state, ())


def _quarantine_ended(state: OutageState, event: f.OrderEnded, now: int) -> Result:
    if event.result != "done":
        return _refused(state, now)
    return _freed(replace(state, key="", refused=0), now)


def _untaint(state: OutageState, now: int) -> Result:
    """Remove everything of ours in one write; in a dry run wait until another client removes it."""
    state, back = _permit_back(replace(state, phase="untainting", wake_ns=NEVER_NS))
    if state.taint != "ours" and not state.quarantine:
        after, orders = _untainted(state, now)
    elif state.dry_run:
        after, orders = _wait(state, DRY_UNTAINT, wake_ns=now + state.reminder_ns)
    else:
        after, orders = _ordered(state, "untaint", o.RemoveTaint, node=state.node, node_uid=state.node_uid)
    return after, [*back, *orders]


def _untaint_ended(state: OutageState, event: f.OrderEnded, now: int) -> Result:
    if event.result != "done":
        return _refused(state, now, key="")
    # Another's taint stays, also one that was ours until its note was changed.
    taint: o.TaintOwner = "other" if state.taint == "other" else "none"
    return _untainted(replace(state, taint=taint, quarantine=False), now)


def _untainted(state: OutageState, now: int) -> Result:
    return _follow(replace(state, phase="following", refused=0, key="", wake_ns=now + state.reminder_ns), now)


def _read_untainting(state: OutageState, event: o.NodeRead, now: int) -> Result:
    """Removed by another client, or by an order with an unknown outcome."""
    state = _with_node(state, event, now)
    gone = state.taint != "ours" and not state.quarantine and not state.key
    return _untainted(state, now) if gone else (state, ())


def _read_following(state: OutageState, event: o.NodeRead, now: int) -> Result:
    life = _life_of(state, event)
    state = _with_node(state, event, now)
    return _same_boot(state, life, now) if life and _is_off(state) else _follow(state, now)


def _is_off(state: OutageState) -> bool:
    """The boot that was proved off has given no sign of life yet. If it does, the proof was wrong."""
    return state.boot_id == state.off_boot and not state.returned


def _follow(state: OutageState, now: int) -> Result:
    state, returned = _returned(state)
    spoken = state.returned or state.boot_id != state.off_boot
    # Another boot that is not Ready is starting; one that is Unknown is not.
    if (state.returned and state.ready == "False") or (spoken and state.ready == "Unknown"):
        # Another outage with its own list, even while attachments of this one hang.
        after, decisions = _close(state, "recovered" if state.returned else "rebooted")
        again, more = _begin(after, f"Ready is {state.ready}", now)
        return again, [*decisions, *more]
    after, decisions = _recovered(state)
    return after, [*returned, *decisions]


# --- another leader


def _configured(state: OutageState, event: o.LeaderStarted, now: int) -> OutageState:
    return replace(
        state,
        node=event.node,
        node_uid=state.node_uid or event.node_uid,
        effect=event.settings.effect,
        dry_run=event.settings.dry_run,
        reminder_ns=event.settings.reminder_seconds * NS_PER_SECOND,
        power_off_ns=event.settings.power_off_seconds * NS_PER_SECOND,
        bound=event.settings.bound,
        resource=event.settings.resource,
        paused=event.settings.paused,
        heard=False,
        blind=False,
        refused=0,
        changed=0,
        down_ns=NEVER_NS,
        readings=0,
        # By this leader's clock the pause begins anew. Meanwhile the sources show a machine that was switched
        # off.
        switch_ns=now + POWER_OFF_PAUSE_NS if state.switch_ns else 0,
        # What a dry run only recorded is still to be done.
        # The configuration may name its system now.
        gave_up=state.gave_up and not state.dry_run and state.bound == event.settings.bound,
        wake_ns=NEVER_NS,
    )


def _started_before(state: OutageState, event: o.LeaderStarted, now: int) -> Result:
    """Only the Node shows whether the last leader's taint took place. Its proof and permit were its own."""
    # Record anew what the outage waits for.
    state = replace(_configured(state, event, now), proof="", listed=False, waits="")
    after, orders = _read(replace(state, permit=False, place_ns=NEVER_NS))
    return _with_list(after, orders)


def _started_back(state: OutageState, event: o.LeaderStarted, now: int) -> Result:
    """Repeat the last leader's order, or give the one that its dry run only recorded."""
    state, back = _placed_anew(_configured(state, event, now), now)
    if state.phase == "untainting":
        after, orders = _untaint(state, now)
    else:
        quarantined = state.quarantine and not state.key
        after, orders = (state, ()) if quarantined else _quarantine(state, now)
    return _with_list(after, [*back, *orders])


def _placed_anew(state: OutageState, now: int) -> Result:
    """This leader's brake counts every tainted node until it learns more."""
    state = replace(state, listed=False, proof="", wake_ns=now + state.reminder_ns)
    if state.permit:
        return replace(state, place_ns=now + PLACE_NS), ()
    return _permit_back(replace(state, permit=True))


def _with_list(state: OutageState, orders: Any) -> Result:
    state, listing = _listing(state)
    return state, [*orders, *listing]


def _afresh(state: OutageState, now: int, in_episode: bool, start: o.LeaderStarted | None) -> OutageState:
    """A failed actor continues in an outage only with a new leader, which reads the Node first."""
    return state if in_episode else fresh_but(state, KEPT_FIELDS)


def _deadline(state: OutageState) -> int:
    if state.phase != "suspected" or state.wake_ns != NEVER_NS:
        return min(state.wake_ns, state.place_ns)
    return min(_switch_ns(state), state.switch_ns if state.permit else NEVER_NS)


OUTAGE = ActorType(NAME, OutageState, _transitions(), _deadline, afresh=_afresh)

# --- the fallback
#
# The fallback cancels a taint or a power-off that has not begun, and records again and again whether the
# taint is set. Removing the taint needs the judgement that has just failed. Another leader begins anew.

FALLBACK_NAME = "OutageFallbackActor"


class OutageFallbackState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    phase: Literal["watching", "engaged"] = "watching"
    #: Outside an outage a failed OutageActor continues with the next fact.
    open: bool = False
    #: Key of the last taint or power-off.
    write_key: str = ""
    tainted: bool = False
    reminder_ns: int = 3600 * NS_PER_SECOND
    wake_ns: int = NEVER_NS
    ordinal: int = 0


def _engage(state: OutageFallbackState, event: d.ActorFailed, now: int) -> Result:
    if event.actor != NAME or not state.open:
        return state, ()
    decisions: list[Event] = [o.OutageAbandoned(tainted=state.tainted)]
    if state.write_key and not state.tainted:
        key = order_key(FALLBACK_NAME, "cancel", "", state.ordinal)
        decisions.insert(0, d.CancelOrder(key=key, target=state.write_key, waiting_only=True))
        state = replace(state, ordinal=state.ordinal + 1)
    return replace(state, phase="engaged", write_key="", wake_ns=now + state.reminder_ns), decisions


# fmt: off
OUTAGE_FALLBACK = ActorType(
    FALLBACK_NAME, OutageFallbackState, Transitions(
        ("watching", "engaged"), attrgetter("phase"),
        Row(EVERY, o.LeaderStarted,
            lambda state, event, now: (replace(
                state, phase="watching", write_key="", wake_ns=NEVER_NS,
                reminder_ns=event.settings.reminder_seconds * NS_PER_SECOND), ()), "watching"),
        Row(EVERY, o.NodeRead, lambda state, event, now: (replace(state, tainted=event.taint == "ours"), ())),
        Row(EVERY, o.OutageBegan, takes(open=True)),
        *(Row(EVERY, each, lambda state, event, now: (replace(state, write_key=event.key), ()))
          for each in (o.SetTaint, o.PowerOff)),
        Row(EVERY, o.OutOfService, takes(tainted=True)),
        Row(EVERY, o.OutageClosed,
            lambda state, event, now: (fresh_but(state, ("reminder_ns", "ordinal")), ()), "watching"),
        Row("watching", d.ActorFailed, _engage, "= engaged", decides=(d.CancelOrder, o.OutageAbandoned)),
        ignored("engaged", d.ActorFailed),
        Row("engaged", f.Tick,
            lambda state, event, now: (
                replace(state, wake_ns=now + state.reminder_ns), [o.OutageAbandoned(tainted=state.tainted)]),
            decides=(o.OutageAbandoned,)),
        ignored("watching", f.Tick),
        ignored(EVERY, f.OrderEnded),
    ),
    deadline=lambda state: state.wake_ns,
)
# fmt: on
