"""What `make nightly` has of products, beside the tests that are marked ``nightly`` in their files.

Where a case takes seconds, `make test-all` and `make test-servers` have each value of the lists of a product, and not
each combination: another case of the same test, or one of another file, runs the same code.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["STAYS", "mark_nightly"]

# The rules of the jobs are one code. By Spark's engine stay: each job, what its plans and tasks do by themselves, and
# what can happen between its steps. tests/jobs/test_engines_agree.py compares both engines on whatever else there is.
_LOCAL: Final = ("local",)
_JOBS: Final = {
    "tests/jobs/test_audit.py::test_what_is_gone_or_changed_is_reported": ("local-*", "spark-True"),
    "tests/jobs/test_deleting.py::test_on_s3": _LOCAL,
    "tests/jobs/test_fields.py::test_a_malformed_header_protects_nothing_and_ends_no_sweep": _LOCAL,
    "tests/jobs/test_fields.py::test_a_record_without_the_rest_of_its_value_protects_nothing": (
        "local-local", "spark-spark",
    ),
    "tests/jobs/test_fields.py::test_a_whole_value_beside_a_malformed_header_is_in_use": (
        "local-local-*", "spark-spark-*",
    ),
    "tests/jobs/test_fields.py::test_an_audit_needs_no_keys_of_fields": ("local-*", "spark-True"),
    "tests/jobs/test_fields.py::test_records_with_the_header_that_cannot_be_decoded_end_a_sweep": _LOCAL,
    "tests/jobs/test_fields.py::test_what_fields_name_stays_beside_a_malformed_header": ("local-*", "spark-moved"),
    "tests/jobs/test_migrate.py::test_a_killed_migration_goes_on_where_it_was": _LOCAL,
    "tests/jobs/test_migrate.py::test_a_target_broker_that_goes_down_and_comes_back": _LOCAL,
    "tests/jobs/test_migrate.py::test_a_topic_that_was_made_anew_is_not_taken_for_the_one_before": _LOCAL,
    "tests/jobs/test_migrate.py::test_an_old_checkpoint_writes_nothing_twice": _LOCAL,
    "tests/jobs/test_migrate.py::test_keys_and_stages_inside_stay_as_they_are": _LOCAL,
    "tests/jobs/test_migrate.py::test_to_other_stores_and_formats": ("local-*", "spark-s3"),
    "tests/jobs/test_migrate.py::test_what_cannot_be_migrated": _LOCAL,
    "tests/jobs/test_sweep.py::test_a_malformed_placeholder_is_counted_but_no_live_reference": _LOCAL,
    "tests/jobs/test_sweep.py::test_a_manifest_that_cannot_be_written_ends_the_sweep": _LOCAL,
    "tests/jobs/test_sweep.py::test_a_store_that_lists_late": _LOCAL,
    "tests/jobs/test_sweep.py::test_a_topic_that_is_emptied_meanwhile": ("local-*", "spark-orphans so far"),
    "tests/jobs/test_sweep.py::test_a_topic_that_is_made_anew_meanwhile_ends_the_sweep": _LOCAL,
    "tests/jobs/test_sweep.py::test_all_named_topics_count_for_all_of_them": _LOCAL,
    "tests/jobs/test_sweep.py::test_chains_that_describe_themselves": _LOCAL,
    "tests/jobs/test_sweep.py::test_formats_that_the_configuration_leaves_out_are_in_use": _LOCAL,
    "tests/jobs/test_sweep.py::test_ids_may_begin_with_anything": ("local-*", "spark-s3"),
    "tests/jobs/test_sweep.py::test_keys_are_in_use_whatever_the_configuration_names": _LOCAL,
    "tests/jobs/test_sweep.py::test_objects_of_other_systems_in_a_topics_folder_are_in_use": _LOCAL,
    "tests/jobs/test_sweep.py::test_other_stores": ("local-*", "spark-s3"),
    "tests/jobs/test_sweep.py::test_payloads_that_cannot_be_deleted_end_no_sweep": _LOCAL,
    # tests/jobs/test_sweep_rounds.py has rounds by Spark.
    "tests/jobs/test_sweep.py::test_rounds_of_producing_deleting_and_sweeping": ("local-*",),
    "tests/jobs/test_sweep.py::test_what_a_malformed_placeholder_names_stays": (
        "local-*", "spark-in a header", "spark-in the header of large fields",
    ),
    "tests/jobs/test_sweep.py::test_what_compaction_has_not_removed_yet_is_in_use": _LOCAL,
    "tests/jobs/test_tombstones.py::test_a_later_record_revives_its_key": (
        "local-*", "spark-tombstone-records to read", "spark-large-orphans so far",
    ),
    "tests/jobs/test_tombstones.py::test_a_null_value_is_a_tombstone_in_compacted_topics_only": _LOCAL,
    "tests/jobs/test_tombstones.py::test_a_topic_made_anew_after_its_tombstones_were_read": _LOCAL,
    "tests/jobs/test_tombstones.py::test_a_user_who_may_not_see_the_policy": _LOCAL,
    "tests/jobs/test_tombstones.py::test_malformed_placeholders_of_a_deleted_key": _LOCAL,
    "tests/jobs/test_tombstones.py::test_more_keys_than_a_batch": _LOCAL,
    "tests/jobs/test_tombstones.py::test_offloaded_keys_stay_with_their_tombstones": _LOCAL,
    "tests/jobs/test_tombstones.py::test_payloads_of_deleted_keys_go": ("local-*", "spark-keyed"),
    "tests/jobs/test_tombstones.py::test_records_without_keys_count": _LOCAL,
    "tests/jobs/test_tombstones.py::test_shared_payloads_stay": _LOCAL,
    "tests/spark/jobs/test_migrate_killed.py::test_a_task_that_is_killed_at_many_points": ("fields",),
    "tests/spark/jobs/test_sweep.py::test_a_listing_that_executors_have_lost": ("nothing", "a checkpoint"),
}  # fmt: skip
# Commands with Spark start a process with a session each.
_COMMANDS: Final = {
    "tests/cli/test_demo.py::test_demo": ("local",),
    "tests/cli/test_jobs.py::test_audit": ("local",),
    "tests/cli/test_jobs.py::test_migrate": ("local local", "spark local"),
    "tests/cli/test_jobs.py::test_orphans_are_deleted": ("local",),
}
# Of engine and mode, or engine and kind, each value of both.
_SPARK: Final = {
    "tests/spark/reading/test_avro_rules.py::test_aliases": (
        "of a sibling", "of a sibling that is missing", "of another type",
    ),
    "tests/spark/reading/test_avro_rules.py::test_moments": ("array", "union"),
    "tests/spark/reading/test_native.py::test_auto_takes_the_compiled_reader_beside_a_python_step": (
        "large-message, avro",
    ),
    "tests/spark/reading/test_native.py::test_decode_gives_what_the_other_engine_gives": (
        "avro, large-message-FAILFAST", "avro-PERMISSIVE", "avro, large-message-DROPMALFORMED",
    ),
    "tests/spark/reading/test_native.py::test_names_that_are_one_to_spark": (
        "FAILFAST-names0", "PERMISSIVE-names1", "DROPMALFORMED-names0",
    ),
    "tests/spark/reading/test_native.py::test_records_that_cannot_be_read": ("none",),
    "tests/spark/test_bad_input.py::test_a_store_that_is_down_for_a_while": ("DROPMALFORMED",),
    "tests/spark/test_bad_input.py::test_columns_of_nothing_but_null": (
        "FAILFAST-arrow", "PERMISSIVE-native", "DROPMALFORMED-arrow",
    ),
    "tests/spark/test_bad_input.py::test_formats_that_are_mixed_in_a_topic": ("arrow",),
    "tests/spark/test_bad_input.py::test_poison_in_a_stream": ("native",),
    "tests/spark/test_case_of_names.py::test_decode": (
        "insensitive-False-arrow-FAILFAST", "insensitive-False-native-PERMISSIVE",
        "insensitive-True-arrow-PERMISSIVE", "insensitive-True-native-FAILFAST",
        "sensitive-False-arrow-PERMISSIVE", "sensitive-False-native-FAILFAST",
        "sensitive-True-arrow-FAILFAST", "sensitive-True-native-PERMISSIVE",
    ),
    "tests/spark/test_dead_letters.py::test_dead_letters": ("native",),
    "tests/spark/test_decode.py::test_other_columns_stay_whatever_their_names": (
        "FAILFAST-arrow", "PERMISSIVE-native", "DROPMALFORMED-arrow",
    ),
    "tests/spark/test_entry_metadata.py::test_decode_hands_on_time_and_index": (
        "avro-PERMISSIVE", "string-FAILFAST",
    ),
    # What test_no_value_stops_a_query leaves out, and the other way round.
    "tests/spark/test_every_kind.py::test_through_spark": (
        "avro confluent", "avro header", "avro container", "all of them", "protobuf", "msgpack", "npy", "bytes", "long",
        "bakdata-flag", "self-describing",
    ),
    "tests/spark/test_no_record_stops.py::test_no_placeholder_stops_a_query": (
        "kip1159-PERMISSIVE", "bakdata-flag-DROPMALFORMED", "bakdata-headers-PERMISSIVE",
    ),
    "tests/spark/test_no_record_stops.py::test_no_value_stops_a_query": (
        "avro confluent", "avro single-object", "all of them", "protobuf confluent", "json", "arrow", "string",
        "bakdata-headers", "self-describing",
    ),
    "tests/spark/test_fetched.py::test_filters_on_kafka_columns_come_first": ("large-message, avro-native",),
    "tests/spark/test_fetched.py::test_light_curves_need_no_images": ("arrow",),
    "tests/spark/test_fetched.py::test_queries_of_small_fields": ("native",),
    "tests/spark/test_fetched.py::test_streams_fetch_what_they_use": ("arrow",),
    "tests/spark/test_fetched_kinds.py::test_what_queries_of_other_formats_fetch": (
        "large-message, json", "protobuf, large-fields",
    ),
    "tests/spark/test_fetched_once.py::test_file_sinks": ("arrow",),
    "tests/spark/test_fetched_once.py::test_views_and_caches": ("native",),
    "tests/spark/test_foreign_formats.py::test_one_topic_with_all_of_them": ("auto",),
    "tests/spark/test_from_avro.py::test_every_type": ("UTC-installed", "America/New_York-4.0"),
    "tests/spark/test_from_avro.py::test_another_reader_schema": ("union", "fields"),
    "tests/spark/test_from_avro.py::test_types_that_are_no_records": ("int", "map"),
    "tests/spark/test_generated_queries.py::test_generated_queries": ("native",),
    "tests/spark/test_generated_queries.py::test_plans_of_generated_queries": ("arrow",),
    "tests/spark/test_kip_stores.py::test_a_live_query_reads_and_writes": ("class",),
    "tests/spark/test_large_fields.py::test_encode": ("local",),
    "tests/spark/test_large_fields.py::test_encrypted_fields": ("native",),
    "tests/spark/test_large_fields.py::test_paths_of_readers": ("arrow",),
    "tests/spark/test_large_fields.py::test_what_is_fetched_by_what": ("native",),
    "tests/spark/test_metrics.py::test_retries_of_stores": ("native",),
    "tests/spark/test_outages.py::test_stores_that_go_away_while_a_query_runs": ("s3",),
    "tests/spark/test_payloads_by_column.py::test_headers_are_those_of_whole_records": (
        "kip1159, bakdata-headers-large-message, bytes",
    ),
    "tests/spark/test_payloads_by_column.py::test_values_keys_and_headers": ("native",),
    "tests/spark/test_payloads_by_column.py::test_what_is_fetched_by_what": ("arrow",),
    "tests/spark/test_pipelines.py::test_decode": (
        "FAILFAST-auto", "PERMISSIVE-auto", "PERMISSIVE-native", "DROPMALFORMED-arrow",
    ),
    "tests/spark/test_random_schemas.py::test_both_engines_refuse_the_same": ("10",),
    "tests/spark/test_random_schemas.py::test_both_engines_write_the_same": ("6", "7"),
    "tests/spark/test_random_schemas.py::test_equal_to_from_avro": ("0-*", "1-*", "2-*"),
    "tests/spark/test_topic_limits.py::test_encode_to_one_topic": ("5000-arrow", "5000000-native"),
    "tests/spark/test_udf_kinds.py::test_deserialize_bytes_and_numbers": ("arrow",),
    "tests/spark/test_udf_kinds.py::test_serialize_bytes_and_text": ("pandas", "None"),
    "tests/spark/test_ugly_schemas.py::test_ugly_schemas_are_written": ("range(0, 16)", "range(48, 64)"),
}  # fmt: skip
# Of seeds the first or the first two; of stores, formats and policies each pair but those of the policies.
_OTHERS: Final = {
    "tests/chaos/test_chaos.py::test_a_producer_that_is_fenced": ("0",),
    "tests/chaos/test_chaos.py::test_nothing_is_lost": ("*-0",),
    "tests/chaos/test_chaos.py::test_services_come_back": ("*-0",),
    "tests/cli/browse/test_browser.py::test_every_page_fits_a_telephone": ("dark",),
    "tests/cli/browse/test_browser.py::test_from_the_list_to_an_image": ("390",),
    "tests/cli/test_away.py::test_a_broker_that_is_not_there": ("200-*", "40-produce-*"),
    "tests/cli/doctor/test_doctor.py::test_a_bucket_that_keeps_the_payloads_of_deleted_records": (
        "None", "for a tag", "for noncurrent versions",
    ),
    "tests/clients/confluent/test_faulty_store.py::test_no_record_is_lost": ("random-0", "content-10000"),
    "tests/clients/confluent/test_signals.py::test_a_signal_during_the_first_contact_with_a_partition": (
        "explicit-poll", "beginning-consume", "committed-arrow", "earliest-poll", "latest-consume",
    ),
    "tests/clients/confluent/test_signals.py::test_no_record_is_lost_or_doubled_when_signals_end_the_waiting_call": (
        "poll-none", "poll-large", "poll-lazy", "consume-plain", "consume-kafka", "consume-large", "arrow-headers",
        "arrow-large", "arrow-lazy",
    ),
    "tests/clients/test_no_record_stops.py::test_no_placeholder_stops_a_consumer": (
        "Consumer-*-kip1159-skip", "Consumer-*-bakdata-flag-dead-letter", "Consumer-*-bakdata-headers-skip",
        "Consumer, columns-memory-*", "Consumer, columns-local-*", "Consumer, columns-s3-*-dead-letter",
        "Consumer, columns-kafka-*-skip", "[!C]*",
    ),
    "tests/hop/test_interop.py::test_from_hop_client": ("1000-SCRAM-SHA-256", "3000000-SCRAM-SHA-512"),
    "tests/hop/test_interop.py::test_sizes_at_the_limit_of_the_topic": ("1048588", "5000000"),
    "tests/hop/test_interop.py::test_to_hop_client": ("1000-SCRAM-SHA-512", "3000000-SCRAM-SHA-256"),
    "tests/hop/test_trouble.py::test_nothing_of_use_is_announced": ("None", "*xff*", "*https*", "*ftp*"),
    "tests/servers/test_network_faults.py::TestKafkaStoreOnABadDay::test_faults_of_the_network": (
        "*-1000", "a connection that is cut after a while-200000",
    ),
    "tests/servers/test_object_store_faults.py::test_a_server_that_is_killed_in_the_middle": (
        "versitygw-objects", "minio-s3",
    ),
    "tests/site/test_browser.py::test_pages_load_whole": ("390",),
}  # fmt: skip
STAYS: Final[dict[str, tuple[str, ...]]] = {**_JOBS, **_COMMANDS, **_SPARK, **_OTHERS}
"""By tests: the cases that are left to all commands, as patterns of their ids."""


def mark_nightly(items: Iterable[pytest.Item]) -> None:
    """Mark the cases that only `make nightly` runs."""
    for item in items:
        test, _, case = item.nodeid.partition("[")
        if test in STAYS and not stays(test, case.removesuffix("]")):
            item.add_marker(pytest.mark.nightly)


def stays(test: str, case: str) -> bool:
    """Whether a case of one of the tests in `STAYS` is left to all commands."""
    return any(fnmatchcase(case, pattern) for pattern in STAYS[test])
