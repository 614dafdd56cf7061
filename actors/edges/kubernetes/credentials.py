"""The API server's address and our identity there, kept current: tokens and certificates rotate.

The source is a kubeconfig or a pod's own files. The library's loader writes private keys to temporary files,
blocks on a hung disk, runs plugins without a deadline, and its errors quote tokens. A thread compares the
files, never during a call. While a file cannot be read the last good access stays.

An error's text may quote a token, a header or a proxy's password, so no such text is passed on.
"""

from __future__ import annotations

import base64
import binascii
import math
import os
import re
import subprocess
import time
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio

from ebbtide.actors.edges.documents import DocumentError, object_of_text, read_file
from ebbtide.events import bounds
from ebbtide.events.units import size_text, span_s

FileMark = tuple[int, int, int, int] | None

#: Refusals come in bursts: one run of the plugin answers all.
PLUGIN_AGAIN_SECONDS = 5.0


class Credentials:
    """``context`` empty: the current one. ``access`` is None until the first `refresh`."""

    def __init__(self, kubeconfig: Path | None, context: str = "") -> None:
        self.access: Access | None = None
        self._read = in_cluster if kubeconfig is None else partial(read_kubeconfig, kubeconfig, context)
        self._base: Access | None = None
        self._marks: tuple[FileMark, ...] = ()
        #: The plugin's last answer.
        self._granted: GrantedCredential | UnusableCredentials | None = None
        self._asked_at = -math.inf
        self._one = trio.Lock()

    async def refresh(self, *, refused: bool = False) -> Access:
        """``refused``: the server refused the present access. An unchanged ``access`` stays the same object.
        Raises UnusableCredentials.
        """
        async with self._one:
            before = self._base
            # Abandoned on a hung disk.
            fresh = base = self._base = await trio.to_thread.run_sync(
                self._look, before, refused, abandon_on_cancel=True
            )
            if base.plugin is not None:
                rested = trio.current_time() >= self._asked_at + PLUGIN_AGAIN_SECONDS
                holds = isinstance(self._granted, GrantedCredential) and self._granted.holds()
                if base != before or (rested and (refused or not holds)):
                    self._asked_at = trio.current_time()
                    try:
                        self._granted = await ask_plugin(base.plugin, base)
                    except UnusableCredentials as error:
                        self._granted = error
                if not isinstance(self._granted, GrantedCredential):
                    raise self._granted or UnusableCredentials(f"{base.plugin.command} was not asked yet")
                fresh = self._granted.onto(base)
            if self.access is None or fresh != self.access:
                self.access = fresh
            return self.access

    def _look(self, before: Access | None, anew: bool) -> Access:
        marks = file_marks(before.files) if before is not None else ()
        if before is not None and marks == self._marks and not anew:
            return before
        base = self._read()
        # From before the reading: the next look notices a change in between.
        self._marks = marks if before is not None and before.files == base.files else ()
        return base


def file_marks(files: tuple[Path, ...]) -> tuple[FileMark, ...]:
    """Follows links: rotated certificates are links."""
    marks: list[FileMark] = []
    for path in files:
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            marks.append(None)
        else:
            marks.append((found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))
    return tuple(marks)


FILE_BYTES_MAX = 1024 * 1024
SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class UnusableCredentials(Exception):
    """One line with the file and the reason."""


class MalformedKubeconfig(UnusableCredentials):
    """The kubeconfig cannot be used."""


class ExecVariable(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class ExecPlugin(msgspec.Struct, frozen=True, rename="camel"):
    command: str
    args: tuple[str, ...] | None = None
    env: tuple[ExecVariable, ...] | None = None
    api_version: str = "client.authentication.k8s.io/v1"
    provide_cluster_info: bool = False


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """PEM in ``authority`` (empty: the machine's trust), ``certificate`` and ``key``."""

    server: str
    authority: bytes = b""
    certificate: bytes = b""
    key: bytes = b""
    token: str = ""
    insecure: bool = False
    server_name: str = ""
    proxy: str = ""
    plugin: ExecPlugin | None = None
    files: tuple[Path, ...] = ()

    def connection(self) -> tuple[object, ...]:
        """If only the token changes, open connections stay usable."""
        return (
            self.server, self.authority, self.certificate, self.key,
            self.insecure, self.server_name, self.proxy,
        )  # fmt: skip


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _User(msgspec.Struct, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: ExecPlugin | None = None
    auth_provider: object = None
    username: str = ""


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""


class _Row(msgspec.Struct):
    name: str
    cluster: _Cluster | None = None
    user: _User | None = None
    context: _Context | None = None


class _Kubeconfig(msgspec.Struct, rename="kebab"):
    current_context: str = ""
    clusters: list[_Row] | None = None
    users: list[_Row] | None = None
    contexts: list[_Row] | None = None


def read_kubeconfig(path: Path, context: str = "") -> Access:
    """Raises UnusableCredentials."""
    return _KubeconfigReader(path, context).access()


def in_cluster(environ: Mapping[str, str] = os.environ, account: Path = SERVICE_ACCOUNT_FOLDER) -> Access:
    """By its service account. Raises UnusableCredentials."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise UnusableCredentials(
            "there is no kubeconfig, and KUBERNETES_SERVICE_HOST is not set: this is no pod"
        )
    address = f"[{host}]" if ":" in host else host
    token, authority = account / "token", account / "ca.crt"
    return Access(
        server=f"https://{address}:{port}",
        authority=read_bounded(authority),
        token=_token_text(token),
        files=(token, authority),
    )


def read_bounded(path: Path) -> bytes:
    """Raises UnusableCredentials."""
    try:
        data = read_file(path, FILE_BYTES_MAX)
    except OSError as error:
        raise UnusableCredentials(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UnusableCredentials(f"{str(path)!r}: {error}") from None
    if len(data) > FILE_BYTES_MAX:
        raise MalformedKubeconfig(
            f"{path}: larger than {size_text(FILE_BYTES_MAX)}, so no kubeconfig and no certificate"
        )
    return data


def _token_text(path: Path) -> str:
    text = read_bounded(path).decode("ascii", "replace").strip()
    if not text:
        raise UnusableCredentials(f"{path}: empty, where a token is expected")
    if not is_token(text):
        raise UnusableCredentials(f"{path}: not the text of a token")
    return text


class _KubeconfigReader:
    def __init__(self, path: Path, context: str) -> None:
        self.path = path
        self.files = [path]
        self._context = context

    def access(self) -> Access:
        data = read_bounded(self.path)
        try:
            config = msgspec.convert(object_of_text(data.decode("utf-8-sig")), _Kubeconfig)
        except DocumentError as error:
            raise self._wrong(f"no kubeconfig: {unquoted_problem(error)}") from None
        except msgspec.ValidationError as error:
            raise self._wrong(f"no kubeconfig: {error}") from None
        except UnicodeDecodeError:
            raise self._wrong("no kubeconfig: not UTF-8 text") from None
        context = self._named("context", self._context or config.current_context, config.contexts)
        cluster = self._named("cluster", context.cluster, config.clusters)
        user = self._named("user", context.user, config.users) if context.user else _User()
        if not cluster.server.startswith(("https://", "http://")):
            raise self._wrong(f"the server of cluster {context.cluster!r} is no URL of http or https")
        # It would be in every message about the server.
        if "@" in cluster.server:
            raise self._wrong(f"the server of cluster {context.cluster!r} has a name or password in it")
        if user.auth_provider is not None or user.username:
            raise self._wrong(
                f"user {context.user!r} has an auth-provider or a password: use exec or a token"
            )
        # A file wins over the token, as in kubectl.
        token = _token_text(self._beside(user.token_file)) if user.token_file else user.token
        if not is_token(token):
            raise self._wrong("the token in it has characters that no token has")
        plugin = user.exec
        if plugin is not None and "/" in plugin.command:
            # A path is relative to the kubeconfig; PATH finds a bare name.
            plugin = msgspec.structs.replace(plugin, command=str(self.path.parent / plugin.command))
        return Access(
            server=cluster.server.rstrip("/"),
            authority=self._pem(cluster.certificate_authority_data, cluster.certificate_authority),
            certificate=self._pem(user.client_certificate_data, user.client_certificate),
            key=self._pem(user.client_key_data, user.client_key),
            token=token,
            insecure=cluster.insecure_skip_tls_verify,
            server_name=cluster.tls_server_name,
            proxy=cluster.proxy_url,
            plugin=plugin,
            files=tuple(self.files),
        )

    def _named(self, kind: str, name: str, rows: list[_Row] | None) -> Any:
        if not name:
            missing = "it has no current-context" if kind == "context" else f"its context has no {kind}"
            raise self._wrong(missing)
        found = next((getattr(row, kind) for row in rows or () if row.name == name), None)
        if found is None:
            raise self._wrong(f"it has no {kind} {name!r}")
        return found

    def _pem(self, data: str, file: str) -> bytes:
        """Data wins over a file, as in kubectl."""
        if data:
            try:
                return base64.b64decode(data, validate=False)
            except (binascii.Error, ValueError):
                raise self._wrong("a certificate or key in it is no base64") from None
        return read_bounded(self._beside(file)) if file else b""

    def _beside(self, name: str) -> Path:
        path = self.path.parent / name
        self.files.append(path)
        return path

    def _wrong(self, what: str) -> MalformedKubeconfig:
        return MalformedKubeconfig(f"kubeconfig {self.path}: {what}")


EXPIRY_MARGIN_SECONDS = 30.0


class _ExecCredentialStatus(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    kind: str = ""
    status: _ExecCredentialStatus | None = None


class GrantedCredential(msgspec.Struct, frozen=True, kw_only=True):
    """``until``: wall clock; None: until the server refuses it."""

    token: str = ""
    certificate: bytes = b""
    key: bytes = b""
    until: float | None = None

    def holds(self) -> bool:
        return self.until is None or time.time() + EXPIRY_MARGIN_SECONDS < self.until

    def onto(self, access: Access) -> Access:
        if self.certificate:
            access = msgspec.structs.replace(access, certificate=self.certificate, key=self.key)
        return msgspec.structs.replace(access, token=self.token) if self.token else access


async def ask_plugin(plugin: ExecPlugin, access: Access) -> GrantedCredential:
    """Raises UnusableCredentials, which quotes no output."""
    try:
        with trio.fail_after(bounds.now.plugin_seconds):
            environ = {each.name: each.value for each in plugin.env or ()}
            spec: dict[str, object] = {"interactive": False}
            if plugin.provide_cluster_info:
                cluster = {"server": access.server, "certificate-authority-data": access.authority}
                spec["cluster"] = cluster | {"insecure-skip-tls-verify": access.insecure}
            info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
            done = await trio.run_process(
                [plugin.command, *(plugin.args or ())],
                stdin=subprocess.DEVNULL,
                capture_stdout=True,
                stderr=subprocess.DEVNULL,
                check=False,
                env={**os.environ, **environ, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()},
            )
            if done.returncode:
                raise UnusableCredentials(
                    f"{plugin.command} ended with {done.returncode}: run it by hand to see what it says"
                )
    except trio.TooSlowError:
        raise UnusableCredentials(
            f"{plugin.command} gave no credential in {span_s(bounds.now.plugin_seconds)}"
        ) from None
    except OSError as error:
        raise UnusableCredentials(f"{plugin.command}: {error.strerror}") from None
    except ValueError:
        what = "its arguments, or the names in its env, are none that a program can be given"
        raise UnusableCredentials(f"{plugin.command!r}: {what}") from None
    try:
        credential = msgspec.json.decode(done.stdout, type=_ExecCredential)
    except (ValueError, RecursionError) as error:
        raise UnusableCredentials(f"{plugin.command} printed no ExecCredential: {error}") from None
    status = credential.status
    if status is None or not (status.token or (status.client_certificate_data and status.client_key_data)):
        raise UnusableCredentials(f"{plugin.command} printed neither a token nor a certificate with its key")
    if not is_token(status.token):
        raise UnusableCredentials(f"{plugin.command} printed a token with characters that no token has")
    until = status.expiration_timestamp
    return GrantedCredential(
        token=status.token,
        certificate=status.client_certificate_data.encode(),
        key=status.client_key_data.encode(),
        until=until.timestamp() if until is not None else None,
    )


QUOTED = re.compile(r"(['\"]).*\1", re.DOTALL)
USER_INFO = re.compile(r"//[^/@\s]*@")


def is_token(text: str) -> bool:
    """Can a header carry it?"""
    return text.isascii() and text.isprintable()


def unquoted_problem(error: DocumentError) -> str:
    """Quotes no word of the file."""
    said = QUOTED.sub("...", error.message)
    return f"{said}, in line {error.line}" if error.line else said


#: The client's own texts quote the answer.
CLIENT_ERRORS = {
    "ServerDisconnectedError": "the server has hung up",
    "ClientPayloadError": "the answer broke off",
    "ClientResponseError": "the answer is not HTTP",
}


def failure_text(error: BaseException) -> str:
    """An error's own words only if they cannot quote the request or the answer."""
    # First: a certificate error is a ValueError too, and quotes no secret.
    if isinstance(error, OSError) or type(error).__module__.startswith("ebbtide."):
        return USER_INFO.sub("//", " ".join(str(error).split())) or type(error).__name__
    if isinstance(error, ValueError):
        return f"it cannot be sent ({type(error).__name__}): look at the kubeconfig's server, proxy and token"
    kinds = [kind.__name__ for kind in type(error).__mro__]
    return next((CLIENT_ERRORS[kind] for kind in kinds if kind in CLIENT_ERRORS), kinds[0])
