"""A Kubernetes node goes down, told once: deletes, a hand-over to the runtime, volumes, the certificate.

Beside `tests.otel.story`, whose export stays as it is: that of a daemon without a Kubernetes node.
"""

from __future__ import annotations

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Event
from ebbtide.events.values import Pod
from tests.journals import pod
from tests.otel.records import RELEASE, TICK, Teller, began, exited, signal, wave

WEB, DB, PROXY = pod("web-0"), pod("db-0"), pod("proxy-0")
UNMOUNT, CHECK = "WaveActor/unmount/0/7", "NodeStatusActor/mounts//1"
AWAIT, STOP = "NodeStatusActor/await//2", "KubeletActor/stop//0"


def node() -> Teller:
    """Of three pods one is deleted, the API server does not take the second one's delete, one is static."""
    teller = Teller()
    chosen = d.MeansChosen(means="api", reason="a shutdown of kind poweroff")
    teller.tell(signal(), began(), chosen)
    found = f.InventoryTaken(key="none", as_of_ns=1, source="cri", pods=(WEB, DB, PROXY))
    means = (("api", 0), ("api", 0), ("cri", 1))
    plans = [
        d.PodPlanned(wave=at, grace_seconds=10, pod=each, means=how)  # type: ignore[arg-type]  # words of a table
        for each, (how, at) in zip((WEB, DB, PROXY), means, strict=True)
    ]
    unmount = d.AwaitUnmounts(key=UNMOUNT, uids=(DB.uid,), timeout_ns=10 * NS_PER_SECOND)
    begun = wave(0, WEB, DB)
    teller.tell(found, d.PlanMade(waves=(), pods=3), *plans, *begun, _delete(WEB), _delete(DB), unmount)
    _health(teller)
    teller.tell(_done(_delete(WEB).key), after_ms=20)
    refused = d.DeleteRefused(uid=DB.uid, reason="no answer in 2 s")
    over = d.HandedOver(reason="the API server did not take a delete: no answer in 2 s")
    result = f.OrderEnded(key=_delete(DB).key, result="failed", reason="no answer in 2 s")
    teller.tell(result, refused, over, d.StopKubelet(key=STOP), _stop(DB), after_ms=1980)
    stopped = (d.KubeletStopped(result="done"), d.WithdrawPods(key="w", uids=(WEB.uid, DB.uid)))
    teller.tell(_done(STOP), *stopped, after_ms=30)
    teller.tell(_done("w"), after_ms=5)
    teller.tell(exited(WEB), _ended(WEB), after_ms=400)
    teller.tell(exited(DB, signal="SIGTERM", exit_code=None), _ended(DB), after_ms=10)
    _the_end(teller)
    return teller


def _health(teller: Teller) -> None:
    teller.tell(f.KubeletRead(unit="kubelet.service", active=True))
    teller.tell(f.RuntimeRead(reachable=True))
    teller.tell(f.ApiRead(reachable=False, error="no route to host"), after_ms=500)


def _the_end(teller: Teller) -> None:
    overran = d.WaveEnded(wave=0, outcome="overran", mounted=(DB.uid,))
    teller.tell(TICK, overran, *wave(1, PROXY), _stop(PROXY), after_ms=7000)
    teller.tell(f.VolumesUnmounted(uid=DB.uid), after_ms=10)
    teller.tell(f.OrderEnded(key=UNMOUNT, result="timed-out"), after_ms=10)
    ended = d.WaveEnded(wave=1, outcome="complete")
    statuses = d.AwaitStatuses(key=AWAIT, uids=(WEB.uid, PROXY.uid), timeout_ns=2 * NS_PER_SECOND)
    over = (_ended(PROXY), ended, d.PodsEnded(), statuses, d.CheckMounts(key=CHECK))
    teller.tell(exited(PROXY), *over, after_ms=50)
    teller.tell(f.MountsRead(key=CHECK, mounted=((DB.uid, "data"),)))
    uncertain = d.DetachCertified(safe=False, ended=3, mounted=((DB.uid, "data"),))
    publish = d.PublishCertificate(key="c", safe=False, ended=3, mounted=uncertain.mounted)
    teller.tell(_done(CHECK), uncertain, publish, after_ms=3)
    teller.tell(_done("c"), after_ms=20)
    teller.tell(f.StatusesSeen(key=AWAIT, missing=(PROXY.uid,)), after_ms=1900)
    left = d.LeftUndone(without_status=(PROXY.uid,))
    teller.tell(_done(AWAIT, "timed-out"), d.StatusesSettled(), left, RELEASE)
    teller.tell(_done(RELEASE.key), after_ms=1)
    teller.tell(TICK, d.EpisodeClosed(outcome="complete"), after_ms=1)


def _delete(of: Pod) -> d.DeletePod:
    return d.DeletePod(
        key=f"HookActor/delete/{of.uid}/0",
        uid=of.uid,
        namespace=of.namespace,
        name=of.name,
        grace_seconds=10,
        after_taint=of is DB,
    )


def _stop(of: Pod) -> d.SendSignal:
    key = f"HookActor/stop:main/{of.uid}/0"
    return d.SendSignal(key=key, uid=of.uid, container="main", signal="SIGTERM")


def _ended(of: Pod) -> Event:
    return d.PodEnded(uid=of.uid, wave=0, outcome="graceful", reason="exit code 0")


def _done(key: str, result: str = "done") -> f.OrderEnded:
    return f.OrderEnded(key=key, result=result)  # type: ignore[arg-type]  # words of a table
