"""Blame: each part's duration, and the time spent waiting for it alone."""

from __future__ import annotations

from msgspec.structs import replace

from ebbtide import replay
from ebbtide.events.record import shutdown_record
from ebbtide.replay.time_spent import blame
from tests.journals import SHUTDOWN


def container(
    name: str, signalled_ns: int, exited_ns: int | None, killed_ns: int | None = None
) -> shutdown_record.ContainerRecord:
    signal = "SIGKILL" if killed_ns is not None and exited_ns is not None else ""
    return shutdown_record.ContainerRecord(
        name=name,
        signalled_ns=signalled_ns,
        killed_ns=killed_ns,
        exited_ns=exited_ns,
        exit_code=None if signal or exited_ns is None else 0,
        exit_signal=signal,
    )


def pod(
    name: str,
    wave: int,
    *containers: shutdown_record.ContainerRecord,
    hooks: tuple[shutdown_record.HookRecord, ...] = (),
) -> shutdown_record.PodRecord:
    begins = [each.signalled_ns or 0 for each in containers] + [hook.began_ns for hook in hooks]
    ends = [each.exited_ns for each in containers]
    known = [end_ns for end_ns in ends if end_ns is not None]
    return shutdown_record.PodRecord(
        uid=name,
        namespace="shop",
        name=name,
        wave=wave,
        began_ns=min(begins),
        ended_ns=max(known) if len(known) == len(ends) else None,
        outcome="graceful" if len(known) == len(ends) else "failed",
        containers=containers,
        hooks=hooks,
    )


def shutdown(
    *waves: tuple[int, int, tuple[shutdown_record.PodRecord, ...]], pods_ended_ns: int
) -> shutdown_record.ShutdownRecord:
    return replace(
        replay.open(SHUTDOWN).shutdown().account,
        pods_ended_ns=pods_ended_ns,
        waves=tuple(
            shutdown_record.WaveRecord(
                index=index,
                priority=index,
                planned_ns=0,
                began_ns=began_ns,
                ended_ns=ended_ns,
                outcome="complete",
                pods=tuple(each.uid for each in pods),
            )
            for index, (began_ns, ended_ns, pods) in enumerate(waves)
        ),
        pods=tuple(each for _, _, pods in waves for each in pods),
    )


def figures(account: shutdown_record.ShutdownRecord) -> list[tuple[str, str, int, int]]:
    return [
        (cost.pod.rpartition("/")[2], cost.container, cost.took_ns, cost.alone_ns) for cost in blame(account)
    ]


def test_the_slowest_is_waited_for_alone_from_the_next_slowest_on() -> None:
    """Longest first; simultaneous ends delay no pod alone."""
    account = shutdown(
        (0, 90, (pod("a", 0, container("main", 0, 90)), pod("b", 0, container("main", 0, 40)))),
        (90, 120, (pod("c", 1, container("main", 90, 120)), pod("d", 1, container("main", 90, 120)))),
        pods_ended_ns=120,
    )
    assert figures(account) == [
        ("a", "main", 90, 50),
        ("b", "main", 40, 0),
        ("c", "main", 30, 0),
        ("d", "main", 30, 0),
    ]


def test_a_straggler_is_waited_for_again_after_the_last_wave() -> None:
    """Without the next wave's own time; until the wait ended."""
    account = shutdown(
        (0, 50, (pod("a", 0, container("main", 0, None, killed_ns=50)),)),
        (50, 70, (pod("b", 1, container("main", 50, 70)),)),
        pods_ended_ns=100,
    )
    assert figures(account) == [("a", "main", 100, 50 + 30), ("b", "main", 20, 20)]
