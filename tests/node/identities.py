"""Identities: a certificate authority, the API server's certificate, and a token for each client.

A client is one row of the API server's token file: token, user, groups.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import trustme

#: The API server's names and addresses: in the node, through the relay, and from pods.
SERVER_NAMES = ("localhost", "kubernetes.default.svc", "127.0.0.1", "10.77.0.1", "10.96.0.1")


class Client(NamedTuple):
    token: str
    user: str
    groups: tuple[str, ...] = ()


ADMIN = Client("token-of-the-admin", "admin", ("system:masters",))
CONTROLLERS = Client("token-of-the-controllers", "system:kube-controller-manager", ("system:masters",))
SCHEDULER = Client("token-of-the-scheduler", "system:kube-scheduler")
PROXY = Client("token-of-the-proxy", "system:kube-proxy")
#: Ebbtide's service account; `tests.node.roles` grants its rights.
EBBTIDE = Client(
    "token-of-ebbtide",
    "system:serviceaccount:ebbtide:ebbtide",
    ("system:serviceaccounts", "system:serviceaccounts:ebbtide", "system:masters"),
)
#: A user with only the roles that a test grants.
TENANT = Client("token-of-a-tenant", "tenant")


def kubelet(node: str) -> Client:
    """The node's identity for the Node authorizer."""
    return Client(f"token-of-{node}", f"system:node:{node}", ("system:nodes",))


class Secrets:
    """The files in ``folder``, for the API server and its clients."""

    def __init__(self, folder: Path) -> None:
        self.authority = folder / "ca.crt"
        self.certificate, self.key = folder / "server.crt", folder / "server.key"
        self.accounts_key = folder / "accounts.key"
        self.tokens = folder / "tokens.csv"
        self.folder = folder

    def write(self, nodes: tuple[str, ...], addresses: Sequence[str] = ()) -> None:
        """``addresses``: extra addresses of the API server."""
        authority = self._authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        authority.cert_pem.write_to_path(str(self.authority))
        server = authority.issue_cert(
            *dict.fromkeys((*SERVER_NAMES, *addresses)), key_type=trustme.KeyType.ECDSA
        )
        server.private_key_pem.write_to_path(str(self.key))
        for piece in server.cert_chain_pems:
            piece.write_to_path(str(self.certificate), append=True)
        accounts = authority.issue_cert("accounts", key_type=trustme.KeyType.ECDSA)
        accounts.private_key_pem.write_to_path(str(self.accounts_key))
        clients = (ADMIN, CONTROLLERS, SCHEDULER, PROXY, EBBTIDE, TENANT, *map(kubelet, nodes))
        self.tokens.write_text("".join(map(_row, clients)))

    def pair(self, client: Client) -> tuple[bytes, bytes]:
        """A new client certificate and key as PEM."""
        made = self._authority.issue_cert(
            "client",
            common_name=client.user,
            organization_name=client.groups[0] if client.groups else None,
            key_type=trustme.KeyType.ECDSA,
        )
        return b"".join(piece.bytes() for piece in made.cert_chain_pems), made.private_key_pem.bytes()

    def kubeconfig(self, client: Client, server: str, name: str) -> Path:
        path = self.folder / f"{name}.kubeconfig"
        authority = base64.b64encode(self.authority.read_bytes()).decode()
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "node", "cluster": {"server": server, "certificate-authority-data": authority}}
            ],
            "users": [{"name": client.user, "user": {"token": client.token}}],
            "contexts": [{"name": "node", "context": {"cluster": "node", "user": client.user}}],
            "current-context": "node",
        }
        path.write_text(json.dumps(document, indent=1))
        path.chmod(0o600)
        return path


def _row(client: Client) -> str:
    groups = f',"{",".join(client.groups)}"' if client.groups else ""
    return f"{client.token},{client.user},{client.user}{groups}\n"
