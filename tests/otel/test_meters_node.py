"""A Kubernetes node's part of the metrics: who answers, by which means pods ended, and what was refused."""

from __future__ import annotations

from ebbtide.events.base import NS_PER_SECOND, Event
from ebbtide.events.decisions import DeleteRefused, DetachCertified, HandedOver, PodEnded
from ebbtide.events.facts import ApiRead, DaemonStarted, KubeletRead, LogindRead, RuntimeRead
from ebbtide.otel.meters import Meters, fold
from ebbtide.otel.metrics import ReadContext, exposition
from tests.journals import steps

AROUND = ReadContext(now_wall_ns=NS_PER_SECOND)
STARTED = DaemonStarted(version="1", pid=1, mode="api", node="n", boot_id="b", userspace_id="b")
SEEN: tuple[Event, ...] = (
    KubeletRead(unit="kubelet.service", active=True),
    RuntimeRead(reachable=True),
    ApiRead(reachable=False, error="no route"),
)


def text(*events: Event, around: ReadContext = AROUND) -> list[str]:
    """The lines of what these events make of the meters."""
    meters = Meters()
    fold(meters, steps(*events))
    return exposition(meters, around).splitlines()


def test_each_part_of_the_node_is_up_or_down() -> None:
    """As it was last seen; of the kubelet nothing where nobody can tell."""
    lines = text(*SEEN)
    assert 'ebbtide_answers{part="kubelet"} 1' in lines
    assert 'ebbtide_answers{part="runtime"} 1' in lines
    assert 'ebbtide_answers{part="api"} 0' in lines
    gone = text(*SEEN, KubeletRead(unit="kubelet.service"))
    assert not [line for line in gone if line.startswith('ebbtide_answers{part="kubelet"')]


def test_what_an_earlier_process_saw_is_no_health() -> None:
    """Neither after a start, nor where only a journal is there to be asked."""
    assert not [line for line in text(*SEEN, STARTED) if line.startswith("ebbtide_answers{")]
    dead = text(*SEEN, around=AROUND._replace(live=False))
    assert not [line for line in dead if line.startswith(("ebbtide_answers{", "ebbtide_kubelet_lock"))]


def test_pods_count_by_their_means_and_what_was_refused_is_counted() -> None:
    """A pod of mode process has no means; a certificate counts by what it says."""
    lines = text(
        PodEnded(uid="a", wave=0, outcome="graceful", reason="", means="api"),
        PodEnded(uid="b", wave=0, outcome="killed", reason="", means="cri"),
        PodEnded(uid="c", wave=0, outcome="graceful", reason=""),
        DeleteRefused(uid="b", reason="429"),
        HandedOver(reason="the API server did not take a delete"),
        DetachCertified(safe=False),
        LogindRead(owner=":1.1", grant_ns=1, preparing=False, kubelet_lock=True),
    )
    assert 'ebbtide_pods_by_means_total{means="api",outcome="graceful"} 1' in lines
    assert 'ebbtide_pods_by_means_total{means="cri",outcome="killed"} 1' in lines
    assert len([line for line in lines if line.startswith("ebbtide_pods_by_means_total{")]) == 2
    assert "ebbtide_handovers_total 1" in lines
    assert "ebbtide_deletes_refused_total 1" in lines
    assert 'ebbtide_certificates_total{verdict="safe"} 0' in lines
    assert 'ebbtide_certificates_total{verdict="unsafe"} 1' in lines
    assert "ebbtide_kubelet_lock 1" in lines
