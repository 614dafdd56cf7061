"""What stands beside a line of the log for programs: which event, which pod, which span of which trace."""

from __future__ import annotations

from events.record import Record, episode_id, trace_id
from events.words import Names
from otel.correlation import pod_of, span_of

#: A line is told soon after its record: two shutdowns stand in one step, a third is far away.
TRACES_MAX = 4


class Traces:
    """Trace ids of the last shutdowns by number. ``current``: the open one's or the last one's, or empty."""

    def __init__(self, episode: int = 0, current: str = "") -> None:
        self.current = current
        self._ids = {episode: current}

    def learn(self, record: Record, chain_hash: bytes) -> None:
        """A shutdown's first record has its number, and the hash (32 bytes) that gives its trace."""
        if record.episode != record.seq:
            return
        self._ids[record.episode] = self.current = trace_id(chain_hash)
        if len(self._ids) > TRACES_MAX:
            del self._ids[next(iter(self._ids))]

    def of(self, episode: int) -> str:
        """Empty for one that is not known."""
        return self._ids.get(episode, "")


def fields_of(record: Record, names: Names, journal_id: bytes, trace: str) -> dict[str, str]:
    """Names as the system journal likes them, without our prefix. ``trace``: the id of its shutdown."""
    event = record.event
    uid = pod_of(event)
    fields = {"EVENT": type(event).__name__, "SEQ": str(record.seq), "ACTOR": record.actor}
    if uid:
        fields |= {"POD": names.of(uid), "POD_UID": uid}
    if getattr(event, "container", ""):
        fields["CONTAINER"] = getattr(event, "container", "")
    if record.episode:
        fields["EPISODE"] = episode_id(journal_id, record.episode)
    if record.episode and trace:
        fields |= {"TRACE_ID": trace, "SPAN_ID": span_of(bytes.fromhex(trace), event).hex()}
    return fields
