"""The doctor's rules about a node's kubelet, runtime, API server and time, on plain values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.doctor import rules as rules_node
from ebbtide.doctor.rules import examine
from ebbtide.doctor.snapshot import (
    SINGLE_UNIT_DISTRIBUTIONS,
    ApiServerState,
    KubeletState,
    NodeSnapshot,
    RuntimeState,
    Snapshot,
)
from ebbtide.events.base import NS_PER_SECOND
from tests.doctor.values import API, BUS, KUBELET, NODE, RUNTIME, WELL, found, grades, node

TRI = st.sampled_from((None, False, True))
NUMBERS = st.none() | st.integers(0, 10**12)
LOCKED = BUS._replace(kubelet_lock=True)
AWAY = RUNTIME._replace(problem="nothing listens there")
SILENT = API._replace(problem="no answer in 5 s")
GONE = KUBELET._replace(loaded=False, active=False)
K3S = KubeletState(unit="k3s.service", loaded=True, active=True)


def in_mode(mode: str, **changes: object) -> Snapshot:
    return node(mode=mode, **changes)


@pytest.mark.parametrize("mode", ["auto", "api", "cri"])
def test_a_node_that_is_well_has_no_finding(mode: str) -> None:
    """In every mode that ends pods itself; nothing is said where nothing is wrong."""
    assert grades(in_mode(mode)) == []


def test_a_node_that_is_only_looked_at_is_well_with_a_kubelet_that_holds_a_lock() -> None:
    """In mode observe that is what it takes."""
    assert grades(in_mode("observe")._replace(bus=LOCKED)) == []


def test_what_is_not_known_is_no_finding() -> None:
    """No service manager, no process, no boot time: nothing is made of it."""
    assert grades(in_mode("auto", kubelet=KubeletState(), boot_ns=None)) == []


@pytest.mark.parametrize(
    "mode, level", [("api", "critical"), ("cri", "critical"), ("auto", "note"), ("process", "warning")]
)
def test_a_kubelet_that_shuts_down_too(mode: str, level: str) -> None:
    """Two modes do not arm beside it, one steps back; each says how to switch it off."""
    sight = WELL._replace(bus=LOCKED, node=None) if mode == "process" else in_mode(mode)._replace(bus=LOCKED)
    (finding,) = found(sight)
    assert (finding.level, finding.code) == (level, "kubelet-too")
    assert "shutdownGracePeriod: 0s" in finding.cure


def test_a_kubelet_whose_settings_say_so_without_a_lock() -> None:
    """It would take one at its next start."""
    (finding,) = found(in_mode("auto", kubelet=KUBELET._replace(grace_ns=30 * NS_PER_SECOND)))
    assert (finding.level, finding.code) == ("warning", "kubelet-configured")
    assert "/var/lib/kubelet/config.yaml asks for 30 s" in finding.message


@pytest.mark.parametrize(
    "grace_ns, why",
    [
        (0, "is off"),
        (41 * NS_PER_SECOND, "grants 40 s of the 41 s"),
        (30 * NS_PER_SECOND, "never tries again"),
        (None, "never tries again"),
    ],
)
def test_a_kubelet_that_has_no_lock_while_we_only_look_on(grace_ns: int | None, why: str) -> None:
    """Nobody would end the pods: critical, with the reason as far as it is known."""
    (finding,) = found(in_mode("observe", kubelet=KUBELET._replace(grace_ns=grace_ns)))
    assert (finding.level, finding.code) == ("critical", "kubelet-not-armed")
    assert why in finding.message


@pytest.mark.parametrize("mode, level", [("cri", "critical"), ("auto", "warning"), ("api", "warning")])
def test_a_unit_that_is_not_there(mode: str, level: str) -> None:
    """The kubelet then starts again what is ended; the cure names the field."""
    (finding,) = found(in_mode(mode, kubelet=GONE))
    assert (finding.level, finding.code) == (level, "kubelet-unit-missing")
    assert "node.kubeletUnit" in finding.cure


def test_a_missing_unit_matters_less_where_no_kubelet_runs() -> None:
    """A machine of containers without a kubelet: nobody starts anything again."""
    assert grades(in_mode("cri", kubelet=GONE._replace(pid=0))) == [("warning", "kubelet-unit-missing")]


def test_a_kubelet_that_is_down() -> None:
    """Nobody carries out a delete; for mode cri it is what is wanted."""
    down = KUBELET._replace(active=False, pid=0)
    assert grades(in_mode("api", kubelet=down)) == [("warning", "kubelet-down")]
    assert grades(in_mode("cri", kubelet=down)) == []


@pytest.mark.parametrize("mode, level", [("cri", "critical"), ("auto", "warning"), ("api", "warning")])
@pytest.mark.parametrize(
    "changes",
    [
        {"kubelet": K3S},
        {"kubelet": KUBELET._replace(beside=("rke2-agent.service",))},
        {"runtime": RUNTIME._replace(socket="/run/k3s/containerd/containerd.sock")},
    ],
    ids=["its-unit", "another-unit", "its-socket"],
)
def test_a_kubelet_and_a_runtime_in_one_unit(mode: str, level: str, changes: dict[str, object]) -> None:
    """Known by its unit, by another one that is active, or by where the socket is."""
    assert grades(in_mode(mode, **changes)) == [(level, "one-unit")]


@pytest.mark.parametrize(
    "mode, level", [("cri", "critical"), ("auto", "warning"), ("api", "warning"), ("observe", "warning")]
)
def test_a_runtime_that_does_not_answer(mode: str, level: str) -> None:
    """Critical where there is no other way; the socket and the reason are named."""
    bus = LOCKED if mode == "observe" else BUS
    (finding,) = found(in_mode(mode, runtime=AWAY)._replace(bus=bus))
    assert (finding.level, finding.code) == (level, "runtime-away")
    assert "/run/containerd/containerd.sock cannot be used: nothing listens there" in finding.message


@pytest.mark.parametrize("mode", ["auto", "api", "cri", "observe"])
def test_an_api_server_that_does_not_answer(mode: str) -> None:
    """Every mode goes on without it, and the finding says what is lost."""
    bus = LOCKED if mode == "observe" else BUS
    (finding,) = found(in_mode(mode, api=SILENT)._replace(bus=bus))
    assert (finding.level, finding.code) == ("warning", "api-away")
    assert "no answer in 5 s; " in finding.message


def test_neither_way() -> None:
    """Runtime and API server both away: no pod can be ended, and that is critical in every mode."""
    for mode in ("auto", "api", "cri"):
        codes = grades(in_mode(mode, runtime=AWAY, api=SILENT))
        assert codes == [("critical", "runtime-away"), ("warning", "api-away")]


@pytest.mark.parametrize("mode, level", [("cri", "note"), ("auto", "warning")])
def test_no_kubeconfig(mode: str, level: str) -> None:
    """Mode cri is at home on nodes without an API server."""
    assert grades(in_mode(mode, api=ApiServerState())) == [(level, "kubeconfig-missing")]


@pytest.mark.parametrize("mode, level", [("cri", "critical"), ("auto", "warning")])
def test_packages_that_are_missing(mode: str, level: str) -> None:
    """Said once and with the command; what could not be looked at for want of them is not said as well."""
    sight = WELL._replace(node=NodeSnapshot(mode, "node-1", missing=("grpc", "kubernetes")))
    (finding,) = found(sight)
    assert (finding.level, finding.code) == (level, "packages-missing")
    assert "ebbtide[node]" in finding.cure


def test_what_run_would_refuse() -> None:
    """The daemon's own line, its cure told apart."""
    (finding,) = found(in_mode("api", unfit="mode api needs the API server: name a kubeconfig"))
    assert finding[1:] == ("mode-unfit", "mode api needs the API server", "name a kubeconfig")


def test_a_node_that_the_cluster_does_not_know() -> None:
    """Under a wrong name no pod would be found: critical."""
    (finding,) = found(in_mode("auto", api=API._replace(known=False)))
    assert (finding.level, finding.code) == ("critical", "node-unknown")
    assert "no Node called node-1" in finding.message


@pytest.mark.parametrize("boot_seconds, codes", [(265, []), (266, ["away-too-long"])])
def test_shutdown_and_boot_against_what_pods_tolerate(boot_seconds: int, codes: list[str]) -> None:
    """35 s of waves and reserve and a boot: up to 300 s pods that come back are still waited for."""
    sight = in_mode("cri", boot_ns=boot_seconds * NS_PER_SECOND)
    assert [each.code for each in found(sight)] == codes
    assert grades(in_mode("api", boot_ns=boot_seconds * NS_PER_SECOND)) == []


def test_acpid() -> None:
    """A second owner of the power key is named; none is not."""
    assert grades(WELL._replace(acpid=True)) == [("warning", "acpid")]


def test_the_file_that_ignores_the_power_key_is_named() -> None:
    """The cure says where."""
    ignored = WELL._replace(bus=BUS._replace(power_key="ignore"), power_key_file="/etc/systemd/logind.conf")
    (finding,) = found(ignored)
    assert finding.code == "power-key-ignored"
    assert "/etc/systemd/logind.conf" in finding.cure
    by_file = WELL._replace(bus=BUS._replace(power_key=""), power_key_file="/etc/systemd/logind.conf")
    assert grades(by_file) == [("warning", "power-key-ignored")]
    assert grades(WELL._replace(power_key_file="/etc/systemd/logind.conf")) == []


def test_no_rule_speaks_of_a_node_where_there_is_none() -> None:
    """Mode process: none of these rules has anything to say."""
    sight = WELL._replace(node=None)
    assert [finding for rule in rules_node.NODE_RULES for finding in rule(sight)] == []
    assert examine(sight) == []


@given(
    st.sampled_from(("auto", "api", "cri", "observe")),
    st.builds(
        KubeletState,
        loaded=TRI,
        active=TRI,
        grace_ns=NUMBERS,
        beside=st.sampled_from(((), SINGLE_UNIT_DISTRIBUTIONS[:1])),
    ),
    st.builds(RuntimeState, st.text(max_size=3), problem=st.text(max_size=3)),
    st.builds(ApiServerState, st.text(max_size=3), st.text(max_size=3), st.text(), known=TRI, taint=TRI),
    st.none() | st.integers(0, 10**13),
)
def test_whatever_is_seen_is_judged(
    mode: str, kubelet: KubeletState, runtime: RuntimeState, api: ApiServerState, boot_ns: int | None
) -> None:
    """No sight makes a rule raise, and each finding has a code, a sentence and a cure."""
    sight = in_mode(mode, kubelet=kubelet, runtime=runtime, api=api, boot_ns=boot_ns)
    assert all(each.code and each.message and each.cure for each in examine(sight))


def test_the_runtime_is_not_judged_before_it_was_looked_at() -> None:
    """A blank look has no problem to tell."""
    assert grades(in_mode("auto", runtime=RuntimeState())) == []
    assert NODE.runtime.problem == ""
