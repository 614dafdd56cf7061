"""Where a hook over HTTP goes for a pod in the node's network."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.beds.inside import PROJECT

pytestmark = pytest.mark.root

ASK = "from ebbtide.actors.edges.cri.orders import node_address; print(node_address())"
UP = "ip link set d0 up && ip link set d1 up && "
LINK = "ip link add d0 type veth peer name d1 && ip address add {address} dev d0 && " + UP
ROUTE = "ip {family} route add default dev d0 && "


@pytest.mark.parametrize(
    ("setup", "address"),
    [
        ("", "127.0.0.1"),
        (LINK.format(address="10.9.8.7/24"), "127.0.0.1"),
        (LINK.format(address="10.9.8.7/24") + ROUTE.format(family="-4"), "10.9.8.7"),
        (LINK.format(address="fd00::7/64 nodad") + ROUTE.format(family="-6"), "fd00::7"),
    ],
    ids=["none", "no-route", "four", "six"],
)
def test_the_address_of_the_default_route(setup: str, address: str) -> None:
    """The node's own, as the kubelet has it; a node without any way out has only the loopback."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("needs unshare and ip")
    script = f'ip link set lo up && {setup}exec "$0" -c "$1"'
    argv = ["unshare", "--net", "--", "sh", "-c", script, sys.executable, ASK]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=PROJECT, timeout=30)
    assert (done.stdout.strip(), done.stderr) == (address, "")
