"""EC2: the API reports the state of a node's instance, found by the Node's providerID.

Requests are signed here (AWS Signature Version 4): the vendor's library conflicts with the API server's
client.
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
from ebbtide.actors.edges.http_request import Answer, Service
from ebbtide.actors.edges.proof_sources.proof_source import Gathering, Machine, Said, Unread
from ebbtide.events.outage_events import Source, Verdict

#: An instance takes some 7 KiB of an answer of at most 512 KiB.
INSTANCES_MAX = 50
EC2_VERSION, STS_VERSION = "2016-11-15", "2011-06-15"
RENEW_SECONDS = 300
FILE_BYTES_MAX = 64 * 1024

#: ``aws:///eu-west-1a/i-0123456789abcdef0``; the zone may be missing.
_PROVIDER_ID = re.compile(r"aws://[^/]*/(?P<zone>[a-z0-9-]*)/(?P<id>i-[0-9a-f]{8,17})")

#: A hibernated instance is "stopped", and returns with all its processes under the same boot id: "on".
_VERDICTS: dict[str, Verdict] = {"stopped": "off", "terminated": "off", "running": "on", "pending": "on"}
_BETWEEN = ("stopping", "shutting-down")
#: An AWS error code. Other texts go on no record.
_CODE = re.compile("[A-Z][A-Za-z]{1,60}")
_HIBERNATES = "Hibernate"

#: Terminated long ago, of another account, or started a moment ago.
NO_SUCH = "there is no such instance in this region and account"
HIBERNATED = "the instance hibernates: it returns with all its processes"
STATE_UNKNOWN = "the instance is in an unknown state"
NO_USE = "its answer is unusable"


class Keys(NamedTuple):
    """``until`` None: no known end."""

    key_id: str
    secret: str
    token: str = ""
    until: datetime | None = None


class _PodKeys(msgspec.Struct, rename="pascal"):
    access_key_id: str
    secret_access_key: str
    token: str
    expiration: datetime


class Credentials:
    """The first that exists: the configured file; the environment's keys; the service account's role (IRSA);
    EKS' agent for pod identities. Never the instance's profile: it is the machine's.
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
        """Raises Unread and RequestFailed."""
        kept, soon = self._kept, datetime.now(UTC) + timedelta(seconds=RENEW_SECONDS)
        if kept is not None and kept.until is not None and soon < kept.until:
            return kept
        said = self.environment
        if self._file is not None:
            return self._read_file(self._file)
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

    def _read_file(self, path: Path) -> Keys:
        """The file may be renewed."""
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read_string(_text_of(path))
            section = parser[self._profile]
            return Keys(
                section["aws_access_key_id"],
                section["aws_secret_access_key"],
                section.get("aws_session_token", ""),
            )
        except (configparser.Error, KeyError):
            raise Unread(f"{path}: no credentials of the configured profile") from None

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


def _text_of(path: Path) -> str:
    try:
        return read_file(path, FILE_BYTES_MAX).decode()
    except OSError as error:
        raise Unread(f"{path}: {os.strerror(error.errno or 0)}") from None
    except ValueError:
        raise Unread(f"{path}: not a text file") from None


FORM = (("Content-Type", "application/x-www-form-urlencoded; charset=utf-8"),)


def _domain(region: str) -> str:
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"


def _service(url: str, certificate: str | None = None) -> Service:
    try:
        return Service(url, ca_file=Path(certificate) if certificate else None)
    except ValueError as error:
        raise Unread(str(error)) from None


def signed(
    service: str, region: str, keys: Keys, authority: str, body: bytes, now: datetime
) -> tuple[tuple[str, str], ...]:
    """The headers for a POST of a form to ``/``."""
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
    """Raises Unread, which quotes only an error's code."""
    try:
        # Entities in a document type could grow without an end. Decode first: bytes may have any encoding.
        text = answer.body.decode()
        if "<!DOCTYPE" in text:
            raise Unread(NO_USE)
        found = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError):
        raise Unread(NO_USE if answer.status == 200 else f"it answers {answer.status}") from None
    if answer.status != 200:
        code = _CODE.fullmatch(found.findtext(".//{*}Code") or "")
        raise Unread(f"it answers {answer.status} {code[0] if code else ''}".rstrip())
    return found


def _word(element: ElementTree.Element | None, path: str) -> str:
    if element is None:
        return ""
    return element.findtext("/".join(f"{{*}}{name}" for name in path.split("/"))) or ""


class Instance(NamedTuple):
    zone: str
    state: str
    reason: str


def parse_provider_id(provider_id: str) -> tuple[str, str] | None:
    """Zone and instance, or None."""
    found = _PROVIDER_ID.fullmatch(provider_id)
    return (found["zone"], found["id"]) if found is not None else None


def judge(instance: Instance) -> tuple[Verdict, str]:
    if instance.state == "stopped" and _HIBERNATES in instance.reason:
        return "on", HIBERNATED
    if instance.state in _VERDICTS:
        return _VERDICTS[instance.state], ""
    return "unknown", f"the instance is {instance.state}" if instance.state in _BETWEEN else STATE_UNKNOWN


class Ec2:
    """``certificate``: a PEM file of the endpoint's authorities."""

    def __init__(
        self,
        region: str,
        credentials: Credentials,
        endpoint: str | None = None,
        certificate: str | None = None,
    ) -> None:
        """Raises Unread."""
        self.region = region
        self._credentials = credentials
        self._service = _service(endpoint or f"https://ec2.{region}.{_domain(region)}", certificate)
        self._gathering = Gathering(self._describe, INSTANCES_MAX)

    async def find(self, instance_id: str) -> Instance | None:
        """None: there is no such instance. Raises Unread."""
        return (await self._gathering.about(instance_id)).get(instance_id)

    async def _describe(self, ids: list[str]) -> dict[str, Instance]:
        # A filter: one missing instance would fail a request by names.
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
    """``name``: the region."""

    source: Source = "cloud"

    def __init__(self, ec2: Ec2) -> None:
        self._ec2 = ec2
        self.name = ec2.region

    async def read(self, machine: Machine) -> Said | None:
        """None: not an instance of EC2. Raises Unread."""
        named = parse_provider_id(machine.provider_id)
        if named is None:
            return None
        zone, instance_id = named
        instance = await self._ec2.find(instance_id)
        if instance is None:
            return Said("unknown", error=NO_SUCH)
        verdict, error = judge(instance)
        # The Node's own spelling if the zone is right: the two have to compare equal.
        is_same = zone in ("", instance.zone)
        identity = machine.provider_id if is_same else f"aws:///{instance.zone}/{instance_id}"
        return Said(verdict, "providerID", identity, error=error)
