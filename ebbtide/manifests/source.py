"""Where manifests come from: files, folders and standard input; documents, lists and single pods."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from actors.edges.process.spec import ProcessSpec
from ebbtide.config.documents import Node, decode, parse_yaml
from ebbtide.config.jsontext import looks_like_json, parse_json
from ebbtide.config.readers import describe, sequence
from ebbtide.config.scalars import DocumentError, one_line
from ebbtide.manifests.expansion import Expander
from ebbtide.manifests.model import Fields, Manifest, ManifestError
from ebbtide.manifests.pods import Reading, read_pod
from events.model import Pod

#: A thousand pods as ``kubectl -o json`` prints them.
FILE_BYTES_MAX = 16 * 2**20
#: A folder may hold one file a pod, for more pods than a node can run.
FILES_MAX = 4096
PODS_MAX = 10_000

SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"
STDIN_NAME = "standard input"

_LISTS = ("List", "PodList")


def load(paths: Sequence[str | Path], *, allow_zero_sleep: bool = True) -> list[Manifest]:
    """All pods of these files, folders (not their subfolders), or ``-`` for standard input.

    A folder's files come in the order of their names. Raises ManifestError, also when a pod stands twice.
    """
    manifests: list[Manifest] = []
    for file in _files(paths):
        manifests += _read_and_parse(file, allow_zero_sleep)
        if len(manifests) > PODS_MAX:
            raise ManifestError(f"more than {PODS_MAX} pods: no node runs that many, name fewer files")
    _refuse_twins(manifests)
    return manifests


def load_file(path: str | Path, *, allow_zero_sleep: bool = True) -> list[Manifest]:
    """The pods of one file. Raises ManifestError."""
    return load([path], allow_zero_sleep=allow_zero_sleep)


def local_pods(path: str | Path, *, allow_zero_sleep: bool = True) -> list[tuple[Pod, ProcessSpec]]:
    """The pods of one file, ready to run as local processes.

    Raises ManifestError, also for a pod that only a cluster could run.
    """
    manifests = load_file(path, allow_zero_sleep=allow_zero_sleep)
    for manifest in manifests:
        for reason in manifest.obstacles:
            raise ManifestError(one_line(f"{manifest.source}: pod {manifest.pod.label}: {reason}"))
    return [(manifest.pod, manifest.spec) for manifest in manifests]


def parse(name: str, raw: bytes, *, allow_zero_sleep: bool = True) -> list[Manifest]:
    """The pods of one text; ``name`` stands in messages. Raises ManifestError."""
    try:
        documents = _documents(decode(raw, FILE_BYTES_MAX))
    except DocumentError as error:
        raise ManifestError(_located(name, 0, error)) from error
    manifests: list[Manifest] = []
    reading = Reading(allow_zero_sleep, Expander())
    for number, document in enumerate(documents, start=1):
        try:
            for node in _pods(document):
                source = f"{name}:{node.line}" if node.line else f"{name}, document {number}"
                manifests.append(read_pod(node, source, reading))
        except DocumentError as error:
            raise ManifestError(_located(name, number, error)) from error
    _refuse_twins(manifests)
    return manifests


def _documents(text: str) -> list[Node]:
    """JSON is tried first, because it is fast; what is not JSON may be YAML in its flow style."""
    if looks_like_json(text):
        try:
            return parse_json(text)
        except DocumentError:
            return parse_yaml(text)
    return parse_yaml(text)


def _pods(document: Node) -> Iterator[Node]:
    """The Pod objects of a document. Items of a PodList need no kind."""
    fields = Fields(document, "")
    kind, version = fields.get("kind"), fields.get("apiVersion")
    if version is not None and version.value != "v1":
        raise DocumentError(f"apiVersion is {describe(version)}: it must be v1", version.line)
    if kind is not None and kind.value in _LISTS:
        yield from _items(fields, kind)
    elif kind is not None and kind.value == "Pod":
        yield document
    else:
        raise _no_pod(kind, document.line)


def _items(fields: Fields, kind: Node) -> Iterator[Node]:
    items = fields.get("items")
    for index, each in enumerate(sequence(items, "items", PODS_MAX) if items else ()):
        item = Fields(each, f"items[{index}]")
        item_kind = item.get("kind")
        implied = "Pod" if kind.value == "PodList" else None
        if (implied if item_kind is None else item_kind.value) != "Pod":
            raise _no_pod(item_kind, each.line)
        yield each


def _no_pod(kind: Node | None, line: int) -> DocumentError:
    found = describe(kind) if kind is not None else "missing"
    return DocumentError(
        f"kind is {found}: only Pod, List and PodList are read (kubectl get pods -o yaml)", line
    )


def _refuse_twins(manifests: Sequence[Manifest]) -> None:
    seen: dict[str, Manifest] = {}
    for manifest in manifests:
        for key in (f"pod {manifest.pod.label}", f"UID {manifest.pod.uid}"):
            first = seen.setdefault(key, manifest)
            if first is not manifest:
                message = f"{manifest.source}: {key} stands twice, first at {first.source}: keep one"
                raise ManifestError(one_line(message))


def _files(paths: Sequence[str | Path]) -> list[str | Path]:
    files: list[str | Path] = []
    for path in paths:
        files += _in_folder(Path(path)) if str(path) != STDIN and Path(path).is_dir() else [path]
    return files


def _in_folder(folder: Path) -> list[Path]:
    """As the kubelet reads its folder of static pods: regular files, no hidden ones, no subfolders."""
    try:
        found = [path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES]
        files = [
            path for path in found if not path.name.startswith(".") and stat.S_ISREG(path.stat().st_mode)
        ]
    except OSError as error:
        raise _unreadable(folder, error) from error
    if len(files) > FILES_MAX:
        raise ManifestError(one_line(f"{folder}: more than {FILES_MAX} manifests: name a smaller folder"))
    return files


def _read_and_parse(path: str | Path, allow_zero_sleep: bool) -> list[Manifest]:
    if str(path) == STDIN:
        return parse(STDIN_NAME, _from_stdin(), allow_zero_sleep=allow_zero_sleep)
    try:
        with open(path, "rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return parse(str(path), raw, allow_zero_sleep=allow_zero_sleep)


def _from_stdin() -> bytes:
    if sys.stdin is None:
        raise ManifestError(f"{STDIN_NAME} is closed: pipe the pods into it, or name a file")
    try:
        return sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _unreadable(STDIN_NAME, error) from error


def _unreadable(path: str | Path, error: Exception) -> ManifestError:
    reason = getattr(error, "strerror", None) or str(error)
    return ManifestError(one_line(f"cannot read {path}: {reason}; name a readable file or folder"))


def _located(name: str, number: int, error: DocumentError) -> str:
    where = f":{error.line}" if error.line else f", document {number}" if number else ""
    return one_line(f"{name}{where}: {error.message}")
