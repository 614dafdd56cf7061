"""A pod that is about to end is taken out of its Services: Ready=False, while somebody could still set it so.

With the kubelet stopped nobody else would do it before the pod's final status, and until then each new
connection goes to a process that no longer listens. Nothing waits for it, so one second a pod is its bound.
A final status says the same and more: where one is under way, the server is spared this call.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from actors.edges.kubernetes.calling import STRATEGIC_PATCH, Caller, Known, Lookup, Unanswered
from actors.edges.kubernetes.writes.finding import Denied, find_all
from actors.edges.kubernetes.writes.insisting import Call, is_gone, words
from actors.edges.kubernetes.writes.many import of_each
from actors.edges.kubernetes.writes.shapes import FINAL_PHASES, condition, pod_path
from actors.interfaces import Ending, Outlet
from events.decisions import WithdrawPods

#: For each call: a withdrawal that is later than its pod's stop helps nobody.
CALL_SECONDS_MAX = 1.0
WITHDRAWN = ("Ready", "ContainersReady")
REASON, MESSAGE = "NodeShutdown", "node is shutting down"


class Withdrawals:
    """``final``: the API's UIDs of pods whose final status is written, or being written, by somebody."""

    def __init__(
        self,
        caller: Caller,
        lookup: Lookup,
        node: str,
        context: Callable[[str], str],
        final: Container[str] = (),
    ) -> None:
        self._caller, self._lookup, self._node, self._context = caller, lookup, node, context
        self._final = final

    async def withdraw(self, order: WithdrawPods, outlet: Outlet) -> Ending:
        trace = self._context(order.key)
        try:
            call = Call(self._caller, CALL_SECONDS_MAX, trace)
            found = await find_all(self._lookup, order.uids, call, self._node)
        except (Unanswered, Denied) as error:
            return Ending("failed", str(error))

        async def one(pod: Known) -> str:
            if pod.api_uid in self._final or pod.phase in FINAL_PHASES:
                return ""
            return await _withdraw(pod, Call(self._caller, CALL_SECONDS_MAX, trace))

        problems = [each for each in await of_each(filter(None, found.values()), one) if each]
        if problems:
            return Ending("failed", f"{len(problems)} of {len(order.uids)} not withdrawn: {problems[0]}")
        return Ending()


async def _withdraw(pod: Known, call: Call) -> str:
    """Why it could not be done."""
    conditions = [condition([], kind, "False", REASON, MESSAGE) for kind in WITHDRAWN]
    body = {"metadata": {"uid": pod.api_uid}, "status": {"conditions": conditions}}
    path = f"{pod_path(pod.namespace, pod.name)}/status"
    try:
        answer = await call.insist("PATCH", path, body, STRATEGIC_PATCH)
    except Unanswered as error:
        return str(error)
    return "" if answer.ok or is_gone(answer) else words(answer)
