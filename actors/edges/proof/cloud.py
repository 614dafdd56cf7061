"""The cloud, asked whether a node's instance runs: EC2, by the Node's providerID.

`Ec2` is one region for all nodes. Readings that begin within a moment are one request, whatever the number of
nodes, because the cloud counts requests.

Requests are signed here (AWS Signature Version 4) because the vendor's library cannot be installed beside
the API server's client: they want different versions of a third package. The signature is forty lines, and
fixed for ever by its name; credentials come from where the vendor's tools take them too (`Credentials`).
"""

from __future__ import annotations

import configparser
import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree

import msgspec

from ebbtide.actors.edges.documents import read_file
from ebbtide.actors.edges.proof.https import Answer, Service
from ebbtide.actors.edges.proof.sources import Gathering, Machine, Said, Unread
from ebbtide.actors.interfaces import known_text
from ebbtide.events.outage_events import Source, Verdict

#: In one request: each takes some 7 KiB of the answer, of which 512 KiB are read.
INSTANCES_MAX = 50
EC2_VERSION, STS_VERSION = "2016-11-15", "2011-06-15"
#: Credentials are renewed so long before their end: a request that is on its way needs them.
RENEW_SECONDS = 300
#: A token or a file of credentials.
FILE_BYTES_MAX = 64 * 1024

#: ``aws:///eu-west-1a/i-0123456789abcdef0``, as the cloud provider writes it; the zone may be missing.
_PROVIDER_ID = re.compile(r"aws://[^/]*/(?P<zone>[a-z0-9-]*)/(?P<id>i-[0-9a-f]{8,17})")

_VERDICTS: dict[str, Verdict] = {"stopped": "off", "terminated": "off", "running": "on", "pending": "on"}
#: Of the words for a state, and of the codes for errors, only those that we know go on record.
_BETWEEN = ("stopping", "shutting-down")
_CODES = (
    "AccessDenied",
    "AuthFailure",
    "ExpiredToken",
    "IDPCommunicationError",
    "InvalidClientTokenId",
    "InvalidIdentityToken",
    "OptInRequired",
    "RequestExpired",
    "RequestLimitExceeded",
    "SignatureDoesNotMatch",
    "UnauthorizedOperation",
)
#: An instance that hibernates is "stopped", and comes back with everything that ran, under the same boot id.
_HIBERNATES = "Hibernate"

#: Terminated long ago, never there, or of another account: the API tells none of these from another, and for
#: a while after its start an instance is not to be found either.
NO_SUCH = "there is no such instance in this region and account"
HIBERNATED = "the instance hibernates: it comes back with all that ran"
STATE_UNKNOWN = "the instance is in a state that is not known"
NO_USE = "its answer is of no use"


# --- who we are -----------------------------------------------------------------------------------


class Keys(NamedTuple):
    """``until``: None: they have no end that is known."""

    key_id: str
    secret: str
    token: str = ""
    until: datetime | None = None


class _PodKeys(msgspec.Struct, rename="pascal"):
    """What EKS' agent for pod identities says."""

    access_key_id: str
    secret_access_key: str
    token: str
    expiration: datetime


class Credentials:
    """The first of these that is there: the file that is configured; the environment's keys; the token of the
    service account with its role (IRSA), at the security token service; EKS' agent for pod identities. What a
    machine has by its instance's profile is not asked for: a pod is not the machine.
    """

    def __init__(
        self,
        region: str,
        file: Path | None = None,
        profile: str | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._region, self._file, self._profile = region, file, profile or "default"
        self.environment = environment
        self._kept: Keys | None = None

    async def current(self) -> Keys:
        """Raises Unread."""
        now = datetime.now(UTC)
        kept = self._kept
        if (
            kept is not None
            and kept.until is not None
            and now < kept.until - timedelta(seconds=RENEW_SECONDS)
        ):
            return kept
        said = self.environment
        if self._file is not None:
            return _keys_of_file(self._file, self._profile)
        if "AWS_ACCESS_KEY_ID" in said:
            secret = said.get("AWS_SECRET_ACCESS_KEY", "")
            return Keys(said["AWS_ACCESS_KEY_ID"], secret, said.get("AWS_SESSION_TOKEN", ""))
        if "AWS_WEB_IDENTITY_TOKEN_FILE" in said and "AWS_ROLE_ARN" in said:
            self._kept = await self._assume(said["AWS_WEB_IDENTITY_TOKEN_FILE"], said["AWS_ROLE_ARN"])
        elif "AWS_CONTAINER_CREDENTIALS_FULL_URI" in said:
            self._kept = await self._ask_agent(said["AWS_CONTAINER_CREDENTIALS_FULL_URI"])
        else:
            raise Unread("no credentials: name a credentialsFile, or give the service account a role")
        return self._kept

    async def _assume(self, token_file: str, role: str) -> Keys:
        endpoint = (
            self.environment.get("AWS_ENDPOINT_URL_STS")
            or f"https://sts.{self._region}.{_domain(self._region)}"
        )
        fields = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": STS_VERSION,
            "RoleArn": role,
            "RoleSessionName": self.environment.get("AWS_ROLE_SESSION_NAME", "ebbtide-outage"),
            "WebIdentityToken": _text_of(Path(token_file)).strip(),
        }
        bundle = self.environment.get("AWS_CA_BUNDLE")
        answer = await _service(endpoint, bundle).request("POST", "/", FORM, urlencode(fields).encode())
        said = _element(answer).find(".//{*}Credentials")
        keys = Keys(_word(said, "AccessKeyId"), _word(said, "SecretAccessKey"), _word(said, "SessionToken"))
        try:
            until = datetime.fromisoformat(_word(said, "Expiration")).astimezone(UTC)
        except (ValueError, OverflowError):
            raise Unread(NO_USE) from None
        if "" in keys:
            raise Unread(NO_USE)
        return keys._replace(until=until)

    async def _ask_agent(self, uri: str) -> Keys:
        parts = urlsplit(uri)
        token = self.environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "")
        headers = (("Authorization", _text_of(Path(token)).strip()),) if token else ()
        answer = await _service(f"{parts.scheme}://{parts.netloc}").request("GET", parts.path, headers)
        if answer.status != 200:
            raise Unread(f"the agent for pod identities answers {answer.status}")
        try:
            said = msgspec.json.decode(answer.body, type=_PodKeys)
            until = said.expiration.astimezone(UTC)
        except (ValueError, OverflowError, RecursionError):
            raise Unread(NO_USE) from None
        return Keys(said.access_key_id, said.secret_access_key, said.token, until)


def _keys_of_file(path: Path, profile: str) -> Keys:
    """Read each time, as it may be renewed. Nothing of it is in a message. Raises Unread."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(_text_of(path))
        section = parser[profile]
        return Keys(
            section["aws_access_key_id"],
            section["aws_secret_access_key"],
            section.get("aws_session_token", ""),
        )
    except (configparser.Error, KeyError):
        raise Unread(f"{path}: no credentials of the profile that is configured") from None


def _text_of(path: Path) -> str:
    try:
        return read_file(path, FILE_BYTES_MAX).decode()
    except OSError as error:
        raise Unread(f"{path}: {os.strerror(error.errno or 0)}") from None
    except ValueError:
        raise Unread(f"{path}: it is no text file") from None


# --- requests -------------------------------------------------------------------------------------

FORM = (("Content-Type", "application/x-www-form-urlencoded; charset=utf-8"),)


def _domain(region: str) -> str:
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"


def _service(url: str, certificate: str | None = None) -> Service:
    """Plain HTTP only where somebody has named it: on the loopback, and the agent's link-local address."""
    try:
        plain = urlsplit(url).scheme == "http"
        return Service(url, ca_file=Path(certificate) if certificate and not plain else None, insecure=plain)
    except ValueError as error:
        raise Unread(str(error)) from None


def signed(
    service: str, region: str, keys: Keys, authority: str, body: bytes, now: datetime
) -> tuple[tuple[str, str], ...]:
    """The headers of a POST of a form to ``/``, by AWS Signature Version 4."""
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    headers = {"content-type": FORM[0][1], "host": authority, "x-amz-date": stamp}
    if keys.token:
        headers["x-amz-security-token"] = keys.token
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = "\n".join(("POST", "/", "", lines, names, hashlib.sha256(body).hexdigest()))
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = b"AWS4" + keys.secret.encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    said = f"AWS4-HMAC-SHA256 Credential={keys.key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    sent = tuple((name, value) for name, value in headers.items() if name != "host")
    return (*sent, ("Authorization", said))


def _element(answer: Answer) -> ElementTree.Element:
    """Raises Unread, with a code that we know."""
    try:
        # Neither service declares anything in its answers; an entity can be made to grow without an end.
        if b"<!DOCTYPE" in answer.body:
            raise Unread(NO_USE)
        found = ElementTree.fromstring(answer.body)
    except (ElementTree.ParseError, ValueError):
        raise Unread(NO_USE if answer.status == 200 else f"it answers {answer.status}") from None
    if answer.status != 200:
        code = known_text(found.findtext(".//{*}Code") or "", _CODES)
        raise Unread(f"it answers {answer.status} {code}".rstrip())
    return found


def _word(element: ElementTree.Element | None, path: str) -> str:
    if element is None:
        return ""
    return element.findtext("/".join(f"{{*}}{name}" for name in path.split("/"))) or ""


# --- EC2 ------------------------------------------------------------------------------------------


class Instance(NamedTuple):
    zone: str
    state: str
    reason: str


def parse_provider_id(provider_id: str) -> tuple[str, str] | None:
    """Zone and instance; None where it is not EC2's."""
    found = _PROVIDER_ID.fullmatch(provider_id)
    return (found["zone"], found["id"]) if found is not None else None


def judge(instance: Instance) -> tuple[Verdict, str]:
    """What its state says, and why it says nothing."""
    if instance.state == "stopped" and _HIBERNATES in instance.reason:
        return "unknown", HIBERNATED
    if instance.state in _VERDICTS:
        return _VERDICTS[instance.state], ""
    return "unknown", f"the instance is {instance.state}" if instance.state in _BETWEEN else STATE_UNKNOWN


class Ec2:
    """One region. ``endpoint``: in place of AWS' own; ``certificate``: a PEM file of authorities for it."""

    def __init__(
        self,
        region: str,
        credentials: Credentials,
        endpoint: str | None = None,
        certificate: str | None = None,
    ) -> None:
        """Opens nothing. Raises Unread."""
        self.region = region
        self._credentials = credentials
        self._service = _service(endpoint or f"https://ec2.{region}.{_domain(region)}", certificate)
        self._gathering = Gathering(self._describe, INSTANCES_MAX)

    async def find(self, instance_id: str) -> Instance | None:
        """None: it is not there. Raises Unread."""
        return (await self._gathering.about(instance_id)).get(instance_id)

    async def _describe(self, ids: list[str]) -> dict[str, Instance]:
        # By filter: by name, one instance that is not there any more would refuse them all.
        fields = {"Action": "DescribeInstances", "Version": EC2_VERSION, "Filter.1.Name": "instance-id"}
        fields |= {f"Filter.1.Value.{number}": each for number, each in enumerate(ids, 1)}
        body, keys = urlencode(fields).encode(), await self._credentials.current()
        headers = signed("ec2", self.region, keys, self._service.authority, body, datetime.now(UTC))
        found = _element(await self._service.request("POST", "/", headers, body))
        return {
            _word(each, "instanceId"): Instance(
                _word(each, "placement/availabilityZone"),
                _word(each, "instanceState/name"),
                _word(each, "stateReason/code"),
            )
            for each in found.iterfind("{*}reservationSet/{*}item/{*}instancesSet/{*}item")
        }


class Ec2Source:
    """A node's instance. ``name``: the region."""

    source: Source = "cloud"

    def __init__(self, ec2: Ec2) -> None:
        self._ec2 = ec2
        self.name = ec2.region

    async def read(self, machine: Machine) -> Said | None:
        """None for a Node that is no instance of EC2. Raises Unread."""
        named = parse_provider_id(machine.provider_id)
        if named is None:
            return None
        zone, instance_id = named
        instance = await self._ec2.find(instance_id)
        if instance is None:
            return Said("unknown", error=NO_SUCH)
        verdict, error = judge(instance)
        # As the Node has it where the answer is about that one, else as the answer says it.
        is_same = zone in ("", instance.zone)
        identity = machine.provider_id if is_same else f"aws:///{instance.zone}/{instance_id}"
        return Said(verdict, "providerID", identity, error=error)
