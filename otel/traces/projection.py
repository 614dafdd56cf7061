"""The journal as traces: an incremental fold over its records that returns each span once, when it has ended.

The same records give the same spans, in any batches, in any process, at any time. It may begin anywhere
outside of a shutdown, such as at a segment's checkpoint; it skips a shutdown without its begin.

`HANDLERS` maps each event type of a shutdown's trace to its function, and `outage_trace` has those of an
outage; the journal's logic chooses (`KINDS`). Other types cost no time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ebbtide.events import decisions as d
from ebbtide.events.codec import FLAG_LAST, RawRecord, decode_event
from ebbtide.events.outage_events import OutageBegan
from ebbtide.events.record.episode_fold import grouped_by_episode
from ebbtide.events.segment import Header
from ebbtide.otel import attributes as at
from ebbtide.otel.span import Attributes, Resource, Span
from ebbtide.otel.traces import pod_spans as pods
from ebbtide.otel.traces import shutdown_trace as shutdown
from ebbtide.otel.traces.outage_trace import HANDLERS as OUTAGE_HANDLERS
from ebbtide.otel.traces.outage_trace import LATE, OutageTrace
from ebbtide.otel.traces.shutdown_trace import abandon_trace, end_daemon_start
from ebbtide.otel.traces.trace import EpisodeTrace, Trace

Handler = Callable[[Trace, Any], None]


def _release_ordered(trace: Trace, event: d.ReleaseLock) -> None:
    shutdown.shutdown_released(trace)
    shutdown.release_ordered(trace, event)


HANDLERS: dict[str, Handler] = {
    "DaemonStarted": shutdown.daemon_started,
    "Resumed": shutdown.shutdown_resumed,
    "ShutdownBegan": shutdown.shutdown_began,
    "DeadlineMoved": shutdown.deadline_moved,
    "ShutdownCancelled": shutdown.shutdown_cancelled,
    "EpisodeClosed": shutdown.shutdown_closed,
    "ActorFailed": shutdown.actor_failed,
    "FallbackEngaged": shutdown.fallback_engaged,
    "InventoryTaken": shutdown.inventory_taken,
    "PlanMade": shutdown.plan_made,
    "PodsEnded": shutdown.pods_ended,
    "StatusesSettled": shutdown.statuses_settled,
    "ReleaseLock": _release_ordered,
    "OrderEnded": shutdown.order_ended,
    "WaveStarted": pods.wave_started,
    "WaveEnded": pods.wave_ended,
    "PodPlanned": pods.pod_planned,
    "PodStopBegan": pods.pod_stop_began,
    "PodEnded": pods.pod_ended,
    "PodRejected": pods.pod_rejected,
    "HookStarted": pods.hook_started,
    "RunHook": pods.hook_ordered,
    "HookEnded": pods.hook_ended,
    "SendSignal": pods.stop_ordered,
    "KillContainer": pods.kill_ordered,
    "AutopsyTaken": pods.autopsy_taken,
    "ContainerExited": pods.container_exited,
    "MeansChosen": shutdown.termination_mode_chosen,
    "HandedOver": shutdown.handed_over,
    "KubeletRead": shutdown.kubelet_read,
    "RuntimeRead": shutdown.runtime_read,
    "ApiRead": shutdown.api_read,
    "DeletePod": shutdown.delete_ordered,
    "DeleteRefused": shutdown.delete_refused,
    "AwaitUnmounts": shutdown.unmounts_awaited,
    "StatusesSeen": shutdown.statuses_seen,
    "MountsRead": shutdown.mounts_read,
    "DetachCertified": shutdown.detach_certified,
    **dict.fromkeys(shutdown.ORDERS, shutdown.ordered),
    **dict.fromkeys(shutdown.NOTES, shutdown.noted),
}


# --- the fold -------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """How the episodes of one kind of journal become traces."""

    handlers: Mapping[str, Callable[[Any, Any], None]]
    begin: Callable[[RawRecord, int, Header, Any], EpisodeTrace]
    #: After each step.
    end_step: Callable[[Any], None]
    #: The journal has a gap.
    abandon: Callable[[Any], None]
    resource: Callable[[Header, bytes], Resource]
    #: Types that count after an episode's end.
    late: tuple[str, ...] = ()


def _begin_shutdown(first: RawRecord, episode: int, header: Header, former: EpisodeTrace | None) -> Trace:
    trace = Trace(first, episode, header)
    if isinstance(former, Trace) and former.carried:
        trace.carried = former.carried
        trace.root.links.append(former.link(former.root.span_id, "cancelled"))
    return trace


#: The versions of this code. A shutdown with another version needs the program that wrote it.
VERSIONS = tuple(range(d.FIRST_PROJECTION_VERSION, d.PROJECTION_VERSION + 1))

#: Remembers the resources of so many latest shutdowns.
RESOURCES_MAX = 4096

#: Written at a segment's begin, with stamps of another moment.
UNTIMED = ("Checkpoint",)


class UnknownProjection(LookupError):
    """A shutdown asks for a projection that this version does not have; use the one that recorded it."""

    def __init__(self, episode: int, version: int) -> None:
        super().__init__(
            f"the shutdown at record {episode} asks for projection version {version}; "
            f"this ebbtide has {', '.join(map(str, VERSIONS))}: export it with the version that recorded it"
        )
        self.episode, self.version = episode, version


class Projection:
    """``refused``: shutdowns of an unknown projection version, by number; they give no spans."""

    def __init__(self) -> None:
        self.refused: dict[int, int] = {}
        self._resources: dict[int, Resource] = {}
        self._trace: EpisodeTrace | None = None
        self._fact: RawRecord | None = None

    def feed(self, header: Header, records: Sequence[RawRecord], journal_id: bytes) -> list[Span]:
        """The spans that end in these records, in the order of their ends.

        ``records`` are whole steps in order, as in `events.reader.Batch` with their ``header``; if a step
        closes one shutdown and opens the next, each record goes to its own. Raises events.codec.BadPayload.
        """
        spans: list[Span] = []
        kind = KINDS[header.of_outages]
        boot_id, handlers = header.identity.boot_id, kind.handlers
        for raw in grouped_by_episode(records):
            if not raw.cause:
                self._fact = raw
            trace = self._trace
            if raw.episode and (trace is None or raw.episode != trace.episode):
                trace = self._trace = self._begin(kind, raw, header, journal_id, spans)
            late = trace is not None and trace.over and not raw.episode and raw.tag in kind.late
            if trace is None or (trace.over and not late):
                continue
            # The monotonic clock starts anew with each boot: between boots only the wall clock measures.
            same = boot_id == trace.boot_id
            trace.now_ns = raw.mono_ns + trace.offset_ns if same else raw.wall_ns
            handler = handlers.get(raw.tag)
            if handler is not None and (raw.episode or late):
                trace.raw, trace.fact = raw, self._fact or raw
                event = decode_event(raw.tag, raw.payload)
                handler(trace, event)
                if isinstance(event, d.ShutdownBegan | OutageBegan):
                    given = with_given(self._resources[trace.episode], event.resource)
                    self._resources[trace.episode] = given._replace(version=trace.version)
            if raw.flags & FLAG_LAST:
                kind.end_step(trace)
            if raw.tag not in UNTIMED:
                trace.last_ns = trace.now_ns
            if trace.finished:
                self._take(trace, spans)
        return spans

    def resource(self, episode: int) -> Resource:
        """The common attributes of a shutdown's spans. Raises KeyError, and UnknownProjection."""
        if episode in self.refused:
            raise UnknownProjection(episode, self.refused[episode])
        return self._resources[episode]

    def _begin(
        self, kind: Kind, raw: RawRecord, header: Header, journal_id: bytes, spans: list[Span]
    ) -> EpisodeTrace | None:
        former, first = self._trace, self._fact
        if former is not None and not former.over:  # the journal has a gap
            kind.abandon(former)
            self._take(former, spans)
        # The fact that opens an episode is its first record, even if it still belonged to another. Without it
        # there is no trace id, and so no span.
        if first is None or first.seq != raw.episode:
            return None
        self._resources[raw.episode] = kind.resource(header, journal_id)
        if len(self._resources) > RESOURCES_MAX:
            del self._resources[next(iter(self._resources))]
        return kind.begin(first, raw.episode, header, former)

    def _take(self, trace: EpisodeTrace, spans: list[Span]) -> None:
        ended, trace.finished = trace.finished, []
        # No span at all for another version: half of a trace would look whole, and would take its spans' ids.
        if trace.version in VERSIONS:
            spans += ended
        else:
            self.refused[trace.episode] = trace.version


def resource_of(header: Header, journal_id: bytes) -> Resource:
    """The constants of a shutdown, from the segment of its begin."""
    names = header.identity
    attributes: Attributes = (
        *_service(header, journal_id),
        (at.HOST_NAME, names.node),
        (at.HOST_ID, names.machine_id),
        (at.NODE_NAME, names.node),
        (at.BOOT_ID, names.boot_id),
    )
    return Resource(attributes, d.FIRST_PROJECTION_VERSION)


def with_given(resource: Resource, given: Mapping[str, str]) -> Resource:
    """With the configured attributes of the node, such as its cluster."""
    known = dict(resource.attributes)
    # The journal's values win, except for the service's name.
    known |= {name: value for name, value in given.items() if name not in known or name == at.SERVICE_NAME}
    return resource._replace(attributes=tuple(known.items()))


def outage_resource(header: Header, journal_id: bytes) -> Resource:
    """The same for an outage: about the node, not the controller's machine."""
    names = header.identity
    node: Attributes = ((at.NODE_NAME, names.node), (at.NODE_UID, names.machine_id))
    return Resource((*_service(header, journal_id), *node), d.FIRST_PROJECTION_VERSION, OUTAGE_SCOPE)


#: The instrumentation scope of an outage's spans.
OUTAGE_SCOPE = "ebbtide.outage"


def _service(header: Header, journal_id: bytes) -> Attributes:
    digits = journal_id.hex()
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return (
        (at.SERVICE_NAME, "ebbtide"),
        (at.SERVICE_VERSION, header.identity.code_version),
        (at.SERVICE_INSTANCE_ID, uuid),
    )


#: By whether a journal is of outages.
KINDS: Mapping[bool, Kind] = {
    False: Kind(HANDLERS, _begin_shutdown, end_daemon_start, abandon_trace, resource_of),
    True: Kind(
        OUTAGE_HANDLERS,
        lambda first, episode, header, former: OutageTrace(first, episode, header),
        OutageTrace.step_ended,
        OutageTrace.abandon,
        outage_resource,
        LATE,
    ),
}
