"""Emulate AWS over TLS, and run API calls for a test, in ec2.py's environment.

Reads JSON lines ``{"service": "ec2", "method": "run_instances", "arguments": {...}}`` and answers each. Other
clients need a valid signature and the right.
"""

from __future__ import annotations

import json
import math
import sys
import threading

import botocore.session
from moto import settings
from moto.core.responses import BaseResponse
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.sts.responses import TokenResponse
from werkzeug.serving import make_server

ADDRESS, FOLDER, REGION = sys.argv[1:]
server = make_server(
    ADDRESS,
    0,
    DomainDispatcherApplication(create_backend_app),
    threaded=True,
    ssl_context=(f"{FOLDER}/server.pem", f"{FOLDER}/server.pem"),
)


def let_in(self: BaseResponse, resource: str = "*") -> None:
    """A client that assumes a role by token has no keys yet and does not sign."""


TokenResponse._authenticate_and_authorize_normal_action = let_in
threading.Thread(target=server.serve_forever, daemon=True).start()
settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
print(json.dumps({"port": server.port}), flush=True)
clients = {}
for line in sys.stdin:
    said = json.loads(line)
    service = said["service"]
    if service not in clients:
        clients[service] = botocore.session.Session().create_client(
            service,
            region_name=REGION,
            endpoint_url=f"https://{ADDRESS}:{server.port}",
            verify=f"{FOLDER}/ca.pem",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
    settings.INITIAL_NO_AUTH_ACTION_COUNT = math.inf
    answer = getattr(clients[service], said["method"])(**said["arguments"])
    settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
    answer.pop("ResponseMetadata", None)
    print(json.dumps(answer, default=str), flush=True)
