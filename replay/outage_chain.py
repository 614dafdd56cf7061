"""What an outage's recovery waited for: as a whole, one phase after another, and for each pod and volume.

Like `replay.critical_chain` and `replay.blame` for a shutdown, from an outage's record alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from operator import itemgetter
from typing import Literal

from ebbtide.events.base import FrozenStruct
from ebbtide.events.record.outage_record import AttachmentRecord, OutageRecord, Phase, Subject
from ebbtide.replay.critical_chain import Chain, Segment


class Waited(FrozenStruct):
    """A pod or a volume, and one thing that it waited for. ``seen``: to its end."""

    what: Literal["pod", "volume"]
    name: str
    outcome: str
    text: str
    began_ns: int
    ended_ns: int
    seen: bool

    @property
    def took_ns(self) -> int:
        return self.ended_ns - self.began_ns


def subject_kind(subject: Subject) -> Literal["pod", "volume"]:
    """``volume`` or ``pod``."""
    return "volume" if isinstance(subject, AttachmentRecord) else "pod"


def waited(outage: OutageRecord) -> list[Waited]:
    """The waits of each pod and volume, the longest first; ties in the order of the record."""
    found = [each for subject in outage.subjects for each in waits_of(outage, subject)]
    return sorted(found, key=lambda each: -each.took_ns)


def waits_of(outage: OutageRecord, subject: Subject) -> Iterator[Waited]:
    """In the order of time, without a gap; no wait of no time."""
    end_ns = record_end_ns(outage) if subject.ended_ns is None else subject.ended_ns
    begins = [each.at_ns for each in subject.waits]
    for wait, (began_ns, until_ns) in zip(subject.waits, pairwise([*begins, end_ns]), strict=True):
        over = subject.ended_ns is not None or wait is not subject.waits[-1]
        if until_ns > began_ns or not over:
            yield Waited(
                what=subject_kind(subject),
                name=subject.label,
                outcome=subject.outcome,
                text=wait.reason,
                began_ns=began_ns,
                ended_ns=max(began_ns, until_ns),
                seen=over,
            )


def record_end_ns(outage: OutageRecord) -> int:
    """The close, or the end of the record."""
    return outage.last_ns if outage.ended_ns is None else outage.ended_ns


def recovery_chain(outage: OutageRecord) -> Chain:
    """From its first record to its end, or to the end of the record.

    A phase that waits for pods and volumes contains the last of them.
    """
    segments = []
    for phase in outage.course:
        ended_ns = record_end_ns(outage) if phase.ended_ns is None else phase.ended_ns
        if ended_ns > phase.began_ns:
            within = _held(outage, phase, ended_ns)
            segments.append(Segment(phase.what, phase.began_ns, ended_ns, phase.text, within=within))
    return Chain(segments[-1].ended_ns if segments else 0, tuple(segments))


#: Phases that wait for a pod or a volume.
_OF_SUBJECTS = ("recovering", "following")


def _held(outage: OutageRecord, phase: Phase, ended_ns: int) -> tuple[Segment, ...]:
    """Of the subjects that were open at the phase's begin, the last one to end."""
    if phase.what not in _OF_SUBJECTS:
        return ()
    ends = [
        (min(ended_ns, ended_ns if each.ended_ns is None else each.ended_ns), each)
        for each in outage.subjects
        if each.began_ns < ended_ns and (each.ended_ns is None or each.ended_ns > phase.began_ns)
    ]
    if not ends:
        return ()
    last_ns, last = max(ends, key=itemgetter(0))
    parts = [
        Segment("waiting", max(each.began_ns, phase.began_ns), min(each.ended_ns, last_ns), each.text)
        for each in waits_of(outage, last)
        if each.ended_ns > phase.began_ns and each.began_ns < last_ns
    ]
    text = f"{subject_kind(last)} {last.label}: {last.outcome}"
    first_ns = parts[0].began_ns if parts else phase.began_ns
    held = Segment(subject_kind(last), first_ns, last_ns, text, within=tuple(parts))
    rest = [
        Segment("waiting", phase.began_ns, first_ns, "what hangs was not listed yet"),
        held,
        Segment("waiting", last_ns, ended_ns, "nothing that is on record"),
    ]
    return tuple(each for each in rest if each.took_ns)
