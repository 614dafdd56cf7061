"""The doctor's look at the object store of the shipping: its answer, its clock, and our right to write.

Only a write shows the right to write: a probe of a few bytes below the node's own prefix, put twice under the
condition that its name is free. A reader's rights cannot be tried from here.
"""

from __future__ import annotations

import email.utils
import http.client
import os
import ssl
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from ebbtide.doctor.snapshot import StoreState
from ebbtide.events.catalog import DirectorySource, find_path
from ebbtide.otel.delivery.sending import Again, Refused, Rejected
from ebbtide.shipping.object_store import OTHER_CURE, ObjectStore, Present, Stored
from ebbtide.shipping.shipping_cursor import load_shipped
from ebbtide.shipping.shipping_destination import BadStore, Store, node_prefix

ANSWER_SECONDS_MAX = 5.0
PROBE_NAME, PROBE = "doctor-probe", b"ebbtide doctor\n"


def look_at_store(store: Store, journal: Path, node: str) -> StoreState:
    """``node``: the name for a new journal. Does not raise."""
    with suppress(OSError):
        if segments := find_path([DirectorySource(journal)]).segments:
            header = segments[-1].header
            node = header.identity.node if header is not None else node
    shipped = load_shipped(journal, store)
    unfit = sum(entry.outcome == "unfit" for entry in shipped.segments.values())
    found = StoreState(
        store.url, skew_s=_skew_s(store), present=shipped.present, unfit=unfit, lost=shipped.lost
    )
    try:
        client = ObjectStore(store, ANSWER_SECONDS_MAX)
    except BadStore as error:
        return found._replace(problem=str(error), cure="see shipping.url")
    key = f"{node_prefix(store.cluster, node)}/{PROBE_NAME}"
    first = client.put(key, PROBE)
    if isinstance(first, Again):
        return found._replace(problem=first.reason, cure="see that the store runs, and AWS_ENDPOINT_URL")
    if isinstance(first, (Refused, Rejected)):
        cure = first.cure if isinstance(first, Refused) else OTHER_CURE
        return found._replace(problem=first.reason, cure=cure)
    second = client.put(key, PROBE) if isinstance(first, Stored) else first
    return found._replace(conditional=isinstance(second, Present))


def _skew_s(store: Store) -> int | None:
    """Seconds that the store's clock is ahead of ours, by its Date header; None without an answer."""
    endpoint = _endpoint(store)
    if not endpoint:
        return None
    parts = urlsplit(endpoint)
    try:
        if parts.scheme == "https":
            context = ssl.create_default_context()
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.netloc, timeout=ANSWER_SECONDS_MAX, context=context
            )
        else:
            connection = http.client.HTTPConnection(parts.netloc, timeout=ANSWER_SECONDS_MAX)
        try:
            # Unsigned: any answer has the date, a refusal too.
            connection.request("HEAD", "/")
            date = connection.getresponse().headers.get("Date", "")
        finally:
            connection.close()
        return round(email.utils.parsedate_to_datetime(date).timestamp() - time.time())
    except (OSError, ValueError, TypeError, http.client.HTTPException):
        return None


def _endpoint(store: Store) -> str:
    scheme = urlsplit(store.url).scheme
    if scheme == "s3":
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        return os.environ.get("AWS_ENDPOINT_URL") or f"https://s3.{region}.amazonaws.com"
    return "https://storage.googleapis.com" if scheme == "gs" else ""
