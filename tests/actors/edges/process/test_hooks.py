"""preStop hooks with real processes and servers: outcome, bounds and leftovers."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from ebbtide.actors.edges.pod_spec import ExecAction, HookAction, HttpGetAction, SleepAction, TcpSocketAction
from ebbtide.actors.interfaces import Ending
from tests.actors.edges.process.process_bed import Bed, bed_of, hook_pod, pod_of, shell
from tests.waiting import WATCHDOG_SECONDS, until

#: Marks each place where a secret may appear.
CANARY = "c4n4ry"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REFUSING = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"


def script(text: str) -> ExecAction:
    return ExecAction(argv=("sh", "-c", text))


async def run_hook(bed: Bed, uid: str = "p", seconds: float = WATCHDOG_SECONDS) -> Ending:
    return await bed.order(bed.hook(uid, seconds=seconds))


# --- exec


async def test_an_exec_hook_gets_the_trace_context_of_its_order(tmp_path: Path) -> None:
    """In the usual environment variable; the manifest's own value wins."""
    pod = hook_pod("p", script("echo $TRACEPARENT > hooked"), working_dir=str(tmp_path))
    own = hook_pod(
        "q", script("echo $TRACEPARENT > own"), working_dir=str(tmp_path), env={"TRACEPARENT": "mine"}
    )
    async with bed_of(tmp_path, pod, own) as bed:
        bed.edge.pass_on(lambda order_key: f"context of {order_key}")
        assert (await run_hook(bed)).result == "done"
        assert (await run_hook(bed, "q")).result == "done"
        assert not bed.edge._table.pods["p"].hooks
        assert await bed.shows("hooked") == "context of hook/p/main"
        assert await bed.shows("own") == "mine"
        await bed.kill("p")
        await bed.kill("q")


@pytest.mark.parametrize(
    "action, ending",
    [
        (script("exit 7"), Ending("failed", "exit code 7", 7)),
        (script("kill -KILL $$"), Ending("failed", "ended by SIGKILL")),
        (
            ExecAction(argv=("/no/such/hook",)),
            Ending("failed", "cannot start: /no/such/hook: No such file or directory"),
        ),
        (ExecAction(argv=()), Ending("failed", "cannot start: no command is given")),
        (TcpSocketAction(), Ending("failed", "invalid handler")),
        (SleepAction(seconds=1), Ending("failed", "no hook that has to be run")),
    ],
)
async def test_a_failing_hook_says_why(tmp_path: Path, action: HookAction, ending: Ending) -> None:
    """A reason, with an exit code if there is one; the container survives."""
    async with bed_of(tmp_path, hook_pod("p", action)) as bed:
        assert await run_hook(bed) == ending
        await until(lambda: len(bed.processes()) == 1, "the hook is left")
        await bed.kill("p")


async def test_a_hook_that_takes_too_long_is_killed_with_its_tree(tmp_path: Path, use_cgroups: bool) -> None:
    """The hook and its children end; the container survives."""
    action = script("setsid sleep 1000 & exec sleep 1000")
    async with bed_of(tmp_path, hook_pod("p", action), use_cgroups=use_cgroups) as bed:
        assert await run_hook(bed, seconds=0.2) == Ending("timed-out", "the hook's time is over")
        await until(lambda: len(bed.processes()) == 1, "the hook is left")
        await bed.kill("p")


async def test_no_hook_runs_where_no_container_does(tmp_path: Path) -> None:
    async with bed_of(tmp_path, pod_of("p", shell("exit 0", pre_stop=script("exit 0")))) as bed:
        await bed.exited("p")
        assert await run_hook(bed) == Ending("failed", "the container does not run")
        assert await run_hook(bed, "q") == Ending("failed", "no such container is known here")


# --- httpGet


class Server:
    """Answers each connection once and keeps the request. ``tls`` None: plain HTTP."""

    def __init__(self, answer: bytes, tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.tls = tls
        self.asked: list[bytes] = []
        self.port = 0

    async def serve(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        await trio.serve_listeners(self._handle, listeners, task_status=task_status)

    async def _handle(self, plain: trio.SocketStream) -> None:
        stream: trio.abc.Stream = plain
        if self.tls is not None:
            stream = trio.SSLStream(plain, self.tls, server_side=True, https_compatible=True)
        with suppress(trio.BrokenResourceError):
            asked = b""
            while b"\r\n\r\n" not in asked and not asked.startswith(b"\x16\x03"):
                part = await stream.receive_some(65536)
                if not part:
                    break
                asked += part
            self.asked.append(asked)
            await stream.send_all(self.answer)
            await stream.aclose()


@asynccontextmanager
async def serving(answer: bytes = OK, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Server, None]:
    server = Server(answer, tls)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve)
        yield server
        nursery.cancel_scope.cancel()


@pytest.fixture
def self_signed(tmp_path: Path) -> ssl.SSLContext:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=nobody"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


async def get(
    folder: Path, action: HttpGetAction, seconds: float = WATCHDOG_SECONDS, **fields: object
) -> Ending:
    async with bed_of(folder, hook_pod("p", action, **fields)) as bed:
        ending = await run_hook(bed, seconds=seconds)
        await bed.kill("p")
        return ending


async def test_any_answer_is_success(tmp_path: Path) -> None:
    """The request goes to the pod's address; any status code is success."""
    async with serving(REFUSING) as server:
        action = HttpGetAction(port="web", path="stop?now=1", headers=(("X-Why", "shutdown"),))
        assert await get(tmp_path, action, ports={"web": server.port}) == Ending()
        (asked,) = server.asked
        lines = asked.decode().split("\r\n")
        assert lines[0] == "GET /stop?now=1 HTTP/1.1"
        assert f"Host: 127.0.0.1:{server.port}" in lines
        assert "X-Why: shutdown" in lines
        assert {"User-Agent: ebbtide-lifecycle/0.1", "Accept: */*"} <= {*lines}


async def test_a_self_signed_certificate_is_good_enough(tmp_path: Path, self_signed: ssl.SSLContext) -> None:
    """TLS is spoken, and not verified."""
    async with serving(OK, self_signed) as server:
        assert await get(tmp_path, HttpGetAction(port=server.port, scheme="HTTPS")) == Ending()
        assert server.asked[0].startswith(b"GET / HTTP/1.1")


async def test_https_falls_back_to_http_without_the_secret(tmp_path: Path) -> None:
    """A plain answer to TLS causes a plain request without Authorization."""
    headers = (("Authorization", "secret"), ("X-Kept", "yes"))
    async with serving(REFUSING) as server:
        action = HttpGetAction(port=server.port, scheme="HTTPS", headers=headers)
        assert await get(tmp_path, action) == Ending()
        greeting, plain = server.asked
        assert greeting.startswith(b"\x16\x03")
        assert plain.startswith(b"GET / HTTP/1.1")
        assert b"X-Kept: yes" in plain
        assert b"secret" not in b"".join(server.asked)


@pytest.mark.parametrize(
    "action",
    [
        ExecAction(argv=("/no/such/hook", CANARY)),
        ExecAction(argv=("sh", f"{CANARY}\0")),
        ExecAction(argv=("sh", CANARY * 50_000)),
        ExecAction(argv=("sh", "-c", f"echo {CANARY}; echo {CANARY} >&2; exit 1")),
    ],
)
async def test_no_failure_tells_what_a_command_holds(tmp_path: Path, action: ExecAction) -> None:
    """A failure names the program, but neither its arguments nor its output."""
    async with bed_of(tmp_path, hook_pod("p", action)) as bed:
        ending = await run_hook(bed)
        assert ending.result == "failed"
        assert CANARY not in ending.reason
        await bed.kill("p")
