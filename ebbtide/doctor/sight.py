"""What the doctor has seen, as plain values: the input of every rule."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from actors.edges.process.forecast import Forecast
from actors.policy.plan import Plan
from ebbtide.doctor.seen import NodeSeen
from events.facts import DropInsRead
from events.model import Pod
from events.recovery import Verdict

#: ``critical`` stops a graceful shutdown; ``warning`` makes it less graceful; ``note`` is worth knowing.
Level = Literal["critical", "warning", "note"]


class Finding(NamedTuple):
    """``code`` stays; ``message`` says what is wrong and ``cure`` what to do, both for people."""

    level: Level
    code: str
    message: str
    cure: str


class Bus(NamedTuple):
    """What logind and systemd said. ``our_lock``: a delay lock of ours stands in ``ListInhibitors``."""

    grant_ns: int
    preparing: bool
    our_lock: bool
    kubelet_lock: bool
    power_key: str
    systemd: str


class Store(NamedTuple):
    """The journal's place. ``error``: why it cannot be looked at; ``free_bytes`` None: not known.

    ``failed_starts``: (pod, reason) of each that its last daemon could not start; ``mode``: that daemon's.
    """

    path: str
    exists: bool = False
    writable: bool = True
    free_bytes: int | None = None
    verdict: Verdict | None = None
    failed_starts: tuple[tuple[str, str], ...] = ()
    error: str = ""
    mode: str = ""


class Sight(NamedTuple):
    """``status`` is the daemon's answer, None with ``status_error`` when it gave none; likewise ``bus``.

    ``plan`` is made under the grant that will be had; None when the configuration cannot be read.
    ``labels`` has names by UID for ``forecasts``; ``pods`` are those of the plan.
    ``power_key_file``: the file that has logind ignore the power key. ``node`` None: the pods are local
    processes here.
    """

    config_error: str
    raise_grant: bool
    plan: Plan | None
    status: dict[str, Any] | None
    status_error: str
    bus: Bus | None
    bus_error: str
    files: DropInsRead
    store: Store
    forecasts: tuple[Forecast, ...]
    labels: dict[str, str]
    pods: tuple[Pod, ...] = ()
    acpid: bool = False
    power_key_file: str = ""
    node: NodeSeen | None = None
