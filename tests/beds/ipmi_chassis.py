"""ipmi_sim's chassis command: ``get power``, or ``set power 0|1``.

``python ipmi_chassis.py FILE UUID URL|- get|set ...``: the file holds 0 or 1; the URL gets a PUT before each
change shows.
"""

import json
import sys
import urllib.request
from pathlib import Path

file, uuid, url, verb, *names = sys.argv[1:]
if verb == "get":
    print(f"power:{Path(file).read_text().strip()}")
elif names[:1] == ["power"]:
    if url != "-":
        said = json.dumps({"uuid": uuid, "power_state": "On" if names[1] == "1" else "Off"}).encode()
        urllib.request.urlopen(urllib.request.Request(url, said, method="PUT"), timeout=10).close()
    part = Path(f"{file}.part")
    part.write_text(names[1])
    part.replace(file)
