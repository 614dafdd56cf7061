"""IPMI v2.0 over lanplus: a management controller reports a machine's power, or switches it off.

One `ipmitool` session reads GUID and power, so both come from the same controller. Vendors store a GUID's
bytes in three orders: the order is configured, never guessed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal
from uuid import UUID

import trio

from ebbtide.actors.edges.proof_sources.proof_source import Identify, Machine, Said, Unread, read_secret
from ebbtide.events.outage_events import Source, Verdict
from ebbtide.events.units import size_text

PORT = 623
#: IPMI v2.0's limit.
PASSWORD_BYTES_MAX = 20
#: 17 with SHA-256, 3 with SHA-1 for older controllers. Both encrypt, and authenticate both sides.
CipherSuite = Literal[3, 17]
Privilege = Literal["user", "operator", "administrator"]
#: smbios: the first three fields little-endian; rfc: as written (RFC 9562); ipmi: from the last byte to the
#: first.
GuidOrder = Literal["smbios", "rfc", "ipmi"]
#: A slow controller takes 4 s for each of a session's eleven answers. A silent one takes 22 s.
RETRY_SECONDS, RETRIES = 5, 2

#: Get System GUID: the output of ``mc guid`` differs by version.
GUID_COMMAND = "raw 0x06 0x37"
POWER_COMMAND = "chassis power status"
POWER_OFF_COMMAND = "chassis power off"
ANSWER = re.compile(r"\s*(?P<guid>(?:[0-9a-f]{2}\s+){16})Chassis Power is (?P<power>on|off)\s*")
VERDICTS: dict[str, Verdict] = {"on": "on", "off": "off"}
#: The first match counts.
REASONS = {
    "Address lookup for": "its host has no address",
    "Get Auth Capabilities error": "it does not answer",
    "RAKP 2 HMAC is invalid": "the password is not the one that it has",
    "unauthorized name": "it has no such user",
    "unauthorized role or privilege level": "the user has not the privilege that is configured",
    # For authentication, integrity, confidentiality.
    " algorithm": "it does not take the cipher suite that is configured",
    "no cipher suite match": "it does not take the cipher suite that is configured",
    "insufficient resources to create a session": "it has no session left",
    "failed: Insufficient privilege level": "the user has not the privilege that is configured",
    "rsp=0xd4": "the user has not the privilege that is configured",
    "rsp=0xc1": "it does not know its GUID",
}


class Ipmi:
    source: Source = "ipmi"

    def __init__(
        self,
        *,
        host: str,
        username_file: Path,
        password_file: Path,
        port: int = PORT,
        cipher_suite: CipherSuite = 17,
        privilege: Privilege = "user",
        guid_order: GuidOrder = "smbios",
        identify: Identify = "uuid",
    ) -> None:
        """``privilege``: user may read, operator may switch off."""
        bracketed = f"[{host}]" if ":" in host else host
        self.name = host if port == PORT else f"{bracketed}:{port}"
        self._host, self._port = host, port
        self._username_file, self._password_file = username_file, password_file
        self._suite, self._privilege, self._order = cipher_suite, privilege, guid_order
        self.by_name = identify == "name"

    async def read(self, machine: Machine) -> Said:
        """Raises Unread."""
        identity, verdict = await self._look(machine.system_uuid)
        return (
            Said(verdict, "nodeName", machine.node) if self.by_name else Said(verdict, "systemUUID", identity)
        )

    async def power_off(self, system_uuid: str) -> None:
        identity, verdict = await self._look(system_uuid)
        if not self.by_name and (not system_uuid or identity != system_uuid):
            raise Unread("its GUID is not the Node's systemUUID")
        if verdict == "on":
            await self._run(POWER_OFF_COMMAND)

    async def _look(self, system_uuid: str) -> tuple[str, Verdict]:
        said = ANSWER.fullmatch(await self._run(GUID_COMMAND, POWER_COMMAND))
        if said is None:
            raise Unread("what ipmitool printed is no GUID and no power")
        raw = bytes.fromhex(said["guid"])
        orders: dict[GuidOrder, str] = {
            "smbios": str(UUID(bytes_le=raw)),
            "rfc": str(UUID(bytes=raw)),
            "ipmi": str(UUID(bytes=raw[::-1])),
        }
        identity, verdict = orders[self._order], VERDICTS[said["power"]]
        for order, other in orders.items():
            if not self.by_name and identity != system_uuid and other == system_uuid:
                raise Unread(f"its GUID is the Node's systemUUID in another byte order: configure {order}")
        return identity, verdict

    async def _run(self, *commands: str) -> str:
        """In one session."""
        username = await read_secret(self._username_file)
        if len((await read_secret(self._password_file)).encode()) > PASSWORD_BYTES_MAX:
            raise Unread(
                f"{self._password_file}: IPMI takes no password of more than {size_text(PASSWORD_BYTES_MAX)}"
            )
        argv = [
            *("ipmitool", "-v", "-I", "lanplus", "-H", self._host, "-p", str(self._port)),
            *("-U", username, "-f", str(self._password_file), "-C", str(self._suite)),
            *("-L", self._privilege.upper(), "-N", str(RETRY_SECONDS), "-R", str(RETRIES)),
            *("exec", "/dev/stdin"),
        ]
        try:
            done = await trio.run_process(
                argv,
                stdin="".join(f"{command}\n" for command in commands).encode(),
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                # For English messages.
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
                deliver_cancel=_kill,
            )
        except FileNotFoundError:
            raise Unread("ipmitool is not there: it belongs into the controller's image") from None
        except OSError as error:
            raise Unread(f"ipmitool cannot be run: {error.strerror}") from None
        if done.returncode:
            text = done.stderr.decode(errors="replace")
            why = next((why for said, why in REASONS.items() if said in text), "")
            raise Unread(why or f"ipmitool ended with {done.returncode}: run it by hand to see what it says")
        return done.stdout.decode(errors="replace")


async def _kill(process: trio.Process) -> None:
    process.kill()
