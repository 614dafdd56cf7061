"""What the parts of this edge need of each other: a caller of the API server, and what is known of a pod.

The watch keeps `Known` pods, the writers look them up by UID and call. Neither knows how the other does it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from events.base import Order
from events.decisions import (
    AnnounceNode,
    AwaitStatuses,
    DeletePod,
    DeliverStatuses,
    PostEvent,
    PublishCertificate,
    WithdrawPods,
)

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

#: What the core may have written to the API server. Here, so that the edge can take orders before the
#: writers are loaded.
ORDERS: tuple[type[Order], ...] = (
    AnnounceNode,
    AwaitStatuses,
    DeletePod,
    DeliverStatuses,
    PostEvent,
    PublishCertificate,
    WithdrawPods,
)


class Answer(NamedTuple):
    """HTTP's status code and body; ``retry_after_seconds`` as the server asks for it, else 0."""

    code: int
    body: bytes = b""
    retry_after_seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return 200 <= self.code < 300


class Unanswered(Exception):
    """No answer in time: the connection, TLS, a token that cannot be had, or a server that is silent.

    ``sent`` False: for certain nothing of the request has left us, so nobody can have done what it asks for.
    """

    def __init__(self, text: str, *, sent: bool = True) -> None:
        super().__init__(text)
        self.sent = sent


class Caller(Protocol):
    """One call to the API server."""

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content_type: str = JSON,
        seconds_max: float,
        traceparent: str = "",
    ) -> Answer:
        """``path`` with its query, ``body`` to be encoded as JSON. Raises Unanswered."""


class Known(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a shutdown may need of a pod of this node, as the API last showed it (a whitelisted projection).

    ``uid`` is the one that the runtime knows: that of a static pod is its mirror's annotation
    ``kubernetes.io/config.mirror``. ``api_uid`` is the object's own, for preconditions.
    """

    uid: str
    api_uid: str
    namespace: str
    name: str
    resource_version: str = ""
    phase: str = ""
    priority: int | None = None
    grace_seconds: int | None = None
    static: bool = False
    daemon: bool = False
    tolerates_all: bool = False
    volumes: bool = False
    host_network: bool = False
    owner: str = ""
    #: Restartable init containers, in the manifest's order.
    sidecars: tuple[str, ...] = ()
    #: Names of the other containers, in the manifest's order.
    containers: tuple[str, ...] = ()
    #: Those of them whose ``state`` is terminated, with the exit code of each.
    ended: dict[str, int] = {}
    #: The runtime's ids of the containers, and init containers, that run, by name.
    running: dict[str, str] = {}
    #: The newest start of any container, RFC 3339, as the API had it.
    started_at: str = ""
    deleting: bool = False


class Lookup(Protocol):
    """What the runtime's edge asks for a pod that it has found: from the watch, its cache, or a manifest."""

    def find(self, uid: str) -> Known | None:
        """By the UID that the runtime knows."""

    def find_named(self, namespace: str, name: str) -> Known | None:
        """By name, where the UID is not known: a static pod that only its manifest tells of has none."""

    def pods(self) -> list[Known]:
        """All pods of this node, as far as they are known."""


class Followed(Lookup, Protocol):
    """A lookup that says when it has learned something."""

    @property
    def version(self) -> int:
        """Counts what the API server has told; 0: nothing yet, all that is known is from before a restart."""

    async def changed(self, since: int) -> None:
        """Return once ``version`` is another than this."""
