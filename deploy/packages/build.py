"""Makes the packages of the distributions from this checkout: a .deb and an .rpm, by nFPM.

python deploy/packages/build.py --into dist [--nfpm PATH] [--arch amd64|arm64] [--release 1]

In the environment of requirements-dev.lock. Of one commit, made twice, they are the same files. What is in
them and why is in docs/packages.md.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LOCK = ROOT / "requirements-node.lock"
#: The lock is made for the first; later ones need the same packages or fewer.
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PYTHON_AFTER_LAST = "3.15"
#: The newest C library that a compiled module may need, with the older names.
GLIBC = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_17", "manylinux2014")
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
FORMATS = ("deb", "rpm")
SECONDS_MAX = 600

HOME = "usr/lib/ebbtide"
SITE = f"{HOME}/lib/python3/site-packages"
#: Ebbtide uses only configuration and transport of the API server's client (docs/dependencies.md). Its types
#: and methods, twice, are half of all files.
LEFT_OUT = tuple(
    f"kubernetes/{client}/{part}" for client in ("client", "aio/client") for part in ("api", "models")
)
#: It ignores the caller's environment and users' site-packages, and writes no compiled file.
LAUNCHER = f"""#!/{HOME}/bin/python3 -IB
import sys

from ebbtide.cli import {{entry}}

sys.exit({{entry}}())
"""
#: As pyproject.toml has them.
PROGRAMS = {"ebbtide": "main", "kubectl-ebbtide": "kubectl"}
PRESET = """\
# Installing a package starts no unit. To enable it, put an "enable" into a file that sorts before this one.
disable ebbtide.service
"""
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Comment: The texts of the libraries' licences are in their *.dist-info folders.

Files: *
Copyright: the authors of Ebbtide
License: Apache-2.0
 The text is in /usr/share/common-licenses/Apache-2.0 (Debian) and /usr/share/licenses/ebbtide (others).
"""
MAINTAINER = "The authors of Ebbtide <packages@ebbtide.invalid>"


def lay_out(into: Path, arch: str = "amd64") -> None:
    """Everything that the packages hold, in ``into``/root, as `nfpm.yaml` names it."""
    root = into / "root"
    _environment(root, arch)
    _project(root / SITE)
    for name in ("bin", *LEFT_OUT):
        shutil.rmtree(root / SITE / name)
    for source, place in (
        ("deploy/systemd/ebbtide.service", "usr/lib/systemd/system/ebbtide.service"),
        ("deploy/systemd/node.conf", "usr/lib/systemd/system/ebbtide.service.d/node.conf"),
        ("deploy/systemd/process.conf", "usr/share/ebbtide/process.conf"),
    ):
        write(root / place, _as_packaged((ROOT / source).read_text()))
    write(root / "usr/lib/systemd/system-preset/80-ebbtide.preset", PRESET)
    for program, entry in PROGRAMS.items():
        write(root / "usr/bin" / program, LAUNCHER.format(entry=entry))
    write(root / HOME / "settle", (HERE / "scripts/settle.sh").read_text())
    write(root / "etc/ebbtide/config.yaml", (HERE / "config.yaml").read_text())
    write(root / "lintian-overrides", (HERE / "lintian-overrides").read_text())
    for shell in ("bash", "zsh", "fish"):
        write(root / "completions" / shell, _run(sys.executable, "-c", _COMPLETION, shell))
    _documents(root)
    for path in root.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.name == "settle" else 0o644)


_COMPLETION = """
import sys
from click.shell_completion import get_completion_class
from ebbtide.cli.app import cli
print(get_completion_class(sys.argv[1])(cli, {}, "ebbtide", "_EBBTIDE_COMPLETE").source())
"""


def _environment(root: Path, arch: str) -> None:
    """A virtual environment of the distribution's Python, whichever of `PYTHONS` that is: one folder of
    libraries, in which the compiled modules of each lie beside each other by their names.
    """
    home, site = root / HOME, root / SITE
    site.mkdir(parents=True)
    write(home / "pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n")
    (home / "bin").mkdir()
    (home / "bin/python3").symlink_to("/usr/bin/python3")
    for python in PYTHONS:
        (home / "lib" / f"python{python}").symlink_to("python3")
    _install(site, LOCK, PYTHONS[0], arch)
    with TemporaryDirectory() as folder:
        compiled = Path(folder, "compiled.lock")
        compiled.write_text("".join(_entries(_compiled(site))))
        for python in PYTHONS[1:]:
            _install(Path(folder, python), compiled, python, arch)
            _merge(Path(folder, python), site)


def _install(site: Path, lock: Path, python: str, arch: str) -> None:
    """Wheels alone, by their hashes, whatever machine this is."""
    platforms = [word for libc in GLIBC for word in ("--platform", f"{libc}_{ARCHITECTURES[arch]}")]
    what = ("--require-hashes", "--only-binary=:all:", "--no-deps", "--no-compile", "-r", str(lock))
    _pip("install", *what, *platforms, "--python-version", python, "--target", str(site))


def _compiled(site: Path) -> set[str]:
    """What has a wheel of its own for each Python."""
    return {
        normal(found.metadata["Name"])
        for found in distributions(path=[str(site)])
        if re.search(r"^Tag: cp\d+-cp", found.read_text("WHEEL") or "", re.MULTILINE)
    }


def _entries(names: set[str]) -> Iterator[str]:
    """Of the lock."""
    for entry in re.split(r"^(?=[^\s#])", LOCK.read_text(), flags=re.MULTILINE):
        if normal(entry.partition("==")[0]) in names:
            yield entry


def _merge(source: Path, site: Path) -> None:
    """Add the compiled modules. Raises ValueError: a file that two Pythons would share is not the same."""
    for path in sorted(source.rglob("*")):
        place = site / path.relative_to(source)
        if path.is_dir() or any(part.endswith(".dist-info") for part in path.parts):
            continue
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
        elif place.read_bytes() != path.read_bytes():
            raise ValueError(f"{place.relative_to(site)} is not the same for each Python")


def _project(site: Path) -> None:
    """The wheel of this checkout, unpacked: pip would note where it came from."""
    with TemporaryDirectory() as folder:
        _pip("wheel", "--no-deps", "--no-build-isolation", "-w", folder, str(ROOT))
        (wheel,) = Path(folder).iterdir()
        shutil.unpack_archive(wheel, site, "zip")


def _as_packaged(unit: str) -> str:
    """The shipped file without how to install it by hand, for the command's place in a package."""
    kept = unit[unit.index("[") :] if unit.startswith("# Ebbtide on a host") else unit
    return kept.replace("/usr/local/bin/ebbtide", "/usr/bin/ebbtide")


def _documents(root: Path) -> None:
    manual, documents = root / "usr/share/man", root / "usr/share/doc/ebbtide"
    dated = {"SOURCE_DATE_EPOCH": str(epoch())}
    _run(sys.executable, str(ROOT / "docs/tools/write_man.py"), str(manual), environ=dated)
    for page in manual.glob("*/*"):
        _pack(page, page.read_text())
        page.unlink()
    _pack(documents / "changelog", (ROOT / "CHANGELOG.md").read_text())
    version, day = project_version(), time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(epoch()))
    entry = (
        f"ebbtide ({version}) stable; urgency=medium\n\n  * See changelog.gz.\n\n -- {MAINTAINER}  {day}\n"
    )
    _pack(documents / "changelog.Debian", entry)
    write(documents / "copyright", COPYRIGHT + "".join(_licences(root / SITE)))
    write(root / "LICENSE", (ROOT / "LICENSE").read_text())
    write(documents / "ebbtide.cdx.json", _run(sys.executable, str(ROOT / "deploy/sbom.py"), str(LOCK)))


def _licences(site: Path) -> Iterator[str]:
    for found in sorted(distributions(path=[str(site)]), key=lambda each: normal(each.metadata["Name"])):
        if (name := found.metadata["Name"]) != "ebbtide":
            yield f"\nFiles: /{SITE}/{normal(name)}\nCopyright: its authors\nLicense: {_licence(found)}\n"


def _licence(found: Distribution) -> str:
    """In the words of its own metadata, in one line."""
    said = found.metadata
    classified = [
        each.rpartition(" :: ")[2] for each in said.get_all("Classifier", []) if each.startswith("License ::")
    ]
    return said.get("License-Expression") or ", ".join(classified) or said["License"].splitlines()[0]


# --- packing -----------------------------------------------------------------------------------


def pack(laid_out: Path, into: Path, form: str, **said: str) -> Path:
    """One package of what `lay_out` has made. ``said``: nfpm (its path), arch, version, release."""
    values = {
        "PACKAGE_ARCH": said.get("arch", "amd64"),
        "PACKAGE_VERSION": ordered(said.get("version", project_version())),
        "PACKAGE_RELEASE": said.get("release", "1"),
        "PACKAGE_MAINTAINER": said.get("maintainer", MAINTAINER),
        "PYTHON_FIRST": PYTHONS[0],
        "PYTHON_AFTER_LAST": PYTHON_AFTER_LAST,
        "SOURCE_DATE_EPOCH": str(epoch()),
    }
    # nFPM does not expand these, and reads paths relative to its working directory.
    text = (HERE / "nfpm.yaml").read_text()
    for name, value in values.items():
        text = text.replace(f"${{{name}}}", value)
    (laid_out / "nfpm.yaml").write_text(text)
    shutil.copytree(HERE / "scripts", laid_out / "scripts", dirs_exist_ok=True)
    into.mkdir(parents=True, exist_ok=True)
    before = set(into.iterdir())
    argv = (said.get("nfpm", "nfpm"), "package", "-f", "nfpm.yaml", "-p", form, "-t", f"{into.resolve()}/")
    _run(*argv, folder=laid_out, environ={"SOURCE_DATE_EPOCH": values["SOURCE_DATE_EPOCH"]})
    (made,) = set(into.iterdir()) - before
    return made


def ordered(version: str) -> str:
    """Python's version as dpkg and rpm order it: what comes before a release has a tilde."""
    return re.sub(r"\.?(a|b|rc|dev)(\d+)", r"~\1\2", version)


def project_version() -> str:
    found = re.search(r'__version__ = "(.+)"', (ROOT / "ebbtide/__init__.py").read_text())
    assert found is not None
    return found[1]


def epoch() -> int:
    """Of the files in the packages: SOURCE_DATE_EPOCH, or the commit's."""
    said = os.environ.get("SOURCE_DATE_EPOCH") or _run("git", "log", "-1", "--format=%ct", folder=ROOT)
    return int(said)


# --- small ones --------------------------------------------------------------------------------


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _pack(path: Path, text: str) -> None:
    """Beside it, as .gz, without a time and a name in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def _pip(*words: str) -> None:
    _run(sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *words)


def _run(*argv: str, folder: Path = ROOT, environ: dict[str, str] | None = None) -> str:
    """Its output. Raises RuntimeError with what it says."""
    variables = os.environ | {"PYTHONPATH": str(ROOT)} | (environ or {})
    done = subprocess.run(
        argv, cwd=folder, env=variables, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main(words: Iterable[str]) -> None:
    parser = argparse.ArgumentParser(description="Make the .deb and the .rpm.")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--nfpm", default="nfpm")
    parser.add_argument("--arch", choices=ARCHITECTURES, default="amd64")
    parser.add_argument("--format", choices=FORMATS, action="append", dest="formats")
    parser.add_argument("--release", default="1")
    parser.add_argument("--maintainer", default=MAINTAINER)
    said = vars(parser.parse_args(list(words)))
    into, formats = said.pop("into"), said.pop("formats") or FORMATS
    with TemporaryDirectory() as folder:
        lay_out(Path(folder), said["arch"])
        for form in formats:
            print(pack(Path(folder), into, form, **said))


if __name__ == "__main__":
    main(sys.argv[1:])
