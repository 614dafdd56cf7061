"""``python -m tests.demo.patient MODE [ARGUMENT...]``: the demo with bounds for slow machines.

Each wave and pod has ten minutes, except the killed pod. The power-off waits for all programs, and the last
wave for the late pod's rejection. MODE is ``whole``, ``held`` (the last wave does not end), or ``paused`` (no
power-off).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import ebbtide.demo as folders
from ebbtide.actors.interfaces import Tell
from ebbtide.cli import main
from ebbtide.demo import DemoFolder
from ebbtide.demo import demo_run as run
from ebbtide.demo.demo_run import DemoResult, DrawFunction, PodsUp
from ebbtide.events import bounds

#: Each program's line when ready. One pod has no handler and is ready at once.
READY = (
    ("          sleep 3600 & wait", "          : > {}\n"),
    ("          while True:\n              time.sleep(60)", '          open("{}", "w")\n'),
    ("          signal.pause()", '          open("{}", "w")\n'),
    (".serve_forever()", '\n          open("{}", "w")\n          shop'),
)
WITHOUT_HANDLER = "thumbs-0"


def patient(made: DemoFolder) -> DemoFolder:
    """The same demo, with the time it takes."""
    config = made.config.read_text()
    made.config.write_text(re.sub(r"(shutdownGracePeriodSeconds:) \d+", r"\1 600", config))
    for manifest in made.pods.iterdir():
        text = manifest.read_text()
        for line, ready in READY:
            text = text.replace(line, ready.format(made.root / f"{manifest.stem}.ready") + line)
        if manifest.stem == "web-0":
            text = text.replace(
                "          http.server.HTTPServer(", "          shop = http.server.HTTPServer("
            )
        if manifest.stem == "logs-0":
            text = text.replace("sleep 0.5", f"until test -e {made.root}/rejected; do sleep 0.05; done")
        if manifest.stem != "legacy-0":
            text = re.sub(r"(terminationGracePeriodSeconds:) [1-9]\b", r"\1 600", text)
            text = text.replace(
                "terminationGracePeriodSeconds: 60\n", "terminationGracePeriodSeconds: 6000\n"
            )
            # The container ends first.
            text = re.sub(r"(sleep:\n +seconds:) 3", r"\1 600", text)
        manifest.write_text(text)
    return made


def play(mode: str) -> None:
    make, run_demo, up = folders.make_demo_folder, run.run_demo, PodsUp.all_up.fget
    roots: list[Path] = []

    def make_patient(journal: Path | None) -> DemoFolder:
        made = patient(make(journal))
        roots.append(made.root)
        return made

    def all_ready(self: PodsUp) -> bool:
        wanted = {f"{path.stem}.ready" for path in (roots[0] / "pods").glob("*-0.yaml")}
        wanted -= {f"{WITHOUT_HANDLER}.ready", "late-0.ready"}
        assert up is not None
        return up(self) and wanted <= {path.name for path in roots[0].iterdir()}

    async def run_patiently(
        folder: DemoFolder, say: Callable[[str], None], tell: Tell, draw: DrawFunction
    ) -> DemoResult:
        def say_and_go_on(line: str) -> None:
            say(line)
            if "is turned away" in line and mode == "whole":
                (folder.root / "rejected").touch()

        return await run_demo(folder, say_and_go_on, tell, draw)

    folders.make_demo_folder = make_patient
    run.run_demo = run_patiently
    run.UP_SECONDS_MAX = 600.0
    run.PAUSE_SECONDS = 600.0 if mode == "paused" else 0.0
    PodsUp.all_up = property(all_ready)  # type: ignore[assignment,method-assign]
    bounds.now = bounds.Bounds().widened(300)


if __name__ == "__main__":
    play(sys.argv.pop(1))
    sys.argv[:1] = ["ebbtide", "demo"]
    main()
