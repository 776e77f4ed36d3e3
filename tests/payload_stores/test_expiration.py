"""How long payloads have to be kept."""

from datetime import timedelta

import pytest

from payload_stores import propose_expiration

DAY = 86_400_000


@pytest.mark.parametrize(
    ("retention_ms", "days"),
    [(0, 1), (1, 1), (DAY, 2), (5 * DAY, 6), (5 * DAY + 1, 7), (7 * DAY, 9), (365 * DAY, 438), (-1, None)],
)
def test_a_fifth_more_than_the_retention(retention_ms: int, days: int | None) -> None:
    assert propose_expiration(retention_ms) == (None if days is None else timedelta(days=days))
