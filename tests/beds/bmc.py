"""Emulated management controllers: Redfish by sushy-tools' fake driver, IPMI over lanplus by OpenIPMI.

Each is a process on a local port for the block, with TLS and password like a real one. A power-cutting bed
wires it both ways:

    with redfish_emulator(folder, {uuid: "node-1"}, on_change=cut_or_start) as bmc:
        source = Redfish(url=bmc.url, ca_file=bmc.ca_file, **bmc.secrets)
        bmc.set_power(uuid, "Off")      # the bed has cut the power: shown from now on, nobody is told
        # Somebody else's action comes as ``on_change(uuid, "Off")``, in another thread, before it is shown.

``ipmi_emulator`` is the same for one machine. `process` can be stopped (SIGSTOP) and killed.

Redfish needs the packages of sushy.lock, installed on first use below the tests' cache (5 s; made with ``echo
sushy-tools==2.2.0 | pip-compile --generate-hashes --allow-unsafe --strip-extras -``). IPMI needs Debian's
``openipmi`` and ``ipmitool``.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import pickle
import shutil
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Literal
from uuid import UUID

import trustme

from tests.beds.inside import die_with_parent
from tests.beds.locked import locked_python
from tests.beds.rootfs import Unavailable
from tests.waiting import WATCHDOG_SECONDS, until_sync

HERE = Path(__file__).parent
LOCK = HERE / "sushy.lock"
LOOPBACK = "127.0.0.1"
#: "secret", from htpasswd -B with the lowest cost.
USERNAME, PASSWORD = "admin", "secret"
PASSWORD_HASH = "$2b$04$v/aeTGmCo.IcWPm/obaBNeO11IK7smPWeIZt1NOmsxzCIKzmsoioq"
POLL_SECONDS = 0.02

Power = Literal["On", "Off"]
#: Takes a machine's UUID and its new power.
OnChange = Callable[[str, Power], None]


class Emulator:
    """``secrets``: a source's keyword arguments; tests may rewrite both files."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], port: int) -> None:
        self.folder, self.process, self.port = folder, process, port
        self.secrets = {"username_file": folder / "username", "password_file": folder / "password"}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class RedfishEmulator(Emulator):
    """Any number of machines. ``fingerprint``: of its certificate, signed by ``ca_file``."""

    def __init__(
        self,
        folder: Path,
        process: subprocess.Popen[bytes],
        port: int,
        certificate: trustme.LeafCert,
        shown: dict[str, Power],
    ) -> None:
        super().__init__(folder, process, port)
        self._shown = shown
        self.url = f"https://{LOOPBACK}:{port}"
        self.ca_file = folder / "ca.pem"
        self.fingerprint = fingerprint(certificate)

    def power(self, uuid: str) -> Power:
        """The present state, without a request."""
        with self._machine(uuid) as found:
            power: Power = found["power_state"]
        return power

    def set_power(self, uuid: str, power: Power) -> None:
        """Set at once and cancel running actions, without a callback."""
        self._shown[uuid] = power
        with self._machine(uuid) as found:
            found |= {"power_state": power, "pending_power": None}

    @contextlib.contextmanager
    def _machine(self, uuid: str) -> Iterator[dict[str, object]]:
        """The emulator's record of the machine, saved if changed."""
        key = pickle.dumps(uuid)
        store = sqlite3.connect(self.folder / "state" / "fakedriver.sqlite", isolation_level=None)
        with contextlib.closing(store):
            store.execute("begin immediate")
            ((raw,),) = store.execute("select value from cache where key=?", (key,))
            found = pickle.loads(raw)
            yield found
            if pickle.dumps(found) != raw:
                store.execute("update cache set value=? where key=?", (pickle.dumps(found), key))
            store.execute("commit")


class IpmiEmulator(Emulator):
    """One machine. Its GUID has the UUID's bytes in SMBIOS order."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], port: int) -> None:
        super().__init__(folder, process, port)
        self.host = LOOPBACK

    def power(self) -> Power:
        return "On" if (self.folder / "power").read_text().strip() == "1" else "Off"

    def set_power(self, power: Power) -> None:
        _write_whole(self.folder / "power", "1" if power == "On" else "0")


def fingerprint(certificate: trustme.LeafCert) -> str:
    """SHA-256 of the certificate itself."""
    pem = certificate.cert_chain_pems[0].bytes().decode()
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


@contextlib.contextmanager
def redfish_emulator(
    folder: Path, machines: Mapping[str, str], *, on_change: OnChange | None = None
) -> Iterator[RedfishEmulator]:
    """``machines``: names by UUID; all are on. Raises Unavailable."""
    python = locked_python(LOCK)
    _write_secrets(folder)
    (folder / "htpasswd").write_text(f"{USERNAME}:{PASSWORD_HASH}\n")
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate = authority.issue_cert(LOOPBACK, key_type=trustme.KeyType.ECDSA)
    certificate.private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    # The emulator also announces future changes, with the present state until then.
    shown: dict[str, Power] = dict.fromkeys(machines, "On")

    def changed(uuid: str, power: Power) -> None:
        if on_change is not None and shown[uuid] != power:
            shown[uuid] = power
            on_change(uuid, power)

    with contextlib.ExitStack() as stack:
        notices = "" if on_change is None else stack.enter_context(_notices(changed))
        port = free_port(socket.SOCK_STREAM)
        settings = {
            "LISTEN_IP": LOOPBACK,
            "LISTEN_PORT": port,
            "FAKE_DRIVER": True,
            "STATE_DIR": str(folder / "state"),
            "AUTH_FILE": str(folder / "htpasswd"),
            "SSL_CERT": str(folder / "server.pem"),
            "SSL_KEY": str(folder / "server.pem"),
            "FAKE_SYSTEMS": [
                {
                    "uuid": uuid,
                    "name": name,
                    "power_state": "On",
                    "external_notifier": bool(notices),
                    "nics": [],
                }
                for uuid, name in machines.items()
            ],
        }
        lines = [f"SUSHY_EMULATOR_{name} = {value!r}" for name, value in settings.items()]
        config = folder / "sushy.conf"
        config.write_text("\n".join([*lines, f"EXTERNAL_NOTIFICATION_URL = {notices!r}"]) + "\n")
        argv = [str(python), str(HERE / "sushy_inside.py"), "--config", str(config)]
        process = stack.enter_context(_running(argv, folder, lambda: _open(port)))
        emulator = RedfishEmulator(folder, process, port, certificate, shown)
        # Only then it has its machines.
        _ask(emulator)
        yield emulator


@contextlib.contextmanager
def ipmi_emulator(folder: Path, uuid: str, *, on_change: OnChange | None = None) -> Iterator[IpmiEmulator]:
    """The machine is on. Raises Unavailable."""
    absent = [name for name in ("ipmi_sim", "ipmitool") if shutil.which(name) is None]
    if absent:
        raise Unavailable(f"needs {', '.join(absent)} (Debian's openipmi and ipmitool)")
    _write_secrets(folder)
    (folder / "power").write_text("1")
    (folder / "sim.emu").write_text(SIMULATED)
    with contextlib.ExitStack() as stack:
        notices = "" if on_change is None else stack.enter_context(_notices(on_change))
        port = free_port(socket.SOCK_DGRAM)
        chassis = [sys.executable, "-S", "-E", str(HERE / "ipmi_chassis.py"), str(folder / "power"), uuid]
        (folder / "lan.conf").write_text(
            LAN.format(
                address=LOOPBACK,
                port=port,
                username=USERNAME,
                password=PASSWORD,
                guid=UUID(uuid).bytes_le.hex(),
                chassis=" ".join([*chassis, notices or "-"]),
            )
        )
        argv = ["ipmi_sim", "-c", str(folder / "lan.conf"), "-f", str(folder / "sim.emu")]
        argv += ["-s", str(folder / "state"), "-n"]
        process = stack.enter_context(_running(argv, folder, lambda: _bound(port)))
        yield IpmiEmulator(folder, process, port)


#: In the language of ipmi_sim: a controller without sensors.
SIMULATED = """
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
sel_enable 0x20 1000 0x0a
mc_enable 0x20
"""
LAN = """
name "bmc"
set_working_mc 0x20
  startlan 1
    addr {address} {port}
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid {guid}
  endlan
  chassis_control "{chassis}"
  user 1 true "" "test" user 10 none md2 md5 straight
  user 2 true "{username}" "{password}" admin 10 none md2 md5 straight
"""


def free_port(kind: socket.SocketKind) -> int:
    with socket.socket(type=kind) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _write_secrets(folder: Path) -> None:
    (folder / "username").write_text(f"{USERNAME}\n")
    (folder / "password").write_text(f"{PASSWORD}\n")


def _write_whole(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def _ask(emulator: RedfishEmulator) -> None:
    credentials = base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode()
    request = urllib.request.Request(
        f"{emulator.url}/redfish/v1/Systems", headers={"Authorization": f"Basic {credentials}"}
    )
    trust = ssl.create_default_context(cafile=emulator.ca_file)
    with urllib.request.urlopen(request, timeout=WATCHDOG_SECONDS, context=trust) as answer:
        answer.read()


def _open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


def _bound(port: int) -> bool:
    """Bound here, so no other process can take it."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return True
    return False


@contextlib.contextmanager
def _running(argv: list[str], folder: Path, ready: Callable[[], bool]) -> Iterator[subprocess.Popen[bytes]]:
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            argv,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
        )

    def said() -> str:
        return f"{argv}: {(folder / 'log').read_text(errors='replace')[-2000:]}"

    def answers() -> bool:
        assert process.poll() is None, said()
        return ready()

    try:
        until_sync(answers, said)
        yield process
    finally:
        # Also one that is stopped.
        process.kill()
        process.wait()


@contextlib.contextmanager
def _notices(on_change: OnChange) -> Iterator[str]:
    """The URL for changes: PUT of an object with ``uuid`` and ``power_state``."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            on_change(said["uuid"], said["power_state"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Drop the request log."""

    server = HTTPServer((LOOPBACK, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
