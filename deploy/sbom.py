#!/usr/bin/env python3
"""The bill of materials of an installation, CycloneDX 1.6, from its lock file; needs Python alone.

python deploy/sbom.py requirements-node.lock > ebbtide.cdx.json    # what the image and a node have
python deploy/sbom.py requirements.lock                            # without the extra node

Made twice it is the same bytes. Who needs whom is in the comments that pip-compile leaves in the lock.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1] / "ebbtide/__init__.py"
NAME = "ebbtide"
ENTRY = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^\s\\;]+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
#: Who asked for it: behind ``# via`` where it is one, else on lines of their own.
VIA = re.compile(r"^ +# (?:via |  )([A-Za-z0-9][\w.-]*)", re.MULTILINE)


def bill(lock: str, version: str) -> dict[str, Any]:
    """Raises ValueError for a line that pins nothing, or has no hash."""
    root = f"pkg:pypi/{NAME}@{version}"
    references, components, wanted_by = {NAME: root}, [], {}
    for entry in re.split(r"^(?=[^\s#])", lock, flags=re.MULTILINE)[1:]:
        pinned, hashes = ENTRY.match(entry), HASH.findall(entry)
        if pinned is None or not hashes:
            raise ValueError(f"not a version with its hashes: {entry.splitlines()[0]}")
        name, of = pinned.groups()
        references[name] = reference = f"pkg:pypi/{name}@{of}"
        wanted_by[name] = set(VIA.findall(entry))
        # A package is several files, one for each platform: any of these is it.
        files = {"type": "distribution", "url": reference, "comment": "one of these files"}
        files["hashes"] = [{"alg": "SHA-256", "content": each} for each in hashes]
        component = {"type": "library", "bom-ref": reference, "name": name, "version": of}
        components.append(component | {"purl": reference, "externalReferences": [files]})
    of_root = {"type": "application", "bom-ref": root, "name": NAME, "version": version, "purl": root}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": of_root | {"licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": components,
        "dependencies": [
            {"ref": of, "dependsOn": [references[each] for each in wanted_by if name in wanted_by[each]]}
            for name, of in references.items()
        ],
    }


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} LOCK-FILE")
    found = re.search(r'^__version__ = "(.+)"$', PACKAGE.read_text(), re.MULTILINE)
    assert found
    try:
        made = bill(Path(sys.argv[1]).read_text(), found[1])
    except (OSError, ValueError) as error:
        sys.exit(f"{sys.argv[1]}: {error}")
    print(json.dumps(made, indent=1))


if __name__ == "__main__":
    main()
