"""Pod manifests: ordinary Kubernetes Pod objects from files, folders, lists or standard input."""

from ebbtide.manifests.model import Manifest, ManifestError
from ebbtide.manifests.source import load, load_file, local_pods, parse

__all__ = ["Manifest", "ManifestError", "load", "load_file", "local_pods", "parse"]
