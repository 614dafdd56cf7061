"""EC2 by moto, with checked signatures and rights, over TLS on a local port.

    with ec2_emulator(folder) as aws:
        keys = aws.user(["ec2:DescribeInstances"])
        instance = aws.run_instance()
        aws.call("ec2", "stop_instances", InstanceIds=[instance["InstanceId"]])

Needs the packages of moto.lock, installed on first use below the tests' cache (20 s; made with ``printf
'moto[ec2]==5.2.5\nflask\nflask-cors\n' | pip-compile --generate-hashes --allow-unsafe --strip-extras
--no-emit-find-links -``).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import trustme

from tests.beds.inside import die_with_parent
from tests.beds.locked import locked_python

HERE = Path(__file__).parent
LOOPBACK, REGION = "127.0.0.1", "eu-west-1"
#: An image that moto has from its start.
IMAGE = "ami-12c6146b"


class UserKeys(NamedTuple):
    key_id: str
    secret: str


class Ec2Emulator:
    """``url`` and ``ca_file`` are for clients; `call` has every right."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process, self.ca_file = process, folder / "ca.pem"
        self.url = f"https://{LOOPBACK}:{self._read()['port']}"
        self._users = 0

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "moto has ended: see its log"
        return json.loads(line)

    def call(self, service: str, method: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        said = {"service": service, "method": method, "arguments": arguments}
        self._process.stdin.write(json.dumps(said) + "\n")
        self._process.stdin.flush()
        return self._read()

    def run_instance(self) -> Any:
        """As EC2 describes it."""
        made = self.call("ec2", "run_instances", ImageId=IMAGE, MinCount=1, MaxCount=1)["Instances"][0]
        return made

    def user(self, actions: list[str]) -> UserKeys:
        """One with these rights and no other."""
        self._users += 1
        name = f"user-{self._users}"
        self.call("iam", "create_user", UserName=name)
        if actions:
            self.call("iam", "put_user_policy", UserName=name, PolicyName="p", PolicyDocument=policy(actions))
        made = self.call("iam", "create_access_key", UserName=name)["AccessKey"]
        return UserKeys(made["AccessKeyId"], made["SecretAccessKey"])

    def role(self, actions: list[str]) -> str:
        """The ARN; any token holder may assume it."""
        self._users += 1
        name = f"role-{self._users}"
        trust = {
            "Effect": "Allow",
            "Principal": {"Federated": "*"},
            "Action": "sts:AssumeRoleWithWebIdentity",
        }
        document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        made = self.call("iam", "create_role", RoleName=name, AssumeRolePolicyDocument=document)["Role"]
        self.call("iam", "put_role_policy", RoleName=name, PolicyName="p", PolicyDocument=policy(actions))
        return str(made["Arn"])


def policy(actions: list[str]) -> str:
    statement = {"Effect": "Allow", "Action": actions, "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


@contextlib.contextmanager
def ec2_emulator(folder: Path) -> Iterator[Ec2Emulator]:
    """Raises Unavailable."""
    python = locked_python(HERE / "moto.lock")
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate = authority.issue_cert(LOOPBACK, key_type=trustme.KeyType.ECDSA)
    certificate.private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    # Without the image list, which loads four seconds.
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "MOTO_EC2_LOAD_DEFAULT_AMIS": "false"}
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            [str(python), str(HERE / "moto_inside.py"), LOOPBACK, str(folder), REGION],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            preexec_fn=die_with_parent,
        )
    try:
        yield Ec2Emulator(process, folder)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
