"""A shutdown whose power is cut at 200 points, exported before and after: what the back end has in the end.

Each is a simulated node with the real exporter beside it, which dies at drawn moments, and a back end that
often does not answer; after the cut the node starts again. A trace counts where the back end has its root
once, no other span of it twice or changed, and none missing that had ended and was durable.

    python -m benchmarks.exporting_cut
"""

from __future__ import annotations

import sys
import time

from benchmarks.report import Figure, conclude, parser, say
from tests.otel.delivery.test_exporter_worlds import check, play
from tests.world.worlds import Name, every_point

CUTS = 200


def measure(cuts: int) -> list[Figure]:
    points = len(every_point(Name(), "cut-at"))
    whole = spans = repeated = 0
    for number in range(cuts):
        point = 1 + number * points // cuts
        world = play(Name(cut_at=point))
        spans, repeated = spans + len(world.back_end.kept), repeated + world.back_end.repeated
        try:
            check(world, f"cut at {point}")
        except AssertionError as error:
            say(f"cut at {point}: {error}")
        else:
            whole += 1
    return [
        Figure(
            f"shutdowns of {cuts} whose trace is whole, each cut elsewhere", whole, cuts, "", at_least=True
        ),
        Figure("spans that the back ends kept", spans, None, "spans"),
        Figure("of those sent again, with the same bytes", repeated, None, "spans"),
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--cuts", type=int, default=CUTS, help=f"points (default {CUTS})")
    arguments = options.parse_args()
    began = time.perf_counter()
    found = measure(arguments.cuts)
    say(f"{time.perf_counter() - began:.0f} s")
    return conclude("exporting_cut", arguments, found, {"cuts": arguments.cuts})


if __name__ == "__main__":
    sys.exit(main())
