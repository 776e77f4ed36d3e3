"""A test of this folder on a session that writes its event log."""

import pytest

from tests.spark.elsewhere import run_tests

pytestmark = pytest.mark.full


@pytest.mark.timeout(300)
def test_with_an_event_log() -> None:
    """A process with a Spark session of its own, which writes its log."""
    run_tests("event-log", ["logged.py"], seconds=250)
