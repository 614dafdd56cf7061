"""Credentials from a program, as clouds' kubeconfigs have them: run, believed, and run again in time.

The protocol is client-go's exec plugins, client.authentication.k8s.io/v1 and v1beta1: the program is given
KUBERNETES_EXEC_INFO and prints an ExecCredential.
"""

from __future__ import annotations

import os
import subprocess
import time
from datetime import datetime

import msgspec
import trio

from actors.edges.kubernetes.kubeconfig import Access, Plugin, Unusable
from actors.edges.kubernetes.unsaid import is_token

#: Clouds' plugins ask a metadata service or a token endpoint; one that hangs must not hold up a shutdown.
RUN_SECONDS_MAX = 10.0
#: What it says is a token and a certificate.
OUTPUT_BYTES_MAX = 1024 * 1024
#: So long before its end a credential is replaced.
MARGIN_SECONDS = 30.0


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _Credential(msgspec.Struct, rename="camel"):
    kind: str = ""
    status: _Status | None = None


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    """``until``: seconds of the wall clock, None for as long as the server takes it."""

    token: str = ""
    certificate: bytes = b""
    key: bytes = b""
    until: float | None = None

    def holds(self) -> bool:
        return self.until is None or time.time() + MARGIN_SECONDS < self.until

    def onto(self, access: Access) -> Access:
        if self.certificate:
            access = msgspec.structs.replace(access, certificate=self.certificate, key=self.key)
        return msgspec.structs.replace(access, token=self.token) if self.token else access


async def ask(plugin: Plugin, access: Access) -> Granted:
    """Run the plugin once, for `RUN_SECONDS_MAX` at most. Raises Unusable, without a word of what it said:
    that may be what nobody else may know.
    """
    output = b""
    try:
        with trio.fail_after(RUN_SECONDS_MAX):
            output = await _run(plugin, access)
    except trio.TooSlowError:
        raise Unusable(f"{plugin.command} gave no credential in {RUN_SECONDS_MAX:.0f} s") from None
    except OSError as error:
        hint = f"; {' '.join(plugin.install_hint.split())}" if plugin.install_hint else ""
        raise Unusable(f"{plugin.command}: {error.strerror}{hint}") from None
    except ValueError:
        what = "its arguments, or the names in its env, are none that a program can be given"
        raise Unusable(f"{plugin.command!r}: {what}") from None
    return _granted(plugin, output)


async def _run(plugin: Plugin, access: Access) -> bytes:
    environ = {each.name: each.value for each in plugin.env or ()}
    done = await trio.run_process(
        [plugin.command, *(plugin.args or ())],
        stdin=subprocess.DEVNULL,
        capture_stdout=True,
        stderr=subprocess.DEVNULL,
        check=False,
        env={**os.environ, **environ, "KUBERNETES_EXEC_INFO": _info(plugin, access)},
    )
    if done.returncode:
        raise Unusable(f"{plugin.command} ended with {done.returncode}: run it by hand to see what it says")
    return done.stdout[:OUTPUT_BYTES_MAX]


def _info(plugin: Plugin, access: Access) -> str:
    spec: dict[str, object] = {"interactive": False}
    if plugin.provide_cluster_info:
        cluster = {"server": access.server, "certificate-authority-data": access.authority}
        spec["cluster"] = cluster | {"insecure-skip-tls-verify": access.insecure}
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    return msgspec.json.encode(info).decode()


def _granted(plugin: Plugin, output: bytes) -> Granted:
    try:
        credential = msgspec.json.decode(output, type=_Credential)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{plugin.command} printed no ExecCredential: {error}") from None
    status = credential.status
    if status is None or not (status.token or (status.client_certificate_data and status.client_key_data)):
        raise Unusable(f"{plugin.command} printed neither a token nor a certificate with its key")
    if not is_token(status.token):
        raise Unusable(f"{plugin.command} printed a token with characters that no token has")
    until = status.expiration_timestamp
    return Granted(
        token=status.token,
        certificate=status.client_certificate_data.encode(),
        key=status.client_key_data.encode(),
        until=until.timestamp() if until is not None else None,
    )
