"""Tests of this folder once more, on clusters, and those that are about executors."""

import pytest

from tests.spark.elsewhere import run_tests

pytestmark = pytest.mark.full

LOCAL_CLUSTER = [
    "../jobs/test_sweep.py::test_ids_may_begin_with_anything[spark-s3]",
    "cluster/tasks.py::test_an_executor_that_dies_between_uploads_leaves_no_orphan",
    "cluster/tasks.py::test_a_stream_goes_on_when_an_executor_dies_between_downloads",
    "cluster/tasks.py::test_a_store_that_fails_now_and_then_leaves_no_orphan",
]
MORE = [
    "test_decode.py::test_structured_streaming",
    "test_sink.py::test_encode[native]",
    "test_decode.py::test_batch[arrow]",
    "test_resolve.py::test_resolve[arrow]",
    "../jobs/test_sweep.py::test_ids_may_begin_with_anything[spark-objects]",
    "../jobs/test_sweep_rounds.py::test_rounds_beside_sweeps[spark-whole-records]",
]
STANDALONE = [
    "cluster/tasks.py::test_a_task_that_runs_twice_leaves_no_orphan",
    "cluster/tasks.py::test_from_kafka_to_kafka_with_payloads_in_s3",
    "cluster/packages.py::test_an_archive",
    "logged.py::test_no_secret_is_in_the_event_log[arrow]",
]
MORE_OF_STANDALONE = ["cluster/packages.py", "logged.py"]


@pytest.mark.timeout(700)
@pytest.mark.parametrize(
    ("kind", "tests"),
    [
        ("local-cluster", LOCAL_CLUSTER),
        pytest.param("standalone", STANDALONE, marks=pytest.mark.nightly),
        pytest.param("local-cluster", MORE, marks=pytest.mark.nightly),
        pytest.param("standalone", MORE_OF_STANDALONE, marks=pytest.mark.nightly),
    ],
    ids=["local-cluster", "standalone", "more", "more of standalone"],
)
def test_on_a_cluster(kind: str, tests: list[str]) -> None:
    """Minutes: a cluster with tasks that die and are tried again, by day the one of local processes."""
    run_tests(kind, tests, seconds=650)
