"""Where ``Producer`` and ``Consumer`` differ from confluent_kafka's.

Data for the differential test, and for the table of docs/confluent-kafka.md. A step is ``(call, arguments, keywords)``.
An outcome is the name of an error's type, that of a KafkaError, ``int`` for any number, or a repr.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ELSEWHERE", "OF_PRODUCERS", "PLACE", "TOPIC", "Behaviour", "Difference", "Step", "rows"]

Step = tuple[str, tuple[Any, ...], dict[str, Any]]

# Stand for the topic of a test, and for its partition.
TOPIC = "<topic>"
PLACE = "<partition>"


@dataclass(frozen=True)
class Difference:
    """A difference of clients with chains; those without have none.

    Attributes:
        said: What the page calls it.
        original: What confluent_kafka does, in words.
        ours: What we do.
        steps: A script, whose last step shows it.
        outcomes: That of the original, and ours.
    """

    said: str
    original: str
    ours: str
    steps: tuple[Step, ...]
    outcomes: tuple[str, str]


def _step(name: str, *arguments: Any, **keywords: Any) -> Step:
    return name, arguments, keywords


OF_PRODUCERS = (
    Difference(
        "a bytearray or memoryview as value",
        "`TypeError`",
        "is accepted, and copied if it is uploaded",
        (_step("produce", TOPIC, bytearray(b"x")),),
        ("TypeError", "None"),
    ),
    Difference(
        "a value of a wrong type",
        "`TypeError`",
        "`EncodeError` of the stage that refuses it",
        (_step("produce", TOPIC, 5),),
        ("TypeError", "EncodeError"),
    ),
    Difference(
        "text for a chain that takes bytes",
        "its UTF-8 bytes",
        "`EncodeError`; begin the chain with `string`",
        (_step("produce", TOPIC, "x"),),
        ("None", "EncodeError"),
    ),
    Difference(
        "a header whose name is not text",
        "is accepted, with any name",
        "`TypeError`",
        (_step("produce", TOPIC, b"x", headers=[(1, b"1")]),),
        ("None", "TypeError"),
    ),
    Difference(
        "a value of a wrong type in `produce_batch`",
        "`TypeError`, and nothing of the batch is sent",
        "`_error` of that message is an `EncodeError`; the others are sent",
        (_step("produce_batch", TOPIC, [{"value": 5}, {"value": b"x"}]),),
        ("TypeError", "int"),
    ),
    Difference(
        "text for a chain that takes bytes, in `produce_batch`",
        "its UTF-8 bytes",
        "`_error` of that message",
        (_step("produce_batch", TOPIC, [{"value": "x"}]),),
        ("int", "int"),
    ),
)


@dataclass(frozen=True)
class Behaviour:
    """A difference that no script of calls shows.

    Attributes:
        said: As in :class:`Difference`, as are the next two.
        original: What confluent_kafka does.
        ours: What we do.
        test: The test that shows it: a file of this folder, and a function.
    """

    said: str
    original: str
    ours: str
    test: str


ELSEWHERE = (
    Behaviour(
        "configuration",
        "a mapping",
        "also the path of a TOML or `.properties` file; one configuration serves both clients",
        "test_room.py::test_one_configuration_serves_both_clients_without_a_warning",
    ),
    Behaviour(
        "classes",
        "",
        "not subclasses; messages, errors and `TopicPartition` are confluent_kafka's",
        "test_interface.py::test_every_call_is_there",
    ),
    Behaviour(
        "`produce` of a large value",
        "`MSG_SIZE_TOO_LARGE`",
        "returns; the upload runs in parallel with others, and the order of the topic is kept",
        "test_uploads.py::test_uploads_run_side_by_side_and_the_records_keep_their_order",
    ),
    Behaviour(
        "`produce` blocks",
        "never",
        "while uploads fill `large.message.buffer.bytes`, up to `max.block.ms`",
        "test_uploads.py::test_the_buffer_bounds_what_waits",
    ),
    Behaviour(
        "`on_delivery`",
        "the broker's report",
        "also reports failed uploads: unlike the broker's errors, such an error has a `__cause__`, the store's error; "
        "its message has no value",
        "test_uploads.py::test_an_upload_that_fails_is_reported_with_its_cause",
    ),
    Behaviour(
        "records for a missing topic",
        "fail after 30 s",
        "fail after 10 s, unless `topic.metadata.propagation.max.ms` is set",
        "test_missing_topics.py::test_a_missing_topic_is_reported_and_one_that_is_created_meanwhile_gets_its_records",
    ),
    Behaviour(
        "callbacks of a fenced producer",
        "`SystemError` from any C function they call",
        "run as always; `flush`, `commit_transaction` and the others raise `_FENCED`",
        "test_fenced.py::test_each_call_raises_what_the_client_raises_and_each_callback_is_called",
    ),
    Behaviour(
        "`len(producer)`",
        "records in the client",
        "uploads included",
        "test_uploads.py::test_uploads_run_side_by_side_and_the_records_keep_their_order",
    ),
    Behaviour(
        "`close()` of a producer",
        "returns whether all records are sent",
        "sends all pending records, then also closes stores",
        "test_uploads.py::test_close_waits_for_what_has_to_be_deleted",
    ),
    Behaviour(
        "headers in `produce_batch`",
        "silently dropped",
        "kept",
        "test_round_trip.py::test_a_batch_keeps_its_headers",
    ),
    Behaviour(
        "an undecodable record",
        "not applicable: it decodes nothing",
        "`SerializationError` with the record; or skipped, or a dead letter: [Reading records](consume.md)",
        "test_consumer.py::test_the_error_carries_the_record_and_its_place",
    ),
    Behaviour(
        "offsets of a consumer",
        "stored as records are returned",
        "stored by the next call, by `poll` for up to 0.2 s of records at once: Ctrl-C within a call loses no record",
        "test_batches.py::test_nothing_is_stored_that_was_not_confirmed_by_a_next_call",
    ),
    Behaviour(
        "`poll`",
        "takes a record from the client",
        "takes up to 256 small records from it, and returns them one by one",
        "test_batches.py::test_batches_grow_and_every_record_comes_once",
    ),
    Behaviour(
        "a signal or callback that raises while `poll` or `consume` waits",
        "the records that librdkafka had returned are lost",
        "the next call returns them",
        "test_signals.py::test_no_record_is_lost_or_doubled_when_signals_end_the_waiting_call",
    ),
    Behaviour(
        "threads",
        "any",
        "a producer: any; a consumer: one at a time",
        "test_consumer.py::test_threads_that_read_at_the_same_time_learn_that_they_must_not",
    ),
    Behaviour(
        "`headers()` of a message",
        "as received",
        "without those of the reference",
        "test_round_trip.py::test_records_of_all_sizes",
    ),
)


def rows() -> str:
    """The rows of the page's table."""
    every: tuple[Difference | Behaviour, ...] = (*ELSEWHERE, *OF_PRODUCERS)
    return "\n".join(f"| {each.said} | {each.original} | {each.ours} |" for each in every)
