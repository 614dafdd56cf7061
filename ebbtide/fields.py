"""What stands beside a line of the log for programs: which event, which pod, which span of which trace."""

from __future__ import annotations

from events.record import Record, episode_id
from events.words import Names
from otel.correlation import pod_of, span_of


def fields_of(record: Record, names: Names, journal_id: bytes, trace_id: str) -> dict[str, str]:
    """Names as the system journal likes them, without our prefix. ``trace_id``: of the record's shutdown."""
    event = record.event
    uid = pod_of(event)
    fields = {"EVENT": type(event).__name__, "SEQ": str(record.seq), "ACTOR": record.actor}
    if uid:
        fields |= {"POD": names.of(uid), "POD_UID": uid}
    if getattr(event, "container", ""):
        fields["CONTAINER"] = getattr(event, "container", "")
    if record.episode:
        fields["EPISODE"] = episode_id(journal_id, record.episode)
    if record.episode and trace_id:
        fields |= {"TRACE_ID": trace_id, "SPAN_ID": span_of(bytes.fromhex(trace_id), event).hex()}
    return fields
