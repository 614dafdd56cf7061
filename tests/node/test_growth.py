"""Growth is distinguished from fluctuation."""

from __future__ import annotations

import pytest

from tests.node.growth import Look
from tests.node.week import COUNT_MAX, MEMORY_MIB_MAX, OVER, figures

pytestmark = pytest.mark.proof

ZERO = Look(*[0] * len(Look._fields))


def looks(**each: float) -> list[Look]:
    """After 0, 10, ... 200 shutdowns; each field has a slope, and a few looks are outliers."""
    made = []
    for number in range(21):
        odd = 5 if number % 6 == 1 else 0
        made.append(
            ZERO._replace(
                after=number * 10, **{name: 40 + number * 10 * by + odd for name, by in each.items()}
            )
        )
    return made


@pytest.mark.parametrize(
    ("field", "by", "missed"),
    [
        ("descriptors", 0, False),
        ("descriptors", 1 / OVER, True),
        ("rss_mib", 0.9 * MEMORY_MIB_MAX / OVER, False),
        ("rss_mib", 1.1 * MEMORY_MIB_MAX / OVER, True),
        ("journal_bytes", 30_000, False),
    ],
)
def test_what_is_missed(field: str, by: float, missed: bool) -> None:
    """The detection limits: one count in two hundred shutdowns, and some memory."""
    assert COUNT_MAX < 1
    assert any(row.verdict == "missed" for row in figures(looks(**{field: by}))) is missed
