"""What is not in the base wheel, and the one line that says so.

Every verb runs on the base wheel. What a verb can do only with more stands in an extra of ``pyproject.toml``,
and whoever needs it says so by `require`: one exception and one sentence, which names what is missing and the
extra that brings it. Packages are looked for and not imported: importing them is for when they are used, and
a daemon that starts has no time for it.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

#: The packages of each extra, by the names of modules at the top: to look below one is to import it.
EXTRAS: dict[str, tuple[str, ...]] = {
    # The runtime's CRI over gRPC, and the API's client on Trio.
    "node": ("grpc", "google", "trio_asyncio", "kubernetes", "aiohttp"),
    # For export parquet.
    "tables": ("pyarrow",),
    # For journals of many nodes, wherever they lie.
    "fleet": ("obstore", "pyarrow"),
    # For tables that grow, as Delta Lake has them.
    "lake": ("obstore", "pyarrow", "deltalake"),
    # For journals of many nodes on Apache Spark.
    "spark": ("obstore", "pyarrow", "pyspark"),
    # For tracing.protocol: grpc.
    "grpc": ("grpc",),
    # For shipping: a client of object stores.
    "ship": ("obstore",),
}


class PackagesMissing(Exception):
    """What was asked for needs an extra that is not installed; the text is one line with the command."""


def missing_packages(extra: str) -> tuple[str, ...]:
    """Those of an extra that are not installed, in the order of the table."""
    return tuple(name for name in EXTRAS[extra] if find_spec(name) is None)


def require(extra: str, what: str) -> None:
    """``what`` begins the line: "mode api", "export parquet". Raises PackagesMissing."""
    if missing := missing_packages(extra):
        raise PackagesMissing(f"{what} needs {', '.join(missing)}: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Of the wheel or the checkout that this is: on an index our name is whoever's has taken it."""
    return f"pip install '{_installed_from()}[{extra}]'"


def _installed_from() -> str:
    # Late: most that load this say nothing, an idle daemon above all.
    import json
    from importlib import metadata
    from urllib.parse import unquote, urlsplit

    checkout = Path(__file__).absolute().parents[1]
    if (checkout / "pyproject.toml").exists():
        return str(checkout)
    # What pip was given (PEP 610); nothing where it came from an index.
    version = "VERSION"
    with suppress(metadata.PackageNotFoundError, ValueError, AttributeError):
        found = metadata.distribution("ebbtide")
        version = found.version
        address = urlsplit(json.loads(found.read_text("direct_url.json") or "{}").get("url", ""))
        path = Path(unquote(address.path))
        if address.scheme == "file" and path.exists():
            return str(path)
    return f"ebbtide-{version}-py3-none-any.whl"


def extra_of(module: str) -> str:
    """The extra that brings a module; empty where none does."""
    top = module.partition(".")[0]
    return next((extra for extra, names in EXTRAS.items() if top in names), "")
