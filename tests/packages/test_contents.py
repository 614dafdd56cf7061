"""The packages' content, and their formats' own tools."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from deploy.packages import build
from ebbtide.cli.app import SECTIONS
from tests.packages.conftest import FIRST, GONE, Packages
from tests.packages.programs import nfpm

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]
EVERYWHERE = {
    "/etc/ebbtide/config.yaml",
    *(f"/usr/bin/{program}" for program in build.PROGRAMS),
    "/usr/lib/ebbtide/bin/python3",
    "/usr/lib/ebbtide/pyvenv.cfg",
    "/usr/lib/ebbtide/settle",
    "/usr/lib/systemd/system-preset/80-ebbtide.preset",
    "/usr/lib/systemd/system/ebbtide.service",
    "/usr/lib/systemd/system/ebbtide.service.d/node.conf",
    "/usr/share/bash-completion/completions/ebbtide",
    "/usr/share/doc/ebbtide/changelog.Debian.gz",
    "/usr/share/doc/ebbtide/changelog.gz",
    "/usr/share/doc/ebbtide/copyright",
    "/usr/share/doc/ebbtide/ebbtide.cdx.json",
    "/usr/share/ebbtide/process.conf",
    "/usr/share/fish/vendor_completions.d/ebbtide.fish",
    *(f"/usr/lib/ebbtide/lib/python{python}" for python in build.PYTHONS),
    *(f"/usr/share/man/man5/ebbtide-{name}.5.gz" for name in ("configuration", "outage-configuration")),
}
OF_A_FORMAT = {
    "deb": {"/usr/share/zsh/vendor-completions/_ebbtide", "/usr/share/lintian/overrides/ebbtide"},
    "rpm": {"/usr/share/zsh/site-functions/_ebbtide", "/usr/share/licenses/ebbtide/LICENSE"},
}
SCRIPTS = {
    "deb": {"preinst", "postinst", "prerm", "postrm"},
    "rpm": {"preinstall", "postinstall", "preuninstall", "postuninstall", "posttrans"},
}


def said(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def modes(packages: Packages, form: str) -> dict[str, str]:
    if form == "deb":
        lines = said("dpkg-deb", "-c", str(packages.first[form])).splitlines()
        words = [line.split(maxsplit=5) for line in lines]
        return {
            path.partition(" -> ")[0].removeprefix(".").rstrip("/"): f"{mode} {owner}"
            for mode, owner, _, _, _, path in words
        }
    query = "[%{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILENAMES}\n]"
    lines = said("rpm", "-qp", "--queryformat", query, str(packages.first[form])).splitlines()
    return {path: f"{mode} {owner}" for mode, owner, path in (line.split(maxsplit=2) for line in lines)}


@pytest.mark.parametrize("form", build.FORMATS)
def test_the_list_of_files(packages: Packages, form: str) -> None:
    """Exactly these, a man page per command, and the libraries; only root owns them and may write."""
    found = modes(packages, form)
    files = {path for path, mode in found.items() if mode[0] != "d"}
    libraries = {path for path in files if path.startswith(f"/{build.SITE}/")}
    manual = {path for path in files if path.startswith("/usr/share/man/man1/")}
    assert files - libraries - manual == EVERYWHERE | OF_A_FORMAT[form]
    laid_out = {
        f"/{path.relative_to(packages.laid_out)}"
        for path in (packages.laid_out / build.SITE).rglob("*")
        if path.is_file()
    }
    assert libraries == laid_out
    named = {f"/usr/share/man/man1/ebbtide-{name}.1.gz" for section in SECTIONS.values() for name in section}
    assert named | {"/usr/share/man/man1/ebbtide.1.gz"} <= manual
    plain = {mode for mode in found.values() if mode[0] != "l"}
    assert plain == {"drwxr-xr-x root/root", "-rw-r--r-- root/root", "-rwxr-xr-x root/root"}
    programs = {path for path, mode in found.items() if mode.startswith("-rwx")}
    assert programs == {*(f"/usr/bin/{program}" for program in build.PROGRAMS), "/usr/lib/ebbtide/settle"}


def test_who_needs_what(packages: Packages) -> None:
    deb, rpm = str(packages.first["deb"]), str(packages.first["rpm"])
    needs = said("dpkg-deb", "-f", deb, "Depends").strip().split(", ")
    assert {"python3 (>= 3.11)", "python3 (<< 3.15)", "systemd"} <= set(needs)
    assert {"python3 >= 3.11", "python3 < 3.15", "systemd"} <= set(said("rpm", "-qpR", rpm).splitlines())
    assert said("dpkg-deb", "-f", deb, "Version").strip() == f"{FIRST}-1"
    assert said("rpm", "-qp", "--queryformat", "%{VERSION}-%{RELEASE}", rpm) == f"{FIRST}-1"
    assert said("dpkg-deb", "-I", deb, "conffiles") == "/etc/ebbtide/config.yaml\n"
    assert said("rpm", "-qpc", rpm) == "/etc/ebbtide/config.yaml\n"
    assert (
        set(re.findall(r"^(\w+) (?:scriptlet|program)", said("rpm", "-qp", "--scripts", rpm), re.MULTILINE))
        == (SCRIPTS["rpm"])
    )
    assert set(re.findall(r"\* +(\w+)", said("dpkg-deb", "-I", deb))) == SCRIPTS["deb"]
    assert "digests OK" in said("rpm", "-K", rpm)


def test_the_programs_are_those_of_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    called = {program: f"ebbtide.cli:{entry}" for program, entry in build.PROGRAMS.items()}
    assert called == project["scripts"]


def test_the_unit_is_the_shipped_one(packages: Packages) -> None:
    """Only the command's path differs; each named file is in the package."""
    units = packages.laid_out / "usr/lib/systemd/system"
    for path, source in (
        (units / "ebbtide.service", "ebbtide.service"),
        (units / "ebbtide.service.d/node.conf", "node.conf"),
    ):
        shipped = (ROOT / "deploy/systemd" / source).read_text()
        settings = [line for line in shipped.splitlines() if line and not line.startswith("#")]
        packaged = path.read_text()
        assert [line for line in packaged.splitlines() if line and not line.startswith("#")] == [
            line.replace("/usr/local/bin/", "/usr/bin/") for line in settings
        ]
        assert "/usr/local" not in packaged


def test_nothing_of_the_machine_that_made_them(packages: Packages) -> None:
    """No compiled file, no checkout path, every library's licence."""
    site = packages.laid_out / build.SITE
    assert not list(site.rglob("*.pyc"))
    assert not list(site.rglob("direct_url.json"))
    assert not [name for name in build.LEFT_OUT if (site / name).exists()]
    copyright_text = (packages.laid_out / "usr/share/doc/ebbtide/copyright").read_text()
    libraries = [path.name for path in site.glob("*.dist-info") if not path.name.startswith("ebbtide-")]
    assert copyright_text.count("\nLicense: ") == len(libraries) + 1
    news = gzip.decompress((packages.laid_out / "usr/share/doc/ebbtide/changelog.gz").read_bytes())
    assert news == (ROOT / "CHANGELOG.md").read_bytes()


def test_made_again_it_is_the_same_package(packages: Packages, tmp_path: Path) -> None:
    again = build.pack(packages.laid_out.parent, tmp_path, "deb", nfpm=str(nfpm()), version=FIRST)
    assert again.read_bytes() == packages.first["deb"].read_bytes()


def test_every_compiled_module_is_there_for_each_python(packages: Packages) -> None:
    site = packages.laid_out / build.SITE
    tags = {python.replace(".", "") for python in build.PYTHONS}
    by_module: dict[str, set[str]] = {}
    for path in site.rglob("*.cpython-*.so"):
        module, _, rest = path.name.partition(".cpython-")
        by_module.setdefault(f"{path.parent}/{module}", set()).add(rest.partition("-")[0])
    assert by_module
    assert {module: found for module, found in by_module.items() if found != tags} == {}
    assert (site / GONE).is_dir()


def test_debians_own_judgement(packages: Packages) -> None:
    """No lintian tag without an explained override, but for zstd: Debian's archive lacks it."""
    if shutil.which("lintian") is None:
        pytest.skip("needs lintian")
    said("lintian", "--allow-root", "--suppress-tags", "malformed-deb-archive", str(packages.first["deb"]))
