"""A Kubernetes node in log lines and status: an on-call view of a shutdown."""

from __future__ import annotations

import ast
import inspect

from ebbtide.daemon_status import DaemonStatus, node_json, pod_phase
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Event
from ebbtide.events.record.fold import NODE_EVENTS, NodeState
from ebbtide.events.values import Container, Pod
from tests.journals import began, steps

POD = Pod(uid="u", namespace="shop", name="web-0", containers=(Container(name="c"),))

BEGAN = began(
    grant_ns=35 * NS_PER_SECOND,
    requested_ns=30 * NS_PER_SECOND,
    budget_ns=30 * NS_PER_SECOND,
    deadline_ns=30 * NS_PER_SECOND,
    release_by_ns=34 * NS_PER_SECOND,
)
STARTED = f.DaemonStarted(version="1", pid=7, mode="auto", node="n", boot_id="b", userspace_id="b")


def standing(*events: Event) -> DaemonStatus:
    found = DaemonStatus()
    found.fold(steps(*events))
    return found


def test_nobody_is_known_to_answer_until_this_process_has_heard() -> None:
    """An earlier process's knowledge of kubelet, runtime and API server is void."""
    seen = (f.KubeletRead(unit="kubelet.service", active=True), f.RuntimeRead(reachable=True))
    found = standing(*seen, f.ApiRead(reachable=True, taint=False))
    assert (found.kubelet, found.runtime, found.api, found.may_taint) == (True, True, True, False)
    found = standing(*seen, STARTED)
    assert (found.kubelet, found.runtime, found.api) == (None, None, None)
    lost = standing(*seen, f.RuntimeRead(reachable=False, error="refused"))
    assert (lost.runtime, lost.runtime_error) == (False, "refused")


def test_a_shutdown_shows_its_means_its_hand_over_and_its_certificate() -> None:
    """Kept until the next shutdown, which does not show them."""
    events = (
        BEGAN,
        d.MeansChosen(means="api", reason="mode api"),
        d.PodPlanned(wave=0, grace_seconds=20, pod=POD, means="api"),
        d.DeletePod(key="k", uid="u", namespace="shop", name="web-0", grace_seconds=20),
        d.HandedOver(reason="the API server is lost"),
        d.DetachCertified(safe=True, ended=1),
        d.LeftUndone(running=("u",), without_status=("u", "v")),
    )
    found = standing(*events)
    node = node_json(found)
    assert (node["means"], node["meansReason"]) == ("api", "mode api")
    assert node["handedOver"] == "the API server is lost"
    assert (node["certificate"]["safe"], node["certificate"]["ended"]) == (True, 1)
    assert node["leftUndone"] == ["shop/web-0", "v"]
    assert pod_phase(found.pods["u"]) == "deleted"
    again = node_json(standing(*events, BEGAN))
    shown = ("means", "handedOver", "certificate", "leftUndone")
    assert [again[each] for each in shown] == ["", "", None, []]


def test_what_a_start_decodes_is_what_the_fold_knows() -> None:
    """A case missing on either side would never be displayed."""
    tree = ast.parse(inspect.getsource(NodeState))
    cases = [ast.unparse(n.cls).partition(".")[2] for n in ast.walk(tree) if isinstance(n, ast.MatchClass)]
    assert sorted(cases) == sorted(kind.__name__ for kind in NODE_EVENTS)


def test_a_lock_that_a_restart_did_not_get_back_is_lost() -> None:
    """During the shutdown logind grants no new one."""
    resumed = d.Resumed(action="resume")
    kept = f.DaemonStarted(
        version="1", pid=8, mode="auto", node="n", boot_id="b", userspace_id="b", lock_inherited=True
    )
    assert standing(BEGAN).lock == "held"
    assert standing(BEGAN, STARTED, resumed).lock == "lost"
    assert standing(BEGAN, kept, resumed).lock == "held"
    assert standing(BEGAN, STARTED, resumed, kept, resumed).lock == "lost"
    assert standing(BEGAN, STARTED, resumed, d.EpisodeClosed(outcome="cancelled")).lock == ""
    assert standing(BEGAN, d.ReleaseLock(key="k")).lock == "released"
    none = began(lock_held=False)
    assert (standing(none).lock, standing(none, STARTED, resumed).lock) == ("none", "none")
    assert standing(STARTED, d.Resumed(action="fresh")).lock == ""
