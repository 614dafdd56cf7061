"""The doctor's rules about identity and rights at the API server, on plain values."""

from __future__ import annotations

import pytest

from ebbtide.doctor.rules import examine
from ebbtide.doctor.snapshot import NEEDED_RIGHTS, CertificateValidity, NeededRight
from tests.doctor.values import API, DAY_S, NOW_S, found, grades, node

#: Every right in every mode.
CASES = [(need, mode) for need in NEEDED_RIGHTS for mode in ("api", "auto", "cri", "observe")]
IDS = [f"{need.right.text.replace(' ', '-')}-{mode}" for need, mode in CASES]
ACCOUNT = "system:serviceaccount:ebbtide:ebbtide"


@pytest.mark.parametrize("need, mode", CASES, ids=IDS)
def test_a_right_that_is_lacking_is_named(need: NeededRight, mode: str) -> None:
    """As grave as the table has it for the mode, with what is lost; a mode that does without says nothing."""
    sight = node(mode=mode, api=API._replace(denied=(need.right,)))
    said = [each for each in found(sight) if each.code.startswith("rbac-")]
    level = need.levels.get(mode)
    assert [(each.level, need.right.text in each.message) for each in said] == (
        [(level, True)] if level else []
    )


def test_deleting_pods_is_what_mode_api_cannot_do_without() -> None:
    """There it is critical, in auto there is another way."""
    (need,) = [need for need in NEEDED_RIGHTS if need.right.text == "delete pods"]
    denied = API._replace(denied=(need.right,))
    assert grades(node(mode="api", api=denied)) == [("critical", "rbac-delete-pods")]
    assert grades(node(mode="auto", api=denied)) == [("warning", "rbac-delete-pods")]
    assert grades(node(mode="cri", api=denied)) == []


@pytest.mark.parametrize("mode, codes", [("auto", ["no-taint"]), ("api", ["no-taint"]), ("cri", [])])
def test_a_node_identity_may_not_taint(mode: str, codes: list[str]) -> None:
    """Where pods are deleted, those of DaemonSets then go over the runtime, and that is said."""
    said = found(node(mode=mode, api=API._replace(taint=False)))
    assert [each.code for each in said] == codes
    assert all("NodeRestriction" in each.message and "service account" in each.cure for each in said)


def test_a_taint_that_was_not_tried_is_no_finding() -> None:
    """The dry run failed for a reason of its own."""
    assert grades(node(api=API._replace(taint=None))) == []


@pytest.mark.parametrize(
    "user, groups, code, cannot",
    [
        ("system:node:node-1", ("system:nodes",), "identity-node", "taint"),
        (ACCOUNT, (), "identity-account", "any node's pods"),
        ("admin", ("system:masters",), "identity-admin", "far more"),
    ],
)
def test_what_each_form_of_identity_cannot_do_is_said(
    user: str, groups: tuple[str, ...], code: str, cannot: str
) -> None:
    """One note, also where all is well."""
    (finding,) = examine(node(api=API._replace(user=user, groups=groups)))
    assert (finding.level, finding.code) == ("note", code)
    assert cannot in finding.message


def test_an_identity_that_nobody_told_is_no_finding() -> None:
    """An old API server has no review of who one is."""
    assert examine(node(api=API._replace(user="", groups=()))) == []


def test_the_identity_of_another_node() -> None:
    """NodeRestriction would refuse everything: critical, and the cure is the name."""
    (finding,) = found(node(api=API._replace(user="system:node:node-2")))
    assert (finding.level, finding.code) == ("critical", "foreign-identity")
    assert finding.cure == "set node.nodeName: node-2"


@pytest.mark.parametrize(
    "left_s, grade",
    [
        (DAY_S // 20, []),
        (DAY_S // 20 - 1, [("warning", "certificate-expires")]),
        (0, [("warning", "certificate-expired")]),
    ],
)
def test_a_certificate_that_nobody_renews(left_s: int, grade: list[tuple[str, str]]) -> None:
    """Less than a twentieth of its time left, or nothing: a kubelet renews it long before."""
    certificate = CertificateValidity("/pki/c.pem", NOW_S + left_s - DAY_S, NOW_S + left_s)
    assert grades(node(api=API._replace(certificate=certificate))) == grade


def test_a_certificate_that_expired_where_there_is_no_other_way() -> None:
    """Mode api with it is critical."""
    certificate = CertificateValidity("/pki/c.pem", NOW_S - 3 * DAY_S, NOW_S - 2 * DAY_S)
    (finding,) = found(node(mode="api", api=API._replace(certificate=certificate)))
    assert (finding.level, finding.message) == (
        "critical",
        "the client certificate /pki/c.pem expired 2 days ago",
    )


def test_text_of_the_server_cannot_move_the_cursor() -> None:
    """A user's name is other people's text."""
    text = [each.message for each in examine(node(api=API._replace(user="system:node:\x1b[2J")))]
    assert text
    assert not any("\x1b" in each for each in text)
