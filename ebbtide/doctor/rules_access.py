"""The doctor's rules about who we are at the API server, and what we may do there.

There are two forms (docs/node.md): the node's own identity, which NodeRestriction keeps to this node and away
from taints, and a service account, which may taint, but is not kept to this node by anything built in.
"""

from __future__ import annotations

from collections.abc import Iterator

from ebbtide.doctor.rights import NEEDS
from ebbtide.doctor.seen import MASTERS, NODE_USER
from ebbtide.doctor.sight import Finding, Level, Sight
from ebbtide.text import visible

#: A kubelet renews its certificate when 10 to 30 % of its time are left; with less, nothing renews it.
LEFT_DIVISOR = 20

ACCOUNT_USER = "system:serviceaccount:"


def certificate(sight: Sight) -> Iterator[Finding]:
    node = sight.node
    found = node.api.certificate if node is not None else None
    if node is None or found is None:
        return
    cure = "see the kubelet's log (rotateCertificates), or issue a new one and name it in the kubeconfig"
    left_s = found.ends_s - node.now_s
    if left_s <= 0:
        level: Level = "warning" if node.mode in ("auto", "cri") and not node.runtime.problem else "critical"
        message = f"the client certificate {found.path} expired {_hours(-left_s)} ago"
        yield Finding(level, "certificate-expired", message, cure)
    elif left_s * LEFT_DIVISOR < found.ends_s - found.begins_s:
        message = f"the client certificate {found.path} expires in {_hours(left_s)}, and nothing renewed it"
        yield Finding("warning", "certificate-expires", message, cure)


def _hours(seconds: int) -> str:
    return f"{seconds // 86400} days" if seconds >= 2 * 86400 else f"{seconds // 3600} h"


def rights(sight: Sight) -> Iterator[Finding]:
    """One finding for each right that the mode needs and the identity lacks."""
    node = sight.node
    if node is None:
        return
    for need in NEEDS:
        level = need.levels.get(node.mode)
        if need.right in node.api.denied and level is not None:
            code = f"rbac-{need.right.text.replace(' ', '-').replace('/', '-')}"
            message = f"{visible(node.api.user)} may not {need.right.text}: {need.lack}"
            yield Finding(level, code, message, "apply deploy/kubernetes/rbac, or name another kubeconfig")


def taint(sight: Sight) -> Iterator[Finding]:
    """Without the taint a DaemonSet makes a deleted pod again at once, so those are not deleted."""
    node = sight.node
    if node is None or node.api.taint is not False or node.mode not in ("api", "auto"):
        return
    restricted = node.api.user.startswith(NODE_USER)
    why = " (NodeRestriction)" if restricted else ""
    message = (
        f"{visible(node.api.user)} may not taint the Node{why}: a deleted pod of a DaemonSet is made again "
        "here, so those pods are not deleted but ended through the runtime, after the others"
    )
    cure = (
        "use a service account with the ClusterRole of deploy/kubernetes/rbac"
        if restricted
        else "allow patch nodes; a ValidatingAdmissionPolicy may want a token of a pod on this node"
    )
    yield Finding("warning", "no-taint", message, cure)


def identity(sight: Sight) -> Iterator[Finding]:
    """What this form of identity cannot do, said once, also where all is well."""
    node = sight.node
    if node is None or not node.api.answers:
        return
    user = visible(node.api.user)
    if MASTERS in node.api.groups:
        message = f"{user} may do anything in the cluster ({MASTERS}): far more than a shutdown needs"
        yield Finding("note", "identity-admin", message, "use the node's own identity, or a service account")
    elif user.startswith(NODE_USER):
        message = (
            f"{user}, the node's own identity, may neither taint its Node nor read priority classes, and its "
            "credentials are the kubelet's: while those are not renewed, nothing goes through the API server"
        )
        yield Finding("note", "identity-node", message, "none needed; a service account may taint")
    elif user.startswith(ACCOUNT_USER):
        message = (
            f"{user}, a service account, is kept to this node by nothing built in: its token may delete any "
            "node's pods"
        )
        cure = "none needed where the ValidatingAdmissionPolicy of deploy/kubernetes/rbac is applied"
        yield Finding("note", "identity-account", message, cure)


def foreign(sight: Sight) -> Iterator[Finding]:
    """A node identity may only touch the node that it is called after."""
    node = sight.node
    if node is None or not node.api.user.startswith(NODE_USER):
        return
    theirs = node.api.user.removeprefix(NODE_USER)
    if theirs != node.name:
        message = f"the identity is that of node {visible(theirs)}, and this node is called {node.name}"
        yield Finding("critical", "foreign-identity", message, f"set node.nodeName: {visible(theirs)}")


RULES = (certificate, foreign, rights, taint, identity)
