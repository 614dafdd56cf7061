"""The image, built by a real builder and inspected. Run as root, with mmdebstrap and buildah:

    pytest tests/deploy/built_image.py

The base is Debian's packages instead of the pinned image, so no registry is needed and the pinned base is
untested. Not in the test suite: it costs a minute of processor time and writes a gigabyte, which disturbs
timing tests (docs/testing.md).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ebbtide import __version__
from tests.beds.rootfs import Unavailable, rootfs

ROOT = Path(__file__).parents[2]
SUITE, PACKAGES = "trixie", ("ca-certificates", "python-is-python3", "python3-venv")
BASE, IMAGE = "localhost/base", "localhost/ebbtide"
#: A build takes 45 s of processor time, on a busy machine.
BUILD_SECONDS_MAX = 900
RUN_SECONDS_MAX = 60
#: Only downloads another architecture's wheels.
ARM_SECONDS_MAX = 300


class Builder:
    """Buildah with its own store: overlay if the kernel permits it, else copies."""

    def __init__(self, folder: Path) -> None:
        store = ("buildah", "--root", str(folder / "store"), "--runroot", str(folder / "run"))
        for driver in ("vfs", "overlay"):
            argv = (*store, "--storage-driver", driver)
            if not subprocess.run([*argv, "info"], capture_output=True, check=False).returncode:
                self._argv = argv
                shutil.rmtree(folder / "store")

    def __call__(self, *argv: str, seconds: float = RUN_SECONDS_MAX) -> str:
        done = subprocess.run(
            [*self._argv, *argv], capture_output=True, text=True, timeout=seconds, check=False, cwd=ROOT
        )
        assert done.returncode == 0, f"{argv}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    if os.geteuid() != 0 or shutil.which("buildah") is None:
        raise Unavailable("needs root and buildah")
    base = rootfs(SUITE, PACKAGES)
    folder = tmp_path_factory.mktemp("image")
    call = Builder(folder)
    (folder / "Containerfile").write_text("FROM scratch\nCOPY . /\n")
    build = ("build", "--isolation", "chroot", "--quiet")
    call(*build, "-f", str(folder / "Containerfile"), "-t", BASE, str(base), seconds=BUILD_SECONDS_MAX)
    # Perhaps only this machine trusts the index's authority.
    certificates = ("--volume", "/etc/ssl/certs:/etc/ssl/certs:ro")
    described = (*certificates, "--build-arg", f"BASE={BASE}", "-f", "deploy/Containerfile", "-t", IMAGE)
    call(*build, *described, ".", seconds=BUILD_SECONDS_MAX)
    yield call
    call("rm", "--all")
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def run(builder: Builder) -> Callable[..., str]:
    """A command in a container of the image."""
    container = builder("from", IMAGE).strip()
    return lambda *argv: builder("run", "--isolation", "chroot", container, "--", *argv)


def test_the_command_of_the_image_works(run: Callable[..., str], builder: Builder) -> None:
    """It is on the path, starts by default, and reads a configuration."""
    assert run("ebbtide", "--version") == f"ebbtide {__version__}\n"
    written = "kind: EbbtideConfiguration\napiVersion: ebbtide/v1alpha1\nshutdownGracePeriod: 30s\n"
    said = run("sh", "-c", f"printf '{written}' > /tmp/c.yaml && ebbtide config check --config /tmp/c.yaml")
    assert "valid" in said
    config = json.loads(builder("inspect", "--type", "image", IMAGE))["OCIv1"]["config"]
    assert (config["Entrypoint"], config["Cmd"]) == (["/opt/ebbtide/bin/ebbtide"], ["run", "--keep-lock"])
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_every_distribution_says_what_it_is(run: Callable[..., str]) -> None:
    """Metadata with Ebbtide's entry point; the bill of materials lists the same packages."""
    code = (
        "import importlib.metadata as m, json;"
        "print(json.dumps({d.name: [d.version, bool(d.read_text('RECORD'))] for d in m.distributions()}));"
        "print([e.value for e in m.entry_points(name='ebbtide')])"
    )
    found, entry = run("/opt/ebbtide/bin/python", "-I", "-c", code).splitlines()
    installed = {_normal(name): told for name, told in json.loads(found).items()}
    assert entry == "['ebbtide.cli:main']"
    assert all(recorded for _, recorded in installed.values())
    bill: dict[str, Any] = json.loads(run("cat", "/opt/ebbtide/share/ebbtide.cdx.json"))
    listed = {each["name"]: each["version"] for each in bill["components"]}
    of_all = {name: version for name, (version, _) in installed.items()}
    assert of_all == {**listed, "ebbtide": __version__}
    assert bill["metadata"]["component"]["version"] == __version__


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_what_only_built_it_is_not_in_it(run: Callable[..., str]) -> None:
    """No pip, wheel or source; the controller's tool and the licence are there."""
    assert run("sh", "-c", "ls -d /build /source /opt/ebbtide/bin/pip* 2>/dev/null || true") == ""
    assert run("ipmitool", "-V").startswith("ipmitool version")
    assert "Apache License" in run("cat", "/usr/share/licenses/ebbtide/LICENSE")


def test_the_other_architecture_has_every_wheel(tmp_path: Path) -> None:
    """Each locked package has a wheel with a known hash: no compiler runs."""
    platforms = [f"manylinux{tag}_aarch64" for tag in ("2014", "_2_17", "_2_28")]
    options = ["--python-version", "3.13", "--implementation", "cp", "--only-binary", ":all:"]
    for option, values in (("--platform", platforms), ("--abi", ["cp313", "abi3", "none"])):
        options += [word for value in values for word in (option, value)]
    argv = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--no-deps", "--ignore-installed"]
    argv += ["--target", str(tmp_path), *options, "--require-hashes", "-r", "requirements-node.lock"]
    done = subprocess.run(
        argv, cwd=ROOT, capture_output=True, text=True, timeout=ARM_SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr
