"""Redfish: the meaning of each answer, and forbidden requests and texts."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
import trio

from ebbtide.actors.edges.http_request import ANSWER_BYTES_MAX, Answer, RequestFailed
from ebbtide.actors.edges.proof_sources.proof_source import Machine, Said, Unread
from ebbtide.actors.edges.proof_sources.redfish import RESET, SYSTEMS_MAX, Redfish
from ebbtide.events import bounds
from tests.actors.edges.proof_sources.serving import Asked, Server, answer, serving

OURS = "4c4c4544-0042-3510-8052-b4c04f4a3132"
TURNED = str(UUID(bytes_le=UUID(OURS).bytes))
ANOTHER = "99999999-9999-4999-8999-999999999999"
MACHINE = Machine("node-1", "uid-1", "boot-1", OURS, "")
SYSTEM, SYSTEMS = "/redfish/v1/Systems/1", "/redfish/v1/Systems"
TARGET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
PASSWORD = "correct horse"
FAILED = (Unread, RequestFailed)
OFF, ON = Said("off", "systemUUID", OURS), Said("on", "systemUUID", OURS)


def system(power: object = "On", uuid: object = OURS, **fields: object) -> dict[str, object]:
    return {"@odata.id": SYSTEM, "UUID": uuid, "PowerState": power} | fields


def listed(*paths: str, **fields: object) -> dict[str, object]:
    return {"Members": [{"@odata.id": path} for path in paths]} | fields


def resettable(power: str = "On", allowed: tuple[str, ...] | None = ("On", "ForceOff"), **fields: Any) -> Any:
    reset: dict[str, object] = {"target": TARGET}
    if allowed is not None:
        reset["ResetType@Redfish.AllowableValues"] = allowed
    return system(power, Actions={RESET: reset}, **fields)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    (tmp_path / "username").write_text("root\n")
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    return Server(tmp_path)


def source(server: Server, **fields: Any) -> Redfish:
    folder = server.ca_file.parent
    given: dict[str, Any] = {
        "url": server.url,
        "system": SYSTEM,
        "username_file": folder / "username",
        "password_file": folder / "password",
    }
    if not {"fingerprint", "ca_file"} & set(fields):
        given["ca_file"] = server.ca_file
    return Redfish(**given | fields)


async def read(server: Server, answered: object, **fields: Any) -> Said:
    server.resources({SYSTEM: answered})
    async with serving(server):
        return await source(server, **fields).read(MACHINE)


def encoded(password: str) -> str:
    return base64.b64encode(f"root:{password}".encode()).decode()


async def unread(server: Server, answered: object, **fields: Any) -> str:
    """The failure reason; it never holds a secret."""
    with pytest.raises(FAILED) as caught:
        await read(server, answered, **fields)
    text = str(caught.value)
    assert "\n" not in text
    for secret in (PASSWORD, encoded(PASSWORD), "theirs"):
        assert secret not in text
    return text


# --- what is said


@pytest.mark.parametrize(
    ("power", "verdict", "error"),
    [
        ("Off", "off", ""),
        ("On", "on", ""),
        ("PoweringOff", "unknown", "PowerState PoweringOff"),
        ("off", "unknown", "its PowerState is none of Redfish's"),
        ("theirs", "unknown", "its PowerState is none of Redfish's"),
        (None, "unknown", "it has no PowerState"),
    ],
)
async def test_only_on_and_off_are_taken(server: Server, power: object, verdict: Any, error: str) -> None:
    """Exactly as Redfish writes them."""
    assert await read(server, system(power)) == Said(verdict, "systemUUID", OURS, error=error)


async def test_a_request_is_what_redfish_asks_for(server: Server) -> None:
    """One GET of the system, with name and password read each time."""
    server.resources({SYSTEM: system()})
    async with serving(server):
        redfish = source(server)
        await redfish.read(MACHINE)
        (server.ca_file.parent / "password").write_text("another")
        await redfish.read(MACHINE)
    first, second = server.asked
    assert (first.method, first.target, first.body) == ("GET", SYSTEM, b"")
    for asked, password in ((first, PASSWORD), (second, "another")):
        assert asked.headers["authorization"] == f"Basic {encoded(password)}"
    assert first.headers["host"] == redfish.name == server.url.removeprefix("https://")


# --- which machine it is


@pytest.mark.parametrize("uuid", [None, "", "theirs", OURS.replace("-", ""), f"{{{OURS}}}", f"{OURS}\n"])
async def test_what_is_no_uuid_names_no_machine(server: Server, uuid: object) -> None:
    assert await read(server, system("Off", uuid)) == Said("off")


async def test_the_byte_order(server: Server) -> None:
    """The reason names the other order; only the configured one counts. A foreign UUID is reported
    unchanged.
    """
    said = await unread(server, system("Off", TURNED))
    assert said.endswith("if that is right, configure swapped")
    assert await read(server, system("Off", TURNED), uuid_order="swapped") == OFF
    assert (await unread(server, system("Off"), uuid_order="swapped")).endswith("configure as-written")
    assert await read(server, system("Off", ANOTHER)) == Said("off", "systemUUID", ANOTHER)


# --- finding it


async def test_a_system_is_found_by_its_uuid_and_looked_for_once(server: Server) -> None:
    """Find one of several systems; the next reading asks for it directly."""
    table: dict[str, object] = {
        SYSTEMS: listed("/s/1", "/s/2", "/s/3"),
        "/s/1": system("On", ANOTHER),
        "/s/2": system("Off"),
        "/s/3": answer(503),
    }
    server.resources(table)
    async with serving(server):
        redfish = source(server, system="")
        for _ in range(2):
            assert await redfish.read(MACHINE) == OFF
        searched, again = server.asked[:4], server.asked[4:]
        assert [each.target for each in again] == ["/s/2"]
        assert sorted(each.target for each in searched) == [SYSTEMS, "/s/1", "/s/2", "/s/3"]
        # It has another number now.
        table |= {"/s/1": system("On"), "/s/2": system("Off", ANOTHER)}
        assert await redfish.read(MACHINE) == ON


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({SYSTEMS: listed()}, "it has no system with the Node's systemUUID"),
        ({SYSTEMS: listed("/s/1"), "/s/1": system("Off", ANOTHER)}, "it has no system with"),
        (
            {SYSTEMS: listed("/s/1", "/s/2"), "/s/1": system("Off"), "/s/2": system("On")},
            "it has more than one system with",
        ),
        ({SYSTEMS: listed("/s/1", "/s/2"), "/s/2": system("Off", ANOTHER)}, "404: it is not there"),
        ({SYSTEMS: listed("/s/1"), "/s/1": system("Off", TURNED)}, "configure swapped"),
        ({SYSTEMS: listed(*["/s/1"] * (SYSTEMS_MAX + 1))}, "more than 32 systems: name the system's path"),
        ({SYSTEMS: listed("/s/1", **{"Members@odata.nextLink": "/s?2"})}, "more than 32 systems"),
        ({SYSTEMS: listed("https://theirs/s/1")}, "something that is no path"),
        ({SYSTEMS: listed("/s/1 HTTP/1.1\r\nX: y")}, "something that is no path"),
        ({SYSTEMS: {"Members": {"theirs": 1}}}, "no resource of Redfish"),
    ],
)
async def test_a_system_that_is_not_found(server: Server, table: dict[str, object], why: str) -> None:
    """Neither on nor off, and why."""
    server.resources(table)
    async with serving(server):
        with pytest.raises(FAILED, match=why):
            await source(server, system="").read(MACHINE)


class Slow(Redfish):
    """It takes 4 s an answer."""

    table: dict[str, object]

    async def _request(self, method: str, path: str, body: bytes = b"") -> Answer:
        await trio.sleep(4)
        return Answer(200, msgspec.json.encode(self.table[path]), True)


async def test_a_slow_controller_of_eight_systems(
    server: Server, autojump_clock: trio.testing.MockClock
) -> None:
    """It is searched within one reading, and switches off within one order."""
    folder = server.ca_file.parent
    files = {"username_file": folder / "username", "password_file": folder / "password"}
    slow = Slow(url="https://bmc.example", **files)
    slow.table = {f"/s/{number}": system("On", ANOTHER) for number in range(1, 8)} | {
        SYSTEMS: listed(*[f"/s/{number}" for number in range(1, 9)]),
        "/s/8": resettable("On"),
        TARGET: {},
    }
    with trio.fail_after(bounds.now.source_seconds):
        assert (await slow.read(MACHINE)).verdict == "on"
    with trio.fail_after(bounds.now.power_off_seconds):
        await slow.power_off(OURS)


async def test_a_system_that_the_configuration_names(server: Server) -> None:
    """Its UUID is not compared, neither read nor switched off."""
    server.resources({SYSTEM: resettable(uuid="0" * 8 + "-0000-0000-0000-" + "0" * 12), TARGET: answer(204)})
    async with serving(server):
        named = source(server, identify="name")
        assert await named.read(MACHINE._replace(system_uuid="")) == Said("on", "nodeName", "node-1")
        await named.power_off("")
        with pytest.raises(Unread, match="its UUID is not the Node's"):
            await source(server).power_off("")
        assert [each.method for each in server.asked] == ["GET", "GET", "POST", "GET"]


async def test_a_node_without_a_uuid(server: Server) -> None:
    """Without a path no request is sent. With a path the system's UUID does not match."""
    machine = MACHINE._replace(system_uuid="")
    server.resources({SYSTEM: system("Off")})
    async with serving(server):
        with pytest.raises(FAILED, match="the Node has no systemUUID"):
            await source(server, system="").read(machine)
        assert not server.asked
        assert (await source(server).read(machine)).identity == OURS


# --- answers that are none

ELSEWHERE = "307: it names another address, which is not followed"
CLOSED = "it closed the connection without an answer|the answer is not HTTP"


@pytest.mark.parametrize(
    ("answered", "why"),
    [
        (answer(401, {"error": "theirs"}), "401: user name or password refused"),
        (answer(403), "403: no right to it"),
        (answer(404), "404: it is not there"),
        (answer(307, Location="https://theirs/"), ELSEWHERE),
        (answer(200, b"<html>theirs</html>"), "no resource of Redfish"),
        (answer(200, b'{"PowerState": "Off", "UUID": "theirs'), "no resource of Redfish"),
        (answer(200, b"[" * 200_000 + b"]" * 200_000), "no resource of Redfish"),
        (answer(200, [system("Off")]), "no resource of Redfish"),
        (answer(200, b" " * (ANSWER_BYTES_MAX + 1)), "the answer is longer than 512 KiB"),
        (answer(200, system("Off"))[:-5], "the answer is not HTTP"),
        (b"", CLOSED),
        (b"HTTP/1.1 200 X\r\nx: " + b"y" * 200_000, "the answer is not HTTP"),
    ],
)
async def test_an_answer_that_is_no_system(server: Server, answered: bytes, why: str) -> None:
    """Neither on nor off; no text is quoted, and no other system is asked."""
    assert re.search(why, await unread(server, answered))
    assert len(server.asked) == 1


async def test_an_endless_answer(server: Server) -> None:
    """Cut off beyond a system's possible size."""

    async def endless() -> AsyncGenerator[bytes, None]:
        yield b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n"
        while True:
            yield b"4000\r\n" + b" " * 0x4000 + b"\r\n"

    server.reply = lambda asked: endless()
    async with serving(server):
        with pytest.raises(FAILED, match="longer than"):
            await source(server).read(MACHINE)


async def test_a_refused_password_is_not_sent_again_at_once(
    server: Server, autojump_clock: trio.testing.MockClock
) -> None:
    """Controllers lock an account after a few failures. A changed password is tried at once."""
    autojump_clock.autojump_threshold = float("inf")
    server.resources({SYSTEM: answer(401)})
    async with serving(server):
        redfish = source(server)
        for why in ("401: user name or password refused", "not sent again within 60 s"):
            with pytest.raises(FAILED, match=why):
                await redfish.read(MACHINE)
        assert len(server.asked) == 1
        server.resources({SYSTEM: system("Off")})
        with pytest.raises(FAILED, match="not sent again"):
            await redfish.read(MACHINE)
        (server.ca_file.parent / "password").write_text("another")
        assert (await redfish.read(MACHINE)).verdict == "off"
        (server.ca_file.parent / "password").write_text(PASSWORD)
        server.resources({SYSTEM: answer(401)})
        with pytest.raises(FAILED, match=r"refused$"):
            await redfish.read(MACHINE)
        server.resources({SYSTEM: system("Off")})
        autojump_clock.jump(60)
        assert (await redfish.read(MACHINE)).verdict == "off"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("username", b"", "username: not one line of text"),
        ("username", b"a:b", "username: a user name cannot have a colon"),
        ("password", b"two\nlines", "password: not one line of text"),
        ("password", b"\xff", "password: not UTF-8 text"),
        ("password", b"x" * 5000, "password: larger than 4 KiB"),
        ("password", None, "password: No such file or directory"),
        ("authority.pem", b"theirs", "authority.pem: no readable certificates in PEM"),
        ("authority.pem", b"", "authority.pem: no readable certificates in PEM"),
        ("authority.pem", None, "authority.pem: no readable certificates in PEM"),
    ],
)
async def test_files_that_cannot_be_used(server: Server, name: str, text: bytes | None, why: str) -> None:
    """The reason names the file; no request is sent."""
    file = server.ca_file.parent / name
    file.unlink() if text is None else file.write_bytes(text)
    assert why in await unread(server, system())
    assert not server.asked


# --- who answers


async def test_who_is_not_trusted_gets_no_password(server: Server, tmp_path: Path) -> None:
    """Unknown authority, wrong name, no TLS. A pinned certificate is trusted, others are not."""
    other = tmp_path / "other"
    other.mkdir()
    unknown = {"ca_file": Server(other).ca_file}
    for fields in (unknown, {"ca_file": None}):
        assert (await unread(server, system(), **fields)).startswith("its certificate is not accepted: ")
    named = Server(tmp_path, name="bmc.example")
    assert "its certificate is not accepted: " in await unread(named, system())
    wrong = await unread(server, system(), fingerprint="0" * 64)
    assert "its certificate does not have the configured fingerprint" in wrong
    async with serving(server, tls=False):
        server.url = server.url.replace("http:", "https:")
        with pytest.raises(FAILED, match=r"TLS failed|the connection broke"):
            await source(server).read(MACHINE)
    assert not server.asked
    assert not named.asked
    pinned = ":".join(server.fingerprint[at : at + 2] for at in range(0, 64, 2)).upper()
    assert (await read(server, system(), fingerprint=pinned)).verdict == "on"


# --- switching off


async def switched(server: Server, resource: object, reset: bytes = answer(204)) -> str:
    """Why it failed; empty: it was taken."""

    def reply(asked: Asked) -> bytes:
        return reset if asked.method == "POST" else answer(200, resource)

    server.reply = reply
    async with serving(server):
        try:
            await source(server).power_off(OURS)
        except FAILED as error:
            return str(error)
    return ""


def posts(server: Server) -> list[Asked]:
    return [asked for asked in server.asked if asked.method == "POST"]


async def test_switching_off(server: Server) -> None:
    """The resource names the action. An off machine is a success."""
    assert not await switched(server, resettable("Off"))
    assert not posts(server)
    for allowed in (("On", "ForceOff"), None):
        assert not await switched(server, resettable(allowed=allowed))
        post = posts(server)[-1]
        assert (post.target, post.body) == (TARGET, b'{"ResetType":"ForceOff"}')
        assert post.headers["content-type"] == "application/json"


TAKEN, NOT_IT, NO_RESET = (
    answer(204),
    "its UUID is not the Node's systemUUID",
    "it offers no ComputerSystem.Reset",
)


@pytest.mark.parametrize(
    ("resource", "reset", "why", "sent"),
    [
        # A foreign machine, above all: no request is sent.
        (resettable(uuid=ANOTHER), TAKEN, NOT_IT, 0),
        (resettable(uuid=TURNED), TAKEN, ".* configure swapped", 0),
        (resettable(uuid=None), TAKEN, NOT_IT, 0),
        (resettable("Off", uuid=ANOTHER), TAKEN, NOT_IT, 0),
        (resettable(allowed=("On", "GracefulShutdown")), TAKEN, "it does not allow ForceOff", 0),
        (system(), TAKEN, NO_RESET, 0),
        (system(Actions={}), TAKEN, NO_RESET, 0),
        (system(Actions={RESET: {"target": "https://theirs/"}}), TAKEN, NO_RESET, 0),
        # Refused or unanswered means failed; the next readings show the power state.
        (resettable(), answer(400, b"theirs"), "400", 1),
        (resettable(), answer(401), "401: user name or password refused", 1),
        (resettable(), answer(307, Location="/theirs"), ELSEWHERE, 1),
        (resettable(), b"", CLOSED, 1),
    ],
)
async def test_what_is_not_switched(
    server: Server, resource: object, reset: bytes, why: str, sent: int
) -> None:
    assert re.fullmatch(why, await switched(server, resource, reset))
    assert len(posts(server)) == sent
