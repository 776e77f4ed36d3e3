"""Tests of this folder once more, with Spark Connect: in processes that never had another session."""

import pytest

from tests.spark.elsewhere import run_tests

pytestmark = pytest.mark.full

# With a server that the client's process starts, as `SparkSession.builder.remote("local[2]")` does; and what the query
# functions of a pipeline do, where the server refuses to analyse.
OWN = [
    "test_decode.py::test_batch[arrow]",
    "test_sink.py::test_encode[native]",
    "test_pipelines.py::test_decode[FAILFAST-auto]",
    "test_pipelines.py::test_decode[DROPMALFORMED-auto]",
    "test_pipelines.py::test_what_is_missing_is_found_by_spark",
    "test_pipelines.py::test_dead_letters",
    "test_pipelines.py::test_encode",
]
MORE_OF_OWN = [
    "test_pipelines.py::test_decode[PERMISSIVE-auto]",
    "test_pipelines.py::test_decode[FAILFAST-native]",
    "test_pipelines.py::test_decode_of_a_source_without_headers_that_no_stage_needs",
    "test_pipelines.py::test_encode_by_to_avro_needs_the_types",
    "test_pipelines.py::test_observe",
    "test_case_of_names.py::test_encode",
    "test_fetched.py::test_queries_of_small_fields[arrow]",
]
# With one in a process of its own.
SERVER = [
    "test_decode.py::test_structured_streaming",
    "test_decode.py::test_failfast_and_columns",
    "test_resolve.py::test_resolve[arrow]",
    "test_resolve.py::test_payloads_that_cannot_be_had",
    "reading/test_native.py::test_decode_gives_what_the_other_engine_gives[avro, large-message-FAILFAST]",
    "reading/test_native.py::test_explain",
    "test_sink.py::test_encode[arrow]",
    "test_sink.py::test_offload_is_the_mirror_of_resolve",
    "test_large_fields.py::test_encode_moves_columns_and_leaves_the_rest_to_spark[large-fields, avro-content]",
    "test_metrics.py::test_what_is_written_and_what_is_read_in_a_batch",
    "test_from_avro.py::test_permissive_makes_all_nullable",
]
MORE_OF_SERVER = [
    "test_decode.py::test_batch[arrow]",
    "test_decode.py::test_permissive",
    "test_decode.py::test_columns_are_checked_on_the_driver",
    "test_resolve.py::test_resolve_record[arrow]",
    "test_resolve.py::test_mistakes_are_found_on_the_driver",
    "reading/test_native.py::test_a_payload_that_is_gone",
    "reading/test_native.py::test_columns",
    "test_sink.py::test_encode[native]",
    "test_sink.py::test_serialize",
    "test_large_fields.py::test_fields_that_cannot_be_had",
    "test_large_fields.py::test_paths_of_readers",
]


@pytest.mark.timeout(500)
@pytest.mark.parametrize(
    ("kind", "tests"),
    [
        ("connect", OWN),
        ("connect-server", SERVER),
        pytest.param("connect", MORE_OF_OWN, marks=pytest.mark.nightly),
        pytest.param("connect-server", MORE_OF_SERVER, marks=pytest.mark.nightly),
    ],
    ids=["own", "server", "more of own", "more of server"],
)
def test_the_same_tests(kind: str, tests: list[str]) -> None:
    """A process with a session of its own, by Spark Connect."""
    run_tests(kind, tests, seconds=450)
