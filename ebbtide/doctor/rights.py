"""What an identity at the API server has to be allowed, and what its lack costs, mode by mode.

The roles of ``deploy/`` give these; a node's own identity has them from the Node authorizer, but for the
taint.
"""

from __future__ import annotations

from typing import NamedTuple

from ebbtide.doctor.seen import Right
from ebbtide.doctor.sight import Level


class Need(NamedTuple):
    """``levels``: how grave its lack is in a mode; a mode that is not there does without."""

    right: Right
    lack: str
    levels: dict[str, Level]


_READ: dict[str, Level] = {"api": "critical", "auto": "warning", "observe": "warning", "cri": "warning"}
_DELETE: dict[str, Level] = {"api": "critical", "auto": "warning"}
_TELL: dict[str, Level] = {"api": "warning", "auto": "warning", "cri": "warning"}
_ANYWAY: dict[str, Level] = {"api": "note", "auto": "note", "cri": "note", "observe": "note"}

NEEDS = (
    Need(Right("list", "pods"), "this node's pods and their priorities are not known", _READ),
    Need(Right("get", "pods"), "what is delivered late cannot be checked against the pod as it is", _TELL),
    Need(Right("watch", "pods"), "changes of this node's pods are not known in time", _READ),
    Need(Right("delete", "pods"), "no pod can be ended through the API server", _DELETE),
    Need(
        Right("patch", "pods", "status"),
        "endpoints are not withdrawn at the wave's start, and no final status is written",
        _TELL,
    ),
    Need(Right("get", "nodes"), "what Ebbtide changed on the Node cannot be taken back exactly", _TELL),
    Need(
        Right("patch", "nodes"),
        "the Node is neither tainted nor marked unschedulable: new pods are sent here until the end",
        _TELL,
    ),
    Need(Right("patch", "nodes", "status"), "the Node's conditions do not show the shutdown", _TELL),
    Need(Right("create", "events"), "the Node and the owners of killed pods get no Events", _ANYWAY),
)
RIGHTS = tuple(need.right for need in NEEDS)
#: A node's identity may get each of its own pods, which a review that names none is refused.
NOT_OF_NODES = Right("get", "pods")
