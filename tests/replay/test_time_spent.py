"""Where the time went: a gapless critical chain, and each part's duration and exclusive wait."""

from __future__ import annotations

from itertools import chain, pairwise
from pathlib import Path

from msgspec.structs import replace

from ebbtide import replay
from ebbtide.events.record.shutdown_record import ContainerRecord, PodRecord, ShutdownRecord, WaveRecord
from ebbtide.replay.time_spent import Away, Chain, Segment, blame, critical_chain
from tests.conftest import Sample
from tests.events.record.worlds import PARTS, told
from tests.journals import CANCELLED, SHUTDOWN

MS = 1_000_000
#: Sampled, one part of so many.
ONE_OF = 4


def whole(account: ShutdownRecord) -> int:
    """The shutdown's duration as in ``journal ls``: up to the recorded release order."""
    if account.outcome not in ("complete", "cancelled"):
        return account.last_ns
    if account.ended_ns is None:  # its release is in front of what is left of the record
        assert account.headless
        return account.last_ns
    return account.ended_ns


def assert_whole(chain: Chain, account: ShutdownRecord) -> None:
    leaves = [leaf for segment in chain.segments for leaf in segment.leaves()]
    assert chain.total_ns == whole(account), account.id
    assert sum(leaf.took_ns for leaf in leaves) == chain.total_ns
    assert all(leaf.took_ns > 0 for leaf in leaves)
    assert all(one.ended_ns == next_one.began_ns for one, next_one in pairwise(leaves))
    assert not leaves or leaves[0].began_ns == 0


def test_whatever_goes_wrong_in_a_world(sample: Sample) -> None:
    """Segments sum to the total; exclusive waits are part of each duration."""
    for account in chain(*map(told, sample(range(PARTS), ONE_OF))):
        found, costs = critical_chain(account), blame(account)
        assert_whole(found, account)
        assert all(0 <= cost.alone_ns <= cost.took_ns for cost in costs)
        assert [cost.took_ns for cost in costs] == sorted((cost.took_ns for cost in costs), reverse=True)
        assert sum(cost.alone_ns for cost in costs) <= found.total_ns


def shape(segment: Segment) -> tuple[object, ...]:
    return (segment.what, segment.took_ns // MS, *map(shape, segment.within))


def test_the_golden_shutdown_waited_for_these() -> None:
    """A killed straggler, a sidecar after its main container, and a restart beside."""
    account = replay.open(SHUTDOWN).shutdown().account
    chain = critical_chain(account)
    assert_whole(chain, account)
    assert [shape(segment) for segment in chain.segments] == [
        ("inventory", 1),
        ("wave", 10_001, ("pod", 10_001, ("killed", 10_001))),
        ("wave", 705, ("pod", 705, ("stop", 405), ("stop", 300))),
        ("wave", 902, ("pod", 902, ("stop", 902))),
        ("statuses", 2),
    ]
    assert chain.released_ns == chain.total_ns + 2 * MS
    assert chain.daemon_away == (Away(1_301 * MS, 2_101 * MS),)


def test_a_withdrawn_shutdown_ends_with_its_last_pod() -> None:
    account = replay.open(CANCELLED).shutdown("-2").account
    chain = critical_chain(account)
    assert_whole(chain, account)
    assert chain.segments[-1].what == "finishing"
    assert chain.segments[-1].text.startswith("withdrawn (")


def cut_short(folder: Path) -> ShutdownRecord:
    """The golden shutdown's first segment, followed by a later boot."""
    first = sorted(SHUTDOWN.iterdir())[0]
    (folder / first.name).write_bytes(first.read_bytes())
    return replay.open(folder, boot_id="a later boot").shutdown().account


def test_a_shutdown_that_was_cut_short_ends_with_its_record(tmp_path: Path) -> None:
    """In mid-wave the running pod delayed it, not one that just ended."""
    account = cut_short(tmp_path)
    chain = critical_chain(account)
    assert_whole(chain, account)
    assert (account.outcome, chain.total_ns) == ("truncated", account.last_ns)
    assert [shape(segment) for segment in chain.segments] == [
        ("inventory", 1),
        ("wave", 1_300, ("pod", 1_300, ("stop", 1_300))),
    ]
    assert chain.segments[1].within[0].uid == "uid-stuck-0"


def test_of_several_that_had_not_ended_none_held_it(tmp_path: Path) -> None:
    """The last one is unknown, so none is named."""
    account = cut_short(tmp_path)
    pods = tuple(replace(pod, ended_ns=None, outcome=None) for pod in account.pods)
    (wave,) = critical_chain(replace(account, pods=pods)).segments[1:]
    (several,) = wave.within
    assert (several.what, several.uid) == ("several", "")
    assert several.text == "3 pods had not ended: shop/web-0, shop/web-1, shop/stuck-0"


# --- blame


def container(
    name: str, signalled_ns: int, exited_ns: int | None, killed_ns: int | None = None
) -> ContainerRecord:
    signal = "SIGKILL" if killed_ns is not None and exited_ns is not None else ""
    return ContainerRecord(
        name=name,
        signalled_ns=signalled_ns,
        killed_ns=killed_ns,
        exited_ns=exited_ns,
        exit_code=None if signal or exited_ns is None else 0,
        exit_signal=signal,
    )


def pod(name: str, wave: int, *containers: ContainerRecord) -> PodRecord:
    begins = [each.signalled_ns or 0 for each in containers]
    ends = [each.exited_ns for each in containers]
    known = [end_ns for end_ns in ends if end_ns is not None]
    return PodRecord(
        uid=name,
        namespace="shop",
        name=name,
        wave=wave,
        began_ns=min(begins),
        ended_ns=max(known) if len(known) == len(ends) else None,
        outcome="graceful" if len(known) == len(ends) else "failed",
        containers=containers,
    )


def shutdown(*waves: tuple[int, int, tuple[PodRecord, ...]], pods_ended_ns: int) -> ShutdownRecord:
    return replace(
        replay.open(SHUTDOWN).shutdown().account,
        pods_ended_ns=pods_ended_ns,
        waves=tuple(
            WaveRecord(
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


def figures(account: ShutdownRecord) -> list[tuple[str, str, int, int]]:
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
