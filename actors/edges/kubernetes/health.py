"""Whether the API server can be used, as the actors hear of it: on a change, and not for every hiccup.

A call that fails says little: a restart of the API server, one of three behind a balancer that went. Only
when nothing was answered for a while is it away, and the first answer brings it back.
"""

from __future__ import annotations

import msgspec
import trio

from actors.edges.kubernetes.calling import Answer, Caller, Unanswered
from actors.interfaces import Outlet
from events.facts import ApiRead

#: So long nothing but failures: a mode that needs the API server is then not chosen. An API server restarts
#: in less, and a wave that finds it away hands over by itself (docs/node.md).
AWAY_SECONDS = 3.0
REVIEW_SECONDS_MAX = 3.0
ERROR_CHARS_MAX = 300
NODE_USER = "system:node:"

REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class _UserInfo(msgspec.Struct):
    username: str = ""


class _ReviewStatus(msgspec.Struct, rename="camel"):
    user_info: _UserInfo = msgspec.field(default_factory=_UserInfo)
    allowed: bool = True


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


async def may_taint(caller: Caller, node: str, before: bool = True) -> bool:
    """Whether we may change the node's taints; what was known ``before`` where it cannot be learned.

    A node's own identity may patch its Node, but NodeRestriction refuses changed taints to it, whatever
    RBAC allows (https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction).
    """
    try:
        who = await _review(caller, REVIEW, "authentication.k8s.io/v1", "SelfSubjectReview", {})
        if who is not None and who.user_info.username.startswith(NODE_USER):
            return False
        spec = {"resourceAttributes": {"verb": "patch", "resource": "nodes", "name": node}}
        may = await _review(caller, ACCESS, "authorization.k8s.io/v1", "SelfSubjectAccessReview", spec)
    except Unanswered:
        return before
    return before if may is None else may.allowed


async def _review(caller: Caller, path: str, version: str, kind: str, spec: object) -> _ReviewStatus | None:
    body = (
        {"apiVersion": version, "kind": kind, "spec": spec} if spec else {"apiVersion": version, "kind": kind}
    )
    answer = await caller.call("POST", path, body=body, seconds_max=REVIEW_SECONDS_MAX)
    try:
        return msgspec.json.decode(answer.body, type=_Review).status if answer.ok else None
    except (ValueError, RecursionError):
        return None


class Health:
    """Hears how calls went, and puts `ApiRead` on a change, which is also what an operator reads."""

    def __init__(self, caller: Caller, node: str, outlet: Outlet) -> None:
        self._caller = caller
        self._node = node
        self._outlet = outlet
        self._failing_since: float | None = None
        self._said: ApiRead | None = None
        self._taint = True

    async def answered(self) -> None:
        """What we need was answered; also looks what we may do there, since rights change."""
        self._failing_since = None
        self._taint = await may_taint(self._caller, self._node, self._taint)
        await self._say(ApiRead(reachable=True, taint=self._taint))

    async def failed(self, error: str, since: float) -> None:
        """A call that began at ``since`` failed, be it that it was not answered or that it was refused."""
        now = trio.current_time()
        self._failing_since = since if self._failing_since is None else self._failing_since
        if now >= self._failing_since + AWAY_SECONDS and (self._said is None or self._said.reachable):
            await self._say(ApiRead(reachable=False, error=error[:ERROR_CHARS_MAX], taint=self._taint))

    async def _say(self, fact: ApiRead) -> None:
        if fact != self._said:
            self._said = fact
            await self._outlet.put(fact)


def refusal(answer: Answer) -> str:
    """What a refusal says, in a line."""
    try:
        said = msgspec.json.decode(answer.body, type=_Refusal).message
    except (ValueError, RecursionError):
        said = ""
    return f"{answer.code} {' '.join(said.split())}".rstrip()


class _Refusal(msgspec.Struct):
    message: str = ""
