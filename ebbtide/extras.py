"""Packages outside the base wheel, and the one line that names a missing one.

Every verb runs on the base wheel; an extra of ``pyproject.toml`` brings the rest. Find packages without
importing them: a starting daemon has no time for imports.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ebbtide import __version__

#: The top-level modules of each extra: a search below one would import it.
EXTRAS: dict[str, tuple[str, ...]] = {
    # For CRI over gRPC, and the API's client on Trio.
    "node": ("grpc", "google", "trio_asyncio", "kubernetes", "aiohttp"),
    "tables": ("pyarrow",),
    "fleet": ("obstore", "pyarrow"),
    "lake": ("obstore", "pyarrow", "deltalake"),
    "spark": ("obstore", "pyarrow", "pyspark"),
    # For tracing.protocol: grpc.
    "grpc": ("grpc",),
    "ship": ("obstore",),
}


class PackagesMissing(Exception):
    """One line with the install command."""


def missing_packages(extra: str) -> tuple[str, ...]:
    return tuple(name for name in EXTRAS[extra] if find_spec(name) is None)


def require(extra: str, what: str) -> None:
    """``what`` begins the line: "mode api", "export parquet". Raises PackagesMissing."""
    if missing := missing_packages(extra):
        raise PackagesMissing(f"{what} needs {', '.join(missing)}: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Of this checkout or wheel: on an index our name may be another project's."""
    checkout = Path(__file__).absolute().parents[1]
    if (checkout / "pyproject.toml").exists():
        return f"pip install '{checkout}[{extra}]'"
    wheel = f"ebbtide-{__version__}-py3-none-any.whl"
    return f"pip install '{wheel}[{extra}]'"


def extra_of(module: str) -> str:
    """Empty without one."""
    top = module.partition(".")[0]
    return next((extra for extra, names in EXTRAS.items() if top in names), "")
