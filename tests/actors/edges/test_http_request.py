"""The request of an httpGet hook, by the reference's table."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from ebbtide.actors.edges.http_request import BadHook, HookRequest, RequestFailed, request_of
from ebbtide.actors.edges.pod_spec import ContainerSpec, HttpGetAction
from tests.actors.edges.process.test_hooks import CANARY, serving

CASES = Path(__file__).parents[2] / "cases" / "kubelet-hooks.yaml"

CONTAINER = ContainerSpec(name="c", argv=("x",), ports={"quux": 8080})


def rows() -> list[dict[str, Any]]:
    (suite,) = [suite for suite in yaml.safe_load_all(CASES.read_text()) if "container_ports" in suite]
    assert suite["container_ports"] == CONTAINER.ports
    return [row for row in suite["cases"] if row.keys() & {"want_url", "want_headers"} or refused(row)]


def refused(row: dict[str, Any]) -> bool:
    return row.get("want") == "error" and "port" in row


def request(row: dict[str, Any]) -> HookRequest:
    hook = HttpGetAction(
        port=row["port"],
        host=row.get("host", ""),
        scheme=row.get("scheme", ""),
        path=row.get("path", ""),
        headers=tuple(row.get("headers", {}).items()),
    )
    return request_of(hook, CONTAINER, row.get("pod_ip", ""))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["name"])
def test_the_reference_s_table(row: dict[str, Any]) -> None:
    if refused(row):
        with pytest.raises(BadHook, match="port"):
            request(row)
        return
    found = request(row)
    assert found.url == row.get("want_url", found.url)
    headers = dict(found.headers)
    wanted = dict(row.get("want_headers", {}))
    if "User-Agent" in wanted:
        # The kubelet names itself in the header; so do we.
        wanted["User-Agent"] = "ebbtide-lifecycle/0.1"
    assert wanted.items() <= headers.items()


@pytest.mark.parametrize(
    "hook, url, target",
    [
        (HttpGetAction(port=80, host="::1"), "http://[::1]:80/", "/"),
        (HttpGetAction(port=80, host="h", path="a b"), "http://h:80/a%20b", "/a%20b"),
        (
            HttpGetAction(port=80, host="h", path="/ü?k=ü [a]#f"),
            "http://h:80/%C3%BC?k=ü [a]#f",
            "/%C3%BC?k=ü [a]",
        ),
        (HttpGetAction(port=80, host="h", path="/a?%zz?"), "http://h:80/a?%zz?", "/a?%zz?"),
        (HttpGetAction(port=80, host="h", path="/a?"), "http://h:80/a?", "/a?"),
        (HttpGetAction(port=80, host="h", path="/%zz?k"), "http://h:80/%25zz%3Fk", "/%25zz%3Fk"),
        (HttpGetAction(port=80, host="h", path="/a?k\n"), "http://h:80/a%3Fk%0A", "/a%3Fk%0A"),
        (HttpGetAction(port=80, host="h", path="http://other:1/x"), "http://h:80/x", "/x"),
        (HttpGetAction(port=80, host="h", path="/a%2Fb"), "http://h:80/a%2Fb", "/a%2Fb"),
    ],
)
def test_addresses_and_paths_are_made_safe(hook: HttpGetAction, url: str, target: str) -> None:
    """As Go's net/url makes them: brackets for IPv6, one escaping of unsafe characters of a path, a query as
    it is, no fragments; a text that is no URL is all path; a whole URL in the path changes no host.
    """
    found = request_of(hook, CONTAINER, "")
    assert (found.url, found.target) == (url, target)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (("X", " a\tb \t"), ("X", "a\tb")),
        (("Authorization", "Bearer x "), ("Authorization", "Bearer x")),
        (("X", "gr\u00fc\u00df"), ("X", "gr\u00fc\u00df")),
        (("X", ""), ("X", "")),
        (("Host", " other "), ("Host", "other")),
    ],
)
def test_values_are_sent_as_the_kubelet_sends_them(given: tuple[str, str], sent: tuple[str, str]) -> None:
    """Go's net/http trims blanks and sends all other printable characters."""
    assert sent in request_of(HttpGetAction(port=80, host="h", headers=(given,)), CONTAINER, "").headers


def test_the_trace_context_goes_along() -> None:
    """W3C Trace Context, unless the manifest sets its own."""
    hook, context = HttpGetAction(port=80, host="h"), "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    assert dict(request_of(hook, CONTAINER, "", context).headers)["traceparent"] == context
    assert "traceparent" not in dict(request_of(hook, CONTAINER, "").headers)
    own = HttpGetAction(port=80, host="h", headers=(("Traceparent", "own"),))
    sent = request_of(own, CONTAINER, "", context).headers
    assert [item for item in sent if item[0].lower() == "traceparent"] == [("Traceparent", "own")]


SECRETIVE = HttpGetAction(
    port=1, path=f"/x?{CANARY}#{CANARY}", headers=(("Authorization", f"Bearer {CANARY}"), (CANARY, CANARY))
)
WRONG_HOOKS = [
    replace(SECRETIVE, host=host, scheme=scheme)
    for scheme in ("http", "https")
    for host in ("", f"{CANARY}.invalid", f"{CANARY}\0", CANARY * 40, f"{CANARY}:1:x", f"\u00fc{CANARY}")
] + [
    replace(SECRETIVE, scheme=CANARY),
    replace(SECRETIVE, port=0),
    replace(SECRETIVE, path=f"//[{CANARY}"),
    *(
        replace(SECRETIVE, headers=(header,))
        for header in ((f"{CANARY} x", "x"), ("X", f"{CANARY}\r\n{CANARY}: x"), ("Host", f"{CANARY}\n"))
    ),
]
WRONG_ANSWERS = [
    b"",
    CANARY.encode(),
    f"{CANARY}\r\n\r\n".encode(),
    f"HTTP/1.1 {CANARY}\r\n\r\n".encode(),
    f"HTTP/{CANARY} 200 OK\r\n\r\n".encode(),
    f"HTTP/1.1 200 OK\r\n{CANARY}\r\n\r\n".encode(),
    f"HTTP/1.1 200 OK\r\n{CANARY} : x\r\n\r\n".encode(),
    f"HTTP/1.1 200 OK\r\nX: {CANARY}\0\r\n\r\n".encode(),
    f"HTTP/1.1 200 OK\r\nContent-Length: {CANARY}\r\n\r\n".encode(),
    f"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{CANARY}".encode(),
    f"HTTP/1.1 200 OK\r\nTransfer-Encoding: {CANARY}\r\n\r\n".encode(),
    f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{CANARY}\r\n".encode(),
    b"HTTP/1.1 200 OK\r\nX: " + CANARY.encode() * 20_000,
]


async def failure_of(action: HttpGetAction) -> str:
    """The recorded reason of a failed hook. Raises unexpected errors."""
    try:
        await request_of(action, CONTAINER, "127.0.0.1").send()
    except RequestFailed as error:
        return str(error)
    return ""


@pytest.mark.parametrize("action", WRONG_HOOKS, ids=itertools.count())
async def test_no_failure_tells_what_a_hook_holds(action: HttpGetAction) -> None:
    """The record has the reason, but no header and no query: these may be secrets."""
    found = await failure_of(action)
    assert found
    assert CANARY not in found.lower()


@pytest.mark.parametrize(
    ("answer", "scheme"),
    [(each, "http") for each in WRONG_ANSWERS] + [(each, "https") for each in WRONG_ANSWERS[:2]],
    ids=itertools.count(),
)
async def test_no_failure_tells_what_a_server_said(answer: bytes, scheme: str) -> None:
    """The answer may come from a wrong server or hold a session token."""
    async with serving(answer) as server:
        found = await failure_of(replace(SECRETIVE, port=server.port, scheme=scheme))
    assert found
    assert CANARY not in found
