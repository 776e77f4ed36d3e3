"""Formats of the stages: each against the bare calls of the library that it stands on, or against Confluent's class."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from benchmarks.harness import Comparison, measure, print_table
from serde_chain.wire import entry_metadata

WANTED_PEEK = 4.0


def run() -> bool:
    """Print the tables; returns whether the targets are reached."""
    return all([_entry_metadata()])


def _entry_metadata() -> bool:
    """``peek`` against protobuf's reading of the metadata alone, over payloads of all sizes."""
    file = descriptor_pb2.FileDescriptorProto(name="entry_metadata.proto", syntax="proto2")
    message = file.message_type.add(name="BrokerEntryMetadata")
    for number, field in enumerate(("broker_timestamp", "index"), 1):
        message.field.add(name=field, number=number, type="TYPE_UINT64", label="LABEL_OPTIONAL")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    theirs: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("BrokerEntryMetadata"))
    results = []
    for name, values in (
        ("time", {"broker_timestamp": 1700000000123}),
        ("time and index", {"broker_timestamp": 1700000000123, "index": 1234567}),
    ):
        for size in (100, 10_000, 1_000_000):
            framed = entry_metadata.frame(bytes(size), **values)
            fields = theirs(**values).SerializeToString()
            if entry_metadata.peek(framed) != (values["broker_timestamp"], values.get("index")):
                raise AssertionError("the frame reads as something else")
            results.append(
                measure(
                    Comparison(
                        f"peek, {name}, payload of {size} bytes",
                        lambda data=framed: entry_metadata.peek(data),  # type: ignore[misc]
                        lambda data=fields: theirs.FromString(data),  # type: ignore[misc]
                        "protobuf's FromString of the metadata alone",
                        WANTED_PEEK,
                    )
                )
            )
    return print_table("Entry metadata (PIP-70)", results)
