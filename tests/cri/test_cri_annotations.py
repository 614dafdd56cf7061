"""Reading what a kubelet writes: hooks, ports, grace, and what is not there or not readable."""

from __future__ import annotations

import json
from typing import Any

import pytest

from actors.edges.cri.annotations import GRACE, PORTS, PRE_STOP, grace_seconds, hook_of, ports, pre_stop
from actors.edges.cri.stops import backstop_seconds
from actors.edges.process.spec import (
    ExecAction,
    HookAction,
    HttpGetAction,
    SleepAction,
    TcpSocketAction,
)
from events.model import Hook

HANDLERS: list[tuple[dict[str, Any], HookAction | None, Hook | None]] = [
    ({}, None, None),
    (
        {"exec": {"command": ["/opt/bin/bye", "--token=x"]}},
        ExecAction(argv=("/opt/bin/bye", "--token=x")),
        Hook(kind="exec", detail="bye"),
    ),
    ({"exec": {}}, None, None),
    ({"sleep": {"seconds": 5}}, SleepAction(seconds=5), Hook(kind="sleep", sleep_seconds=5)),
    ({"tcpSocket": {"port": 80}}, TcpSocketAction(), Hook(kind="tcpSocket")),
    (
        {"httpGet": {"port": 8080, "scheme": "HTTPS", "path": "/bye?token=x", "host": "h"}},
        HttpGetAction(port=8080, scheme="HTTPS", path="/bye?token=x", host="h"),
        Hook(kind="httpGet", detail=":8080/bye"),
    ),
    (
        {"httpGet": {"port": "web", "httpHeaders": [{"name": "A", "value": "b"}]}},
        HttpGetAction(port="web", headers=(("A", "b"),)),
        Hook(kind="httpGet", detail=":web"),
    ),
]


@pytest.mark.parametrize(("handler", "action", "hook"), HANDLERS)
def test_handlers(handler: dict[str, Any], action: HookAction | None, hook: Hook | None) -> None:
    """Each handler of the annotation is its action; of that a journal may hold no argument and no query."""
    assert pre_stop({PRE_STOP: json.dumps(handler)}) == action
    assert hook_of(action) == hook


def test_what_cannot_be_read_is_not_there() -> None:
    """An annotation that is missing or damaged gives no hook, no ports and no grace."""
    for text in ("{", "[]", '"x"', '{"exec": 1}', '{"httpGet": {"port": []}}'):
        assert pre_stop({PRE_STOP: text}) is None
        assert grace_seconds({GRACE: text}) is None
    assert pre_stop({}) is None
    assert ports({PORTS: "{"}) == {}
    assert grace_seconds({}) is None


def test_ports_and_grace() -> None:
    """Ports that have a name, and the grace as a number."""
    found = [{"name": "web", "containerPort": 8080, "protocol": "TCP"}, {"containerPort": 9}]
    assert ports({PORTS: json.dumps(found)}) == {"web": 8080}
    assert grace_seconds({GRACE: "45"}) == 45


@pytest.mark.parametrize(("grace", "seconds"), [(0, 3), (1, 3), (2, 3), (30, 31), (None, 3601)])
def test_the_runtime_never_kills_first(grace: int | None, seconds: int) -> None:
    """A stop's timeout lies behind the core's longest wait: the pod's grace or the floor of 2 s."""
    assert backstop_seconds(grace) == seconds
