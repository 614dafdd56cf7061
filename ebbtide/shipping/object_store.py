"""Puts bytes under a name that is not taken yet, once, by `obstore`. Only the text of its errors has the
status code.
"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ebbtide.otel.delivery.sending import Again, Refused, Rejected
from ebbtide.shipping.shipping_destination import BadStore, Store

#: The largest segment, of 64 MiB, needs half a mebibyte a second.
PUT_SECONDS_MAX = 120.0
CONNECT_SECONDS_MAX = 5.0
REASON_CHARACTERS_MAX = 300

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z]{1,64})</Code>")


class Stored(NamedTuple):
    """Taken. A store that can has verified the checksum (S3: SHA-256)."""


class Present(NamedTuple):
    """The name is taken. The content was not verified."""


Answer = Stored | Present | Again | Rejected | Refused

PRESENT, CONFLICT = 412, 409
RETRYABLE = (408, CONFLICT, 425, 429)
RIGHTS_CURE = (
    "allow s3:PutObject on the node's own prefix (docs/fleet.md, Shipping), or give other credentials"
)
CURES = {
    "RequestTimeTooSkewed": "set this machine's clock",
    "NoSuchBucket": "make the bucket, or name another in shipping.url",
    "InvalidAccessKeyId": "give credentials that the store knows",
    "ExpiredToken": "give credentials that are renewed (a role), or new ones",
    "SignatureDoesNotMatch": "give the secret that belongs to the key",
    301: "name the bucket's own region (AWS_REGION)",
    307: "name the bucket's own region (AWS_REGION)",
    401: "give credentials: the environment, a role, or a file that the environment names",
    403: RIGHTS_CURE,
    404: "make the bucket, or name another in shipping.url",
}
#: The fault is in this object, or in its transport: other segments may be taken.
ALONE = ("EntityTooLarge", "KeyTooLongError", "BadDigest", 413, 414)
OTHER_CURE = "see the store's log, and shipping.url"


def answer_of_error(text: str, *, exists: bool) -> Answer:
    """``text``: a client's error. ``exists``: the client took it for "already there"."""
    status = int(found[1]) if (found := _STATUS.search(text)) else 0
    code = found[1] if (found := _CODE.search(text)) else ""
    reason = _reason(text, status, code)
    if not status:
        # A folder has no status codes. A server that gave none may have taken it or not.
        return Present() if exists else Again(reason)
    if status == PRESENT or (status == CONFLICT and "BlobAlreadyExists" in text):
        return Present()
    if status in RETRYABLE or status >= 500:
        return Again(reason)
    cure = CURES.get(code) or CURES.get(status) or OTHER_CURE
    if code in ALONE or status in ALONE:
        return Rejected(f"{reason}: {cure}")
    return Refused(reason, cure)


def _reason(text: str, status: int, code: str) -> str:
    if status:
        return f"HTTP {status}{': ' if code else ''}{code}"
    if "ETag" in text:
        return "the answer is not an object store's: is this the right endpoint?"
    line = " ".join(text.partition("Debug source")[0].split())
    # The system's reason is last; the URL before it is ours.
    line = re.sub(r"Error performing PUT \S+ in \S+ - ", "", line)
    return "".join(each if each.isprintable() else "\ufffd" for each in line)[:REASON_CHARACTERS_MAX]


class ObjectStore:
    """Raises BadStore: the client is not installed, or does not take the URL. For any thread."""

    def __init__(self, store: Store, put_seconds: float = PUT_SECONDS_MAX) -> None:
        try:
            import obstore
            from obstore import exceptions
            from obstore.store import from_url
        except ImportError as error:
            from ebbtide.extras import install_command

            raise BadStore(f"shipping needs the package obstore: {install_command('ship')}") from error
        scheme = urlsplit(store.url).scheme
        given: dict[str, Any] = {}
        if scheme == "s3":
            given["config"] = {"checksum_algorithm": "SHA256", "conditional_put": "etag"}
        if scheme == "file":
            given["mkdir"] = True
        else:
            given["client_options"] = {
                "timeout": timedelta(seconds=put_seconds),
                "connect_timeout": timedelta(seconds=min(CONNECT_SECONDS_MAX, put_seconds)),
                "user_agent": "ebbtide-ship/1",
                # Given options hide the environment's.
                "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true",
            }
            given["retry_config"] = {"max_retries": 0, "retry_timeout": timedelta(seconds=put_seconds)}
        try:
            self._store: Any = from_url(store.url, **given)
        except Exception as error:
            raise BadStore(_reason(str(error), 0, "")) from error
        self._put, self._exists = obstore.put, exceptions.AlreadyExistsError

    def put(self, key: str, data: bytes) -> Answer:
        """One request; blocks until the answer or the deadline. Raises nothing."""
        try:
            # One request of any size: no part of it can be left behind.
            self._put(self._store, key, data, mode="create", use_multipart=False)
        except Exception as error:
            return answer_of_error(str(error), exists=isinstance(error, self._exists))
        return Stored()
