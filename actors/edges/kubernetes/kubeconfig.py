"""Where the API server is and who we are there: a kubeconfig, or what a pod finds in itself.

Everything is read into memory at once, with the list of the files that it came from: whoever holds an
`Access` can see that one of them changed (a token or a certificate rotated, the server moved) and read again.
What a kubeconfig can say of plugins is carried out in `plugin`.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from actors.edges.kubernetes.unsaid import is_token, problem

#: What `kubectl config` writes is a few KiB; a file that is larger is something else.
FILE_BYTES_MAX = 1024 * 1024
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Unusable(Exception):
    """A kubeconfig, or a file that it names, cannot be used; the text is one line that says which and why."""


class Malformed(Unusable):
    """The file itself is no kubeconfig that we can use, whatever comes of the files that it names."""


class EnvVar(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class Plugin(msgspec.Struct, frozen=True, rename="camel"):
    """A program that hands out credentials (client.authentication.k8s.io)."""

    command: str
    args: tuple[str, ...] | None = None
    env: tuple[EnvVar, ...] | None = None
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    provide_cluster_info: bool = False


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """``server`` without a slash at its end; PEM in ``authority`` (empty: the machine's own trust),
    ``certificate`` and ``key``; ``files``: what all this was read from.
    """

    server: str
    authority: bytes = b""
    certificate: bytes = b""
    key: bytes = b""
    token: str = ""
    insecure: bool = False
    server_name: str = ""
    proxy: str = ""
    plugin: Plugin | None = None
    files: tuple[Path, ...] = ()

    def connection(self) -> tuple[object, ...]:
        """What a connection depends on: while this stays, open ones can be used with another token."""
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
    exec: Plugin | None = None
    auth_provider: object = None
    username: str = ""


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct):
    name: str
    user: _User


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _Kubeconfig(msgspec.Struct, rename="kebab"):
    current_context: str = ""
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


def read(path: Path) -> Access:
    """The access of a kubeconfig's current context. Raises Unusable."""
    return _Reading(path).access()


def in_cluster(environ: Mapping[str, str] = os.environ, account: Path = ACCOUNT) -> Access:
    """The access of the pod that we run in, by its service account. Raises Unusable."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise Unusable("there is no kubeconfig, and KUBERNETES_SERVICE_HOST is not set: this is no pod")
    place = f"[{host}]" if ":" in host else host
    token, authority = account / "token", account / "ca.crt"
    return Access(
        server=f"https://{place}:{port}",
        authority=contents(authority),
        token=_text(token),
        files=(token, authority),
    )


def contents(path: Path) -> bytes:
    """A file of bounded size. Raises Unusable."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}") from None
    except ValueError:
        raise Unusable(f"{str(path)!r}: no name that a file can have") from None
    if len(data) > FILE_BYTES_MAX:
        raise Malformed(f"{path}: larger than {FILE_BYTES_MAX} bytes, so no kubeconfig and no certificate")
    return data


def _text(path: Path) -> str:
    text = contents(path).decode("ascii", "replace").strip()
    if not text:
        raise Unusable(f"{path}: empty, where a token is expected")
    if not is_token(text):
        raise Unusable(f"{path}: not the text of a token")
    return text


class _Reading:
    """One file, and those that it names, relative to its folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = [path]

    def access(self) -> Access:
        config = self._parse()
        context = self._named("context", config.current_context, config.contexts, "context")
        cluster = self._named("cluster", context.cluster, config.clusters, "cluster")
        user = self._named("user", context.user, config.users, "user") if context.user else _User()
        if not cluster.server.startswith(("https://", "http://")):
            raise self._wrong(f"the server of cluster {context.cluster!r} is no URL of http or https")
        if "@" in cluster.server:
            raise self._wrong(f"the server of cluster {context.cluster!r} has a name or password in it")
        if user.auth_provider is not None or user.username:
            raise self._wrong(
                f"user {context.user!r} has an auth-provider or a password: use exec or a token"
            )
        return Access(
            server=cluster.server.rstrip("/"),
            authority=self._pem(cluster.certificate_authority_data, cluster.certificate_authority),
            certificate=self._pem(user.client_certificate_data, user.client_certificate),
            key=self._pem(user.client_key_data, user.client_key),
            token=self._token(user),
            insecure=cluster.insecure_skip_tls_verify,
            server_name=cluster.tls_server_name,
            proxy=cluster.proxy_url,
            plugin=self._plugin(user.exec),
            files=tuple(self.files),
        )

    def _parse(self) -> _Kubeconfig:
        data = contents(self.path)
        try:
            return msgspec.convert(yaml.safe_load(data), _Kubeconfig)
        except yaml.YAMLError as error:
            raise self._wrong(f"no YAML: {problem(error)}") from None
        except msgspec.ValidationError as error:
            raise self._wrong(f"no kubeconfig: {error}") from None
        except Exception as error:
            # YAML's makers of values raise what they please, with the value in its words.
            raise self._wrong(f"no kubeconfig: {type(error).__name__}") from None

    def _named(self, kind: str, name: str, rows: Any, field: str) -> Any:
        if not name:
            raise self._wrong(
                "it has no current-context" if kind == "context" else f"its context has no {kind}"
            )
        for row in rows or ():
            if row.name == name:
                return getattr(row, field)
        raise self._wrong(f"it has no {kind} {name!r}")

    def _pem(self, data: str, file: str) -> bytes:
        """Data goes before a file, as with kubectl."""
        if data:
            try:
                return base64.b64decode(data, validate=False)
            except (binascii.Error, ValueError):
                raise self._wrong("a certificate or key in it is no base64") from None
        return contents(self._beside(file)) if file else b""

    def _token(self, user: _User) -> str:
        """A file goes before the token itself, as with kubectl."""
        if user.token_file:
            return _text(self._beside(user.token_file))
        if not is_token(user.token):
            raise self._wrong("the token in it has characters that no token has")
        return user.token

    def _beside(self, name: str) -> Path:
        path = self.path.parent / name
        self.files.append(path)
        return path

    def _plugin(self, plugin: Plugin | None) -> Plugin | None:
        """A relative path is the kubeconfig's; a bare name is looked for in PATH."""
        if plugin is None or "/" not in plugin.command:
            return plugin
        return msgspec.structs.replace(plugin, command=str(self.path.parent / plugin.command))

    def _wrong(self, what: str) -> Malformed:
        return Malformed(f"kubeconfig {self.path}: {what}")
