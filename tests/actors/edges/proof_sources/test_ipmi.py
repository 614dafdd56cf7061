"""IPMI on OpenIPMI's simulator through the real ipmitool, and with broken tools."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.proof_sources.ipmi import GuidOrder, Ipmi
from ebbtide.actors.edges.proof_sources.proof_source import Machine, Said, Unread, reading
from tests.beds.bmc import PASSWORD, IpmiEmulator, Power, ipmi_emulator
from tests.beds.skipping import or_skip
from tests.waiting import until

OURS = "4c4c4544-0042-3510-8052-b4c04f4a3132"
MACHINE = Machine("node-1", "uid-1", "boot-1", OURS, "")
OFF, ON = Said("off", "systemUUID", OURS), Said("on", "systemUUID", OURS)
#: Its bytes as SMBIOS has them.
GUID = UUID(OURS).bytes_le.hex(" ")
#: The system UUID as the kubelet would write it in the other byte orders.
IN_ORDER: dict[GuidOrder, str] = {
    "smbios": OURS,
    "rfc": str(UUID(bytes=UUID(OURS).bytes_le)),
    "ipmi": str(UUID(bytes=UUID(OURS).bytes_le[::-1])),
}


async def why(ipmi: Ipmi, machine: Machine = MACHINE) -> str:
    """The failure reason; it never holds a secret."""
    with pytest.raises(Unread) as caught:
        await ipmi.read(machine)
    text = str(caught.value)
    assert PASSWORD not in text
    assert "\n" not in text
    return text


# --- the simulator


@pytest.fixture
def changes() -> list[tuple[str, Power]]:
    return []


@pytest.fixture
def bmc(tmp_path: Path, changes: list[tuple[str, Power]]) -> Iterator[IpmiEmulator]:
    with or_skip(), ipmi_emulator(tmp_path, OURS, on_change=lambda *each: changes.append(each)) as bmc:
        yield bmc


def source(bmc: IpmiEmulator, **fields: Any) -> Ipmi:
    # The simulator has no cipher suite 17.
    given: dict[str, Any] = {"host": bmc.host, "port": bmc.port, "cipher_suite": 3} | bmc.secrets
    return Ipmi(**given | fields)


@pytest.mark.root
async def test_a_machine_that_loses_its_power_and_gets_it_back(bmc: IpmiEmulator) -> None:
    """Each reading reports the power state and the machine."""
    ipmi = source(bmc)
    assert ipmi.name == f"{bmc.host}:{bmc.port}"
    for power, said in (("On", ON), ("Off", OFF), ("On", ON)):
        bmc.set_power(power)  # type: ignore[arg-type]
        for _ in range(2):
            assert await ipmi.read(MACHINE) == said


@pytest.mark.root
@pytest.mark.parametrize("order", list(IN_ORDER))
async def test_the_order_of_the_bytes(bmc: IpmiEmulator, order: GuidOrder) -> None:
    """Only the configured order matches. The reason names another matching order."""
    bmc.set_power("Off")
    machine = MACHINE._replace(system_uuid=IN_ORDER[order])
    assert await source(bmc, guid_order=order).read(machine) == Said("off", "systemUUID", IN_ORDER[order])
    for other in {*IN_ORDER} - {order}:
        assert (await why(source(bmc, guid_order=other), machine)).endswith(f": configure {order}")


@pytest.mark.root
async def test_switching_off(bmc: IpmiEmulator, changes: list[tuple[str, Power]]) -> None:
    """A user may only read; an operator switches off, and a second time is a no-op."""
    with pytest.raises(Unread, match="the user has not the privilege that is configured"):
        await source(bmc).power_off(OURS)
    assert bmc.power() == "On"
    ipmi = source(bmc, privilege="operator")
    for _ in range(2):
        await ipmi.power_off(OURS)
    assert await ipmi.read(MACHINE) == OFF
    assert changes == [(OURS, "Off")]


@pytest.mark.root
async def test_names_passwords_and_suites_that_are_not_taken(bmc: IpmiEmulator) -> None:
    """Our own texts; files are read each time."""
    ipmi = source(bmc)
    assert await why(source(bmc, cipher_suite=17)) == "it does not take the cipher suite that is configured"
    bmc.secrets["password_file"].write_text("old")
    assert await why(ipmi) == "the password is not the one that it has"
    bmc.secrets["password_file"].write_text(PASSWORD)
    bmc.secrets["username_file"].write_text("nobody")
    assert await why(ipmi) == "it has no such user"
    bmc.secrets["username_file"].write_text("admin")
    assert await ipmi.read(MACHINE) == ON


class Slow(Ipmi):
    """It takes 4 s an answer, as a relay of the simulator's answers showed it: 46 s a session."""

    async def _run(self, *commands: str) -> str:
        await trio.sleep(46)
        return f"{GUID}\nChassis Power is off"


async def test_a_slow_controller_is_read(tmp_path: Path, autojump_clock: MockClock) -> None:
    slow = Slow(host="bmc", username_file=tmp_path, password_file=tmp_path)
    assert await reading(slow, MACHINE) == OFF


# --- the tool


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    for name, text in (("username", "admin\n"), ("password", f"{PASSWORD}\n")):
        (tmp_path / name).write_text(text)
    return folder / "ipmitool"


def program(tool: Path, *lines: str) -> None:
    tool.write_text("\n".join([f"#!{sys.executable} -SE", "import os, sys, time", *lines]))
    tool.chmod(0o755)


def by(tool: Path, **fields: Any) -> Ipmi:
    folder = tool.parent.parent
    given: dict[str, Any] = {"username_file": folder / "username", "password_file": folder / "password"}
    return Ipmi(**{"host": "bmc"} | given | fields)


async def test_what_the_tool_is_given(tool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No password in arguments or environment; one session for both questions."""
    seen = tmp_path / "seen"
    program(
        tool,
        f"open({str(seen)!r}, 'w').write(repr((sys.argv[1:], dict(os.environ), sys.stdin.read())))",
        f"print({GUID!r} + '\\nChassis Power is off')",
    )
    monkeypatch.setenv("EBBTIDE_SECRET", "ours")
    assert await by(tool).read(MACHINE) == OFF
    said = seen.read_text()
    assert PASSWORD not in said
    assert "EBBTIDE_SECRET" not in said
    password_file = str(tmp_path / "password")
    slow = "'-L', 'USER', '-N', '5', '-R', '2'"
    for word in ("'-C', '17'", slow, "'-H', 'bmc', '-p', '623'", f"'-f', {password_file!r}"):
        assert word in said
    assert "raw 0x06 0x37\\nchassis power status\\n" in said


@pytest.mark.parametrize(
    "printed",
    [
        "",
        GUID,
        f"{GUID}\\nChassis Power is off\\nChassis Power is on",
        f"{GUID[:-3]}\\nChassis Power is off",
        f"theirs\\n{GUID}\\nChassis Power is off",
    ],
)
async def test_what_it_prints_is_taken_whole_or_not_at_all(tool: Path, printed: str) -> None:
    """Neither on nor off, and no output is quoted."""
    program(tool, f"print({printed!r}.replace('\\\\n', chr(10)))")
    assert await why(by(tool)) == "what ipmitool printed is no GUID and no power"


async def test_a_machine_that_the_configuration_names(tool: Path) -> None:
    """In no byte order is its GUID compared, neither read nor switched off."""
    program(tool, f"print({' '.join(['03'] * 16)!r} + '\\nChassis Power is on')")
    named = by(tool, identify="name")
    assert await named.read(MACHINE) == Said("on", "nodeName", MACHINE.node)
    await named.power_off("")
    with pytest.raises(Unread, match="its GUID is not the Node's"):
        await by(tool).power_off("")


async def test_a_tool_that_fails_and_one_that_is_not_there(tool: Path) -> None:
    """One line without the tool's output."""
    assert await why(by(tool)) == "ipmitool is not there: it belongs into the controller's image"
    program(tool, f"print({PASSWORD!r}, file=sys.stderr)", "sys.exit(3)")
    assert await why(by(tool)) == "ipmitool ended with 3: run it by hand to see what it says"
    program(tool, f"print({GUID!r} + '\\nChassis Power is off')", "sys.exit(1)")
    assert (await why(by(tool))).startswith("ipmitool ended with 1")
    tool.write_text("no program")
    assert await why(by(tool)) == "ipmitool cannot be run: Exec format error"


async def test_a_tool_that_ends_for_nobody(tool: Path) -> None:
    """A tool that ignores SIGTERM is killed."""
    deaf, scope = tool.parent.parent / "deaf", trio.CancelScope()
    ignore = ("import signal", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    program(tool, *ignore, f"open({str(deaf)!r}, 'w')", "time.sleep(600)")

    async def read() -> None:
        with scope:
            await by(tool).read(MACHINE)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await until(deaf.exists, "it does not begin")
        scope.cancel()
    assert scope.cancelled_caught
