"""The client of the package `kubernetes`, without its 700 models.

``import kubernetes.aio.client`` imports every type that the API has, and ``import kubernetes`` all of it
twice: 47 MiB, for a daemon that decodes a dozen fields itself. What is needed is in two modules, the
settings and the connection (`RESTClientObject`, on aiohttp). Python imports a package's ``__init__`` before
any of its modules, so for the time of the import the packages' places are taken by empty modules that only
know the folder. All of it is taken off the list of modules afterwards: whoever imports `kubernetes` later
gets the real one, whole.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any, NamedTuple

PACKAGE = "kubernetes"
#: The packages whose ``__init__`` is left out. The first has to be found, the others lie below it.
PARENTS = (PACKAGE, f"{PACKAGE}.aio", f"{PACKAGE}.aio.client", f"{PACKAGE}.aio.utils")
CONNECTION = f"{PACKAGE}.aio.client.rest"
SETTINGS = f"{PACKAGE}.aio.client.configuration"

#: The stand-ins are the whole process's: one at a time.
_importing = Lock()


class Missing(Exception):
    """The package cannot be used; install the extra that the text names."""


class Client(NamedTuple):
    """The package's two classes, aiohttp for its exceptions and timeouts, and its type of a URL."""

    rest: Any
    configuration: Any
    aiohttp: Any
    url: Any


def load() -> Client:
    """Takes about 0.3 s: for a thread. Raises Missing."""
    try:
        with _importing, _without_parents():
            rest, settings = import_module(CONNECTION), import_module(SETTINGS)
            aiohttp, url = import_module("aiohttp"), import_module("yarl").URL
    except ImportError as error:
        text = f"the Kubernetes client cannot be loaded ({error}): pip install 'ebbtide[node]'"
        raise Missing(text) from None
    return Client(rest.RESTClientObject, settings.Configuration, aiohttp, url)


@contextmanager
def _without_parents() -> Iterator[None]:
    """A package that is loaded already is used as it is: somebody else has paid for it."""
    if PACKAGE in sys.modules:
        yield
        return
    folder = _folder()
    for name in PARENTS:
        stand_in = ModuleType(name)
        stand_in.__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = stand_in
    try:
        yield
    finally:
        for name in [each for each in sys.modules if each.split(".")[0] == PACKAGE]:
            del sys.modules[name]


def _folder() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"no package {PACKAGE}")
    return Path(spec.submodule_search_locations[0])
