"""Static pods whose manifests give no number for their priority, from the kubelet's folder of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

from ebbtide.doctor.seen import StaticPod
from ebbtide.manifests.source import FILE_BYTES_MAX, FILES_MAX

SUFFIXES = (".yaml", ".yml", ".json")


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = "default"


class _Spec(msgspec.Struct, rename="camel"):
    priority: int | None = None
    priority_class_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


def static_pods(folder: Path) -> tuple[StaticPod, ...]:
    """Those without ``spec.priority``, in the order of their files. What cannot be read is passed over: the
    kubelet's log says more of it than could be said here.
    """
    try:
        paths = [path for path in sorted(folder.iterdir())[:FILES_MAX] if path.suffix in SUFFIXES]
    except OSError:
        return ()
    found = [(path, pod) for path in paths if (pod := _read(path)) is not None]
    return tuple(
        StaticPod(f"{pod.metadata.namespace}/{pod.metadata.name}", str(path), pod.spec.priority_class_name)
        for path, pod in found
        if pod.spec.priority is None
    )


def _read(path: Path) -> _Pod | None:
    try:
        with open(path, "rb") as file:
            document = yaml.safe_load(file.read(FILE_BYTES_MAX))
        return msgspec.convert(document, _Pod)
    except (OSError, ValueError, RecursionError, yaml.YAMLError, msgspec.ValidationError):
        return None
