"""The installed package: one, complete, beside packages named like our folders."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path
from shutil import copytree

import pytest

ROOT = Path(__file__).parent.parent
#: Links out of the package in a checkout; builders treat them differently.
LINKED = ("actors", "events", "otel", "replay")
#: Spark finds a data source by a top-level module.
SPARKS_NAME = "pyspark_ebbtide.py"
#: Without site-packages' start-up: an editable install would add the checkout.
ISOLATED = (sys.executable, "-I", "-S", "-c")


def build(kind: str, source: Path, into: Path) -> Path:
    argv = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(into)]
    subprocess.run(argv, cwd=source, check=True, capture_output=True)
    (made,) = (path for path in into.iterdir() if path.suffix == {"sdist": ".gz", "wheel": ".whl"}[kind])
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the sdist, as a user would build it."""
    into = tmp_path_factory.mktemp("dist")
    (into / "unpacked").mkdir()
    subprocess.run(["tar", "-xzf", build("sdist", ROOT, into), "-C", into / "unpacked"], check=True)
    (source,) = (into / "unpacked").iterdir()
    return build("wheel", source, into)


def test_nothing_but_the_package_is_installed(wheel: Path) -> None:
    """Only Spark's module beside it; every module and data file is there."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    assert {name.partition("/")[0] for name in names} == {"ebbtide", SPARKS_NAME}
    tracked = subprocess.check_output(
        ["git", "ls-files", *LINKED, "ebbtide", SPARKS_NAME], cwd=ROOT, text=True
    ).split("\n")
    expected = {
        name if name.startswith(("ebbtide/", SPARKS_NAME)) else f"ebbtide/{name}"
        for name in tracked
        if name and not (ROOT / name).is_symlink() and (ROOT / name).exists()
    }
    assert sorted(names) == sorted(expected)
    assert "ebbtide/py.typed" in expected
    # An index page has no other files: each link leads to the site.
    urls = dict(url.split(", ") for url in metadata.get_all("Project-URL", []))
    targets = re.findall(r"\]\(([^)\s]+)\)", str(metadata.get_payload()))
    assert len(targets) > 30
    assert [target for target in targets if not target.startswith(urls["Documentation"])] == []


def test_it_lives_beside_a_package_with_the_name_of_a_folder(wheel: Path, tmp_path: Path) -> None:
    """``Events`` installs a top-level ``events``: both import."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    (theirs,) = {
        Path(str(file.locate())).parent
        for file in distribution("Events").files or ()
        if file.name == "events.py"
    }
    copytree(theirs, tmp_path / theirs.name)
    dependencies = [str(Path(str(distribution(name).locate_file("")))) for name in ("msgspec",)]
    code = (
        f"import sys; sys.path[:0] = {[str(tmp_path)]!r}; sys.path += {dependencies!r};"
        "from events import Events; import events, ebbtide.events.facts, ebbtide.replay;"
        "print(events.__file__, ebbtide.events.__file__, sep='\\n')"
    )
    done = subprocess.run([*ISOLATED, code], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        str(tmp_path / "events" / "__init__.py"),
        str(tmp_path / "ebbtide" / "events" / "__init__.py"),
    ]


#: Harmless arguments for each verb of the README's shell blocks: ``{d}`` has a configuration, a Pod manifest
#: and a simulated journal. Exit codes: without daemon, bus and node some checks fail.
HARMLESS: dict[str, tuple[str, set[int]]] = {
    "demo": ("demo --help", {0}),
    "simulate": ("simulate --pods {d}/pod.yaml --config {d}/config.yaml --journal {d}/journal", {0}),
    "config check": ("config check --config {d}/config.yaml", {0}),
    "run": ("run --journal {d}/none --runtime {d}/run", {2}),
    "doctor": ("doctor --measure --runtime {d}/run --journal {d}/journal", {0, 1}),
    "plan": ("plan --pods {d}/pod.yaml --config {d}/config.yaml --runtime {d}/run", {0}),
    "status": ("status --runtime {d}/run --journal {d}/journal", {1}),
    "outage": ("outage run --kubeconfig {d}/none", {2}),
    "journal ls": ("journal ls --journal {d}/journal", {0}),
    "journal pack": ("journal pack --redact --journal {d}/journal -o {d}/ticket.zip", {0}),
    "replay verify": ("replay verify --journal {d}/journal", {0}),
    "replay timeline": ("replay timeline --journal {d}/journal", {0}),
    "replay blame": ("replay blame --journal {d}/journal", {0}),
    "replay critical-chain": ("replay critical-chain --journal {d}/journal", {0}),
    "replay what-if": ("replay what-if --journal {d}/journal --config {d}/config.yaml", {0}),
    "replay advise": ("replay advise --journal {d}/journal", {0, 1}),
    "replay report": ("replay report --journal {d}/journal -o {d}/report.html", {0}),
    "fleet what-if": ("fleet what-if --journals {d} --config {d}/config.yaml", {2}),
}
#: Verbs that need an extra here: `ebbtide run` is mode auto.
NEEDS_EXTRA = {"run": "node", "outage": "node", "fleet what-if": "fleet"}


def readme_verbs() -> list[str]:
    """Each ``verb`` or ``group verb`` in a shell block or the text."""
    from ebbtide.cli.app import SECTIONS

    commands = {name for section in SECTIONS.values() for name in section}

    text = (ROOT / "README.md").read_text()
    found = []
    for words in re.findall(r"(?:^|[`/ ])ebbtide ([a-z-]+(?: [a-z-]+)?)", text, re.MULTILINE):
        verb, _, below = words.partition(" ")
        if verb in commands:
            groups = ("config", "journal", "replay", "export", "fleet")
            found.append(f"{verb} {below}" if verb in groups else verb)
    return list(dict.fromkeys(found))


@pytest.mark.proof
def test_every_verb_of_the_readme_runs_on_the_base_wheel(wheel: Path, tmp_path: Path) -> None:
    """With only `requirements.lock`: no traceback; a missing extra is one line."""
    environment, folder = tmp_path / "venv", tmp_path / "d"
    # With this environment's pip, which saves a third of the time.
    make = (sys.executable, "-m", "venv", "--without-pip", str(environment))
    subprocess.run(make, check=True)
    python = str(environment / "bin" / "python")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q", "--disable-pip-version-check")
    locked = ("--require-hashes", "-r", str(ROOT / "requirements.lock"))
    for arguments in (locked, ("--no-deps", str(wheel))):
        subprocess.run([*pip, *arguments], check=True, capture_output=True)
    folder.mkdir()
    (folder / "config.yaml").write_text(
        "apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\nshutdownGracePeriod: 30s\n"
    )
    (folder / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: x}]}\n"
    )
    # Create the journal before its readers run.
    verbs = sorted(readme_verbs(), key=lambda verb: verb != "simulate")
    assert set(verbs) == set(HARMLESS)
    for verb in verbs:
        words, codes = HARMLESS[verb]
        ran = subprocess.run(
            [str(environment / "bin" / "ebbtide"), *words.format(d=folder).split()],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nonexistent/bus"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode in codes, (verb, ran)
        assert not re.search(r"Traceback|unexpected|ModuleNotFound", ran.stderr), (verb, ran)
        if verb in NEEDS_EXTRA:
            assert ran.stderr.count("\n") == 1
            assert f"[{NEEDS_EXTRA[verb]}]'" in ran.stderr
    plugin = [str(environment / "bin" / "kubectl-ebbtide"), "status", "node-1"]
    words = f"--kubeconfig={folder}/config.yaml"
    ran = subprocess.run([*plugin, words], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert (ran.stderr.count("\n"), "[node]'" in ran.stderr) == (1, True)
