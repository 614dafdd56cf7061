"""One signed S3 request that the shipping's client lacks: put a policy."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import time
from urllib.parse import urlsplit

REGION = "us-east-1"


def signed_put(
    endpoint: str, target: str, body: bytes, access: str, secret: str, more: dict[str, str] | None = None
) -> int:
    """The status (AWS Signature Version 4, header form)."""
    host = urlsplit(endpoint).netloc
    path, _, query = target.partition("?")
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now} | (more or {})
    headers = dict(sorted(headers.items()))
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = "\n".join(["PUT", path, query, lines, names, digest])
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for part in (now[:8], REGION, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"AWS4-HMAC-SHA256 Credential={access}/{scope}"
    headers["authorization"] = f"{credential}, SignedHeaders={names}, Signature={signature}"
    connection = http.client.HTTPConnection(host)
    try:
        connection.request("PUT", target, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()
