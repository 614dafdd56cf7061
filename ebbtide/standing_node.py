"""How a Kubernetes node stands: who answers, by which means its pods are ended, what is safe to detach.

A part of `ebbtide.standing.Standing`, folded from the same records; in mode process all of it stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from events import decisions as d
from events import facts as f
from events.base import Event
from events.model import Means
from events.record import Record


class CertificateStanding(msgspec.Struct, kw_only=True):
    """``running`` are UIDs; ``mounted`` are pairs of a UID (empty: a driver's) and a volume."""

    safe: bool
    ended: int = 0
    running: tuple[str, ...] = ()
    mounted: tuple[tuple[str, str], ...] = ()


class NodeStanding(msgspec.Struct, kw_only=True):
    """None: nobody has said since the process began. The rest is of the running or the last shutdown."""

    kubelet: bool | None = None
    runtime: bool | None = None
    api: bool | None = None
    #: Why the last two do not answer.
    runtime_error: str = ""
    api_error: str = ""
    #: Whether this identity may taint the node.
    may_taint: bool = True
    #: Another program called ``kubelet`` holds a delay lock on shutdown.
    kubelet_lock: bool = False
    #: Empty: not said, as in mode process.
    means: Means = ""
    means_reason: str = ""
    #: Why it was handed over to the runtime; empty: it was not.
    handed_over: str = ""
    #: None: nobody has looked.
    certificate: CertificateStanding | None = None
    #: UIDs of what the kubelet had not done at the release.
    left_undone: tuple[str, ...] = ()

    def forget_health(self) -> None:
        """Another process has to say anew who answers it."""
        self.kubelet = self.runtime = self.api = None
        self.runtime_error = self.api_error = ""

    def begin_shutdown(self) -> None:
        """What was said of the one before is over."""
        self.means, self.means_reason, self.handed_over = "", "", ""
        self.certificate, self.left_undone = None, ()


def _lock(to: NodeStanding, event: f.PrepareForShutdown, record: Record) -> None:
    """The signal that ends a shutdown says nothing of locks."""
    if event.active:
        to.kubelet_lock = event.kubelet_lock


def _kubelet(to: NodeStanding, event: f.KubeletRead, record: Record) -> None:
    to.kubelet = event.active


def _runtime(to: NodeStanding, event: f.RuntimeRead, record: Record) -> None:
    to.runtime, to.runtime_error = event.reachable, event.error


def _api(to: NodeStanding, event: f.ApiRead, record: Record) -> None:
    to.api, to.api_error, to.may_taint = event.reachable, event.error, event.taint


def _means(to: NodeStanding, event: d.MeansChosen, record: Record) -> None:
    to.means, to.means_reason = event.means, event.reason


def _handed_over(to: NodeStanding, event: d.HandedOver, record: Record) -> None:
    to.handed_over = event.reason


def _certified(to: NodeStanding, event: d.DetachCertified, record: Record) -> None:
    to.certificate = CertificateStanding(
        safe=event.safe, ended=event.ended, running=event.running, mounted=event.mounted
    )


def _left(to: NodeStanding, event: d.LeftUndone, record: Record) -> None:
    to.left_undone = tuple(dict.fromkeys((*event.running, *event.without_status)))


NODE_FOLD: dict[type[Event], Callable[[Any, Any, Record], None]] = {
    f.PrepareForShutdown: _lock,
    f.KubeletRead: _kubelet,
    f.RuntimeRead: _runtime,
    f.ApiRead: _api,
    d.MeansChosen: _means,
    d.HandedOver: _handed_over,
    d.DetachCertified: _certified,
    d.LeftUndone: _left,
}
