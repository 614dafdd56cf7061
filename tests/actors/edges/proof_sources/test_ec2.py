"""EC2 by providerID, on an emulated AWS that checks signatures and rights; other cases on a fake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio

from ebbtide.actors.edges.proof_sources.ec2 import (
    HIBERNATED,
    NO_SUCH,
    NO_USE,
    STATE_UNKNOWN,
    Credentials,
    Ec2,
    Ec2Source,
    Instance,
    Keys,
    judge,
    parse_provider_id,
    signed,
)
from ebbtide.actors.edges.proof_sources.proof_source import Machine, Said, Unread
from tests.actors.edges.proof_sources.serving import Server, answer, serving
from tests.beds.ec2 import REGION, Ec2Emulator, UserKeys, ec2_emulator
from tests.beds.skipping import or_skip

DESCRIBE = ["ec2:DescribeInstances"]


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ec2Emulator]:
    with or_skip(), ec2_emulator(tmp_path_factory.mktemp("ec2")) as made:
        yield made


@pytest.fixture(scope="session")
def keys(aws: Ec2Emulator) -> UserKeys:
    return aws.user(DESCRIBE)


def of_keys(keys: UserKeys) -> dict[str, str]:
    return {"AWS_ACCESS_KEY_ID": keys.key_id, "AWS_SECRET_ACCESS_KEY": keys.secret}


def source(aws: Ec2Emulator, environment: Mapping[str, str], **fields: Any) -> Ec2Source:
    credentials = Credentials(REGION, environment=environment, **fields)
    return Ec2Source(Ec2(REGION, credentials, aws.url, str(aws.ca_file)))


def machine(instance: Mapping[str, Any], zone: str | None = None) -> Machine:
    zone = instance["Placement"]["AvailabilityZone"] if zone is None else zone
    return Machine("n", "u", "b", "", f"aws:///{zone}/{instance['InstanceId']}")


def on(node: Machine) -> Said:
    return Said("on", "providerID", node.provider_id)


def off(node: Machine) -> Said:
    return Said("off", "providerID", node.provider_id)


# --- the emulated AWS


@pytest.mark.backend
async def test_the_states_of_an_instance(aws: Ec2Emulator, keys: UserKeys) -> None:
    """Running is on; stopped and terminated are off."""
    instance = aws.run_instance()
    asked, node = source(aws, of_keys(keys)), machine(instance)
    assert asked.name == REGION
    assert await asked.read(node) == on(node)
    for action, said in (("stop", off(node)), ("start", on(node)), ("terminate", off(node))):
        aws.call("ec2", f"{action}_instances", InstanceIds=[instance["InstanceId"]])
        assert await asked.read(node) == said
    # The form of older cloud providers, and a foreign zone.
    bare = machine(instance, "")
    assert await asked.read(bare) == off(bare)
    assert await asked.read(machine(instance, "eu-west-1c")) == off(node)


@pytest.mark.backend
async def test_an_instance_that_is_not_there_is_not_off(aws: Ec2Emulator, keys: UserKeys) -> None:
    """It may belong to another account. Other instances of the same request are still reported."""
    there, asked = aws.run_instance(), source(aws, of_keys(keys))
    said: dict[str, Said | None] = {}

    async def ask(name: str, node: Machine) -> None:
        said[name] = await asked.read(node)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "there", machine(there))
        nursery.start_soon(ask, "gone", Machine("n", "u", "b", "", "aws:///eu-west-1a/i-00000000"))
        nursery.start_soon(ask, "elsewhere", Machine("n", "u", "b", "", "gce://project/zone/name"))
    assert said["gone"] == Said("unknown", error=NO_SUCH)
    assert said["there"] == on(machine(there))
    assert said["elsewhere"] is None


@pytest.mark.backend
async def test_who_we_are_comes_from_where_the_vendors_tools_take_it(
    aws: Ec2Emulator, keys: UserKeys, tmp_path: Path
) -> None:
    """A profile file (read each time), the environment, or a service account token with its role."""
    node = machine(aws.run_instance())
    file = tmp_path / "credentials"
    right = f"aws_access_key_id = {keys.key_id}\naws_secret_access_key={keys.secret}\n"
    file.write_text(f"[default]\naws_access_key_id = x\naws_secret_access_key = y\n[nodes]\n{right}")
    named = source(aws, {}, file=file, profile="nodes")
    assert await named.read(node) == on(node)
    file.write_text("[default]\n")
    with pytest.raises(Unread, match=r"credentials: no credentials of the configured profile"):
        await named.read(node)

    token = tmp_path / "token"
    token.write_text("eyJhbGciOiJub25lIn0.e30.\n")
    role = {
        "AWS_ROLE_ARN": aws.role(DESCRIBE),
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
        "AWS_ENDPOINT_URL_STS": aws.url,
        "AWS_CA_BUNDLE": str(aws.ca_file),
    }
    assumed = source(aws, role)
    assert await assumed.read(node) == on(node)
    # The token is used until shortly before its end.
    token.unlink()
    assert await assumed.read(node) == on(node)


@pytest.mark.backend
async def test_a_refusal_is_told_in_words_that_we_know(aws: Ec2Emulator, keys: UserKeys) -> None:
    """Wrong signature, missing rights, no credentials; no key in the text."""
    node = machine(aws.run_instance())
    for environment, said in (
        (of_keys(keys._replace(secret="wrong")), "it answers 401 AuthFailure"),
        (of_keys(aws.user([])), "it answers 403 AccessDenied"),
        ({}, "no credentials: name a credentialsFile, or give the service account a role"),
    ):
        with pytest.raises(Unread) as refused:
            await source(aws, environment).read(node)
        assert str(refused.value) == said
    with pytest.raises(Unread, match="its certificate is not accepted"):
        await Ec2(REGION, Credentials(REGION, environment=of_keys(keys)), aws.url).find("i-00000000")


# --- what no emulator shows


@pytest.mark.parametrize(
    ("provider_id", "found"),
    [
        ("aws:///eu-west-1a/i-0123456789abcdef0", ("eu-west-1a", "i-0123456789abcdef0")),
        ("aws:////i-01234567", ("", "i-01234567")),
        ("aws:///eu-west-1a/fargate-ip-10-0-0-1", None),
        ("aws:///eu-west-1a/i-0123456789abcdef0&Action=X", None),
        ("", None),
    ],
)
def test_which_provider_ids_are_ec2s(provider_id: str, found: tuple[str, str] | None) -> None:
    """A kubelet writes the ID: only a valid instance ID gets into a request."""
    assert parse_provider_id(provider_id) == found


@pytest.mark.parametrize(
    ("state", "reason", "said"),
    [
        ("stopped", "Client.UserInitiatedShutdown", ("off", "")),
        ("stopped", "Client.UserInitiatedHibernate", ("on", HIBERNATED)),
        ("terminated", "", ("off", "")),
        ("running", "", ("on", "")),
        ("stopping", "", ("unknown", "the instance is stopping")),
        ("<b>", "", ("unknown", STATE_UNKNOWN)),
    ],
)
def test_what_a_state_says(state: str, reason: str, said: tuple[str, str]) -> None:
    """Transitions are neither on nor off. A hibernated instance resumes its processes. Unknown texts are
    not recorded.
    """
    assert judge(Instance("eu-west-1a", state, reason)) == said


def test_the_signature_is_the_specifications() -> None:
    """Keys, time and session token; the expected value is the vendor library's."""
    keys = Keys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "session")
    now = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
    said = dict(signed("ec2", "us-east-1", keys, "ec2.us-east-1.amazonaws.com", b"Param1=value1", now))
    assert said["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/ec2/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, "
        "Signature=65901ff1e9d9835e9d4a498437be38756db7b2e43d46f53ad47483ac4c751bd5"
    )


def described(*instances: str) -> bytes:
    items = "".join(
        f"<item><instanceId>{each}</instanceId><instanceState><name>stopped</name></instanceState>"
        "<placement><availabilityZone>z</availabilityZone></placement></item>"
        for each in instances
    )
    return (
        '<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><reservationSet><item>'
        f"<instancesSet>{items}</instancesSet></item></reservationSet></DescribeInstancesResponse>"
    ).encode()


def ec2_at(server: Server) -> Ec2:
    credentials = Credentials(REGION, environment={"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"})
    return Ec2(REGION, credentials, server.url, str(server.ca_file))


async def test_who_asks_at_the_same_time_asks_once(tmp_path: Path) -> None:
    """A hundred nodes, fifty per request; later callers start a new request."""
    server = Server(tmp_path)
    server.reply = lambda asked: answer(200, described("i-00000001", "i-00000002"))
    found: list[Instance | None] = []

    async def find(ec2: Ec2, instance_id: str) -> None:
        found.append(await ec2.find(instance_id))

    async with serving(server):
        ec2 = ec2_at(server)
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(find, ec2, f"i-{number:08x}")
        assert len(server.asked) == 2
        assert sorted(each.body.count(b"Value") for each in server.asked) == [50, 50]
        assert len(found) == 100
        assert found.count(Instance("z", "stopped", "")) == 2
        assert await ec2.find("i-00000001") == Instance("z", "stopped", "")
        assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (answer(200, b"<a><b></a>"), NO_USE),
        (answer(200, b'<!DOCTYPE a [<!ENTITY b "b">]><a>&b;</a>'), NO_USE),
        (answer(200, '<!DOCTYPE a [<!ENTITY b "b">]><a>&b;</a>'.encode("utf-16")), NO_USE),
        (answer(200, b"<?xml version='1.0' encoding='utf-7'?>+ADw-a/>"), NO_USE),
        (answer(503, b"<html>"), "it answers 503"),
        (answer(500, b"<a><Code>secret</Code></a>"), "it answers 500"),
        (answer(503, b"<a><Code>RequestLimitExceeded</Code></a>"), "it answers 503 RequestLimitExceeded"),
    ],
)
async def test_an_answer_that_is_none(tmp_path: Path, reply: bytes, said: str) -> None:
    server = Server(tmp_path)
    server.reply = lambda asked: reply
    async with serving(server):
        with pytest.raises(Unread) as refused:
            await ec2_at(server).find("i-00000001")
    assert str(refused.value) == said


async def test_the_agent_for_pod_identities(tmp_path: Path) -> None:
    """Uses the token file, and renews shortly before the credentials end."""
    server, token = Server(tmp_path), tmp_path / "token"
    token.write_text("t\n")
    given = {"AccessKeyId": "k", "SecretAccessKey": "s", "Token": "session"}
    until = datetime.now(UTC) + timedelta(hours=1)
    async with serving(server, tls=False):
        environment = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{server.url}/v1/credentials"}
        environment["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = str(token)
        credentials = Credentials(REGION, environment=environment)
        server.resources({"/v1/credentials": {**given, "Expiration": until.isoformat()}})
        for _ in range(2):
            assert await credentials.current() == Keys("k", "s", "session", until)
        (asked,) = server.asked
        assert (asked.method, asked.headers["authorization"]) == ("GET", "t")
        soon = datetime.now(UTC) + timedelta(minutes=1)
        server.resources({"/v1/credentials": {**given, "Expiration": soon.isoformat()}})
        fresh = Credentials(REGION, environment=environment)
        for _ in range(2):
            assert (await fresh.current()).until == soon
        assert len(server.asked) == 3
        server.resources({"/v1/credentials": {"AccessKeyId": "secret"}})
        with pytest.raises(Unread, match=f"^{NO_USE}$"):
            await fresh.current()
