"""The API server's address and our identity: supported kubeconfigs, and one clear line for the others."""

from __future__ import annotations

import base64
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from msgspec.structs import replace

from ebbtide.actors.edges.kubernetes import api_client as light
from ebbtide.actors.edges.kubernetes import credentials as plugins
from ebbtide.actors.edges.kubernetes.api_client import ApiSession
from ebbtide.actors.edges.kubernetes.credentials import (
    Access,
    Credentials,
    UnusableCredentials,
    in_cluster,
    read_kubeconfig,
)
from ebbtide.events import bounds
from tests.waiting import WATCHDOG_SECONDS

SERVER = "https://10.0.0.1:6443"


@pytest.fixture(autouse=True)
def _wide_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "now", bounds.Bounds(plugin_seconds=WATCHDOG_SECONDS))
    monkeypatch.setattr(plugins, "PLUGIN_AGAIN_SECONDS", WATCHDOG_SECONDS)


def config(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "x"}}],
        "clusters": [{"name": "c", "cluster": {"server": SERVER} | (cluster or {})}],
        "users": [{"name": "u", "user": {"token": "t"} if user is None else user}],
    }


def written(folder: Path, document: Any) -> Path:
    path = folder / "kubeconfig"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_everything_in_the_file(tmp_path: Path) -> None:
    """Certificates and a token inside the file."""
    cluster = {
        "certificate-authority-data": encoded("CA"),
        "server": f"{SERVER}/",
        "tls-server-name": "api",
        "proxy-url": "http://proxy:1",
        "insecure-skip-tls-verify": True,
    }
    user = {"client-certificate-data": encoded("CERT"), "client-key-data": encoded("KEY"), "token": "t"}
    path = written(tmp_path, config(cluster, user))
    assert read_kubeconfig(path) == Access(
        server=SERVER,
        authority=b"CA",
        certificate=b"CERT",
        key=b"KEY",
        token="t",
        insecure=True,
        server_name="api",
        proxy="http://proxy:1",
        files=(path,),
    )


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("a: [", "not YAML"),
        (config() | {"current-context": ""}, "no current-context"),
        (config() | {"clusters": None}, "no cluster 'c'"),
        (config() | {"users": []}, "no user 'u'"),
        (config({"server": ""}), "is no URL of http or https"),
        (config({"server": 5}), "$.clusters[0].cluster.server"),
        (config({"certificate-authority": "/no/such/file"}), "/no/such/file: No such file"),
        (config({"certificate-authority-data": "x"}), "no base64"),
        (config(user={"tokenFile": "empty"}), "empty, where a token"),
        (config(user={"auth-provider": {"name": "gcp"}}), "use exec or a token"),
        (config(user={"username": "me", "password": "x"}), "use exec or a token"),
    ],
)
def test_what_is_wrong(tmp_path: Path, document: Any, says: str) -> None:
    """One line names the place of the error."""
    (tmp_path / "empty").write_text("")
    with pytest.raises(UnusableCredentials) as wrong:
        read_kubeconfig(written(tmp_path, document))
    assert says in str(wrong.value)
    assert str(tmp_path) in str(wrong.value) or "/no/such" in str(wrong.value)
    assert "\n" not in str(wrong.value)


SECRETS = [
    '"SECRET',
    "SECRET: x",
    "[SECRET\n  x: y",
    "SECRET\n   token: aaa",
    "{a: SECRET}",
    "!!int SECRET",
    '"SECRET\\n"',
    '"SECR\u00c9T"',
]


def test_nothing_of_a_token_is_said(tmp_path: Path) -> None:
    """An error in the token's line is reported without the line."""
    text = (
        f"clusters: [{{name: c, cluster: {{server: '{SERVER}'}}}}]\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\nusers:\n- name: u\n  user:\n    token: "
    )
    path = tmp_path / "config"
    for token in SECRETS:
        path.write_text(text + token + "\n")
        with pytest.raises(UnusableCredentials) as wrong:
            read_kubeconfig(path)
        assert "SECR" not in str(wrong.value)
        assert str(path) in str(wrong.value)


@pytest.mark.parametrize(
    "user",
    [
        {"exec": {"command": "true", "env": [{"name": "A=B", "value": "x"}]}},
        {"exec": {"command": "true", "args": ["a\0b"]}},
        {"exec": {"command": "a\0b"}},
        {"tokenFile": "a\0b"},
        {"client-certificate": "a\0b"},
    ],
    ids=["env", "args", "command", "token", "certificate"],
)
async def test_what_no_system_call_takes(tmp_path: Path, user: Any) -> None:
    """Names and arguments that the system refuses are errors like any other."""
    credentials = Credentials(written(tmp_path, config(user=user)))
    for _ in range(2):
        with pytest.raises(UnusableCredentials) as wrong:
            await credentials.refresh()
        assert "\0" not in str(wrong.value)


def test_a_kubeconfig_that_is_no_file(tmp_path: Path) -> None:
    """A FIFO would block a thread forever: it is refused, also as a token file."""
    fifo = tmp_path / "config"
    os.mkfifo(fifo)
    for path in (fifo, written(tmp_path, config(user={"tokenFile": str(fifo)}))):
        with pytest.raises(UnusableCredentials, match="no regular file"):
            read_kubeconfig(path)


def test_in_a_pod(tmp_path: Path) -> None:
    """Address from the environment; token and authority from the service account."""
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("CA")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    found = in_cluster(environ, tmp_path)
    assert (found.server, found.token, found.authority) == ("https://[fd00::1]:443", "t", b"CA")
    with pytest.raises(UnusableCredentials, match="no kubeconfig, and KUBERNETES_SERVICE_HOST is not set"):
        in_cluster({}, tmp_path)


# --- what changes


async def test_a_token_that_rotates(tmp_path: Path) -> None:
    """A changed token file is read again; unchanged, the access is the same object."""
    token = tmp_path / "token"
    token.write_text("one")
    credentials = Credentials(written(tmp_path, config(user={"tokenFile": "token"})))
    first = await credentials.refresh()
    assert await credentials.refresh() is first
    (tmp_path / "new").write_text("two")
    (tmp_path / "new").rename(token)
    second = await credentials.refresh()
    assert (first.token, second.token) == ("one", "two")
    assert first.connection() == second.connection()


# --- plugins


def program(folder: Path, script: str) -> Path:
    path = folder / "plugin.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def counting(folder: Path, until: str = "null") -> Path:
    """A plugin whose token counts the calls."""
    said = '{"kind":"ExecCredential","status":{"token":"t%s","expirationTimestamp":%s}}'
    return program(folder, f"cd {folder}; echo x >> asked; printf '{said}' $(wc -l < asked) '{until}'")


def with_plugin(folder: Path) -> Path:
    return written(folder, config(user={"exec": {"command": "./plugin.sh", "apiVersion": "v1"}}))


async def test_a_plugin(tmp_path: Path) -> None:
    """The token is used until it expires or the server refuses it."""
    counting(tmp_path)
    credentials = Credentials(with_plugin(tmp_path))
    assert (await credentials.refresh()).token == "t1"
    assert (await credentials.refresh()).token == "t1"
    credentials._asked_at -= plugins.PLUGIN_AGAIN_SECONDS
    assert (await credentials.refresh(refused=True)).token == "t2"
    # A burst of refusals is one question.
    assert (await credentials.refresh(refused=True)).token == "t2"


async def test_what_a_plugin_is_told(tmp_path: Path) -> None:
    """Arguments, environment, and the cluster if requested."""
    said = '{"kind":"ExecCredential","status":{"clientCertificateData":"C","clientKeyData":"K"}}'
    path = program(tmp_path, f"echo \"$1 $MINE $KUBERNETES_EXEC_INFO\" > {tmp_path}/told; echo '{said}'")
    plugin = {"command": str(path), "args": ["get-token"], "env": [{"name": "MINE", "value": "yes"}]}
    plugin |= {"apiVersion": "client.authentication.k8s.io/v1", "provideClusterInfo": True}
    found = await Credentials(written(tmp_path, config(user={"exec": plugin}))).refresh()
    assert (found.certificate, found.key) == (b"C", b"K")
    told = (tmp_path / "told").read_text()
    assert told.startswith("get-token yes ")
    info = json.loads(told.split(" ", 2)[2])
    assert info["spec"]["interactive"] is False
    assert info["spec"]["cluster"]["server"] == SERVER


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo no luck with SECRET >&2; exit 3", "ended with 3: run it by hand to see what it says$"),
        (r"""printf '{"status": {"token": "SEC\\nRET"}}'""", "a token with characters that no token has$"),
        ("echo nonsense", "printed no ExecCredential"),
        ("echo '{}'", "neither a token nor a certificate"),
        ("exec sleep 1000", "gave no credential in"),
    ],
)
async def test_a_plugin_that_fails(
    tmp_path: Path, script: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failure or hang costs a bounded time and one line."""
    if "sleep" in script:
        monkeypatch.setattr(bounds, "now", bounds.Bounds(plugin_seconds=0.2))
    program(tmp_path, script)
    with pytest.raises(UnusableCredentials, match=says):
        await Credentials(with_plugin(tmp_path)).refresh()


# --- certificates


def test_certificates_that_cannot_be_used() -> None:
    """A bad authority, certificate or key: one line, and no connection."""
    authority = trustme.CA()
    made = authority.issue_cert("client")
    certificate = made.cert_chain_pems[0].bytes()
    locked = load_pem_private_key(made.private_key_pem.bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"secret")
    )
    other = authority.issue_cert("other").private_key_pem.bytes()
    base = Access(server=SERVER, authority=authority.cert_pem.bytes())
    client = light.load_client()
    ApiSession(client, replace(base, certificate=certificate, key=made.private_key_pem.bytes()))
    for broken in (
        replace(base, authority=b"nonsense"),
        replace(base, certificate=certificate),
        replace(base, certificate=certificate, key=other),
        replace(base, certificate=certificate, key=locked),
        replace(base, certificate=b"nonsense", key=other),
    ):
        says = f"^the certificates for {SERVER} cannot be used: "
        with pytest.raises(UnusableCredentials, match=says) as wrong:
            ApiSession(client, broken)
        assert "\n" not in str(wrong.value)
