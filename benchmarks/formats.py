"""Formats of the stages: each against bare calls of its underlying library, or against Confluent's class."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from benchmarks.harness import Row, Table, measure
from serde_chain import DeserializerChain, RecordContext, SerializerChain
from serde_chain.testing.services import SchemaRegistry
from serde_chain.wire import entry_metadata


def run(*, quick: bool) -> Iterator[Table]:
    """Entry metadata, encryption, and Protobuf through a real registry."""
    yield _entry_metadata(quick=quick)
    yield _encryption(quick=quick)
    with SchemaRegistry() as registry:
        rows = [row for count in (20, 3) for row in _protobuf_of(registry, count, quick=quick)]
    yield Table("protobuf", "Protobuf with registry framing, against Confluent", "µs a record", rows)


def _entry_metadata(*, quick: bool) -> Table:
    """``peek`` against protobuf's parsing of the metadata alone, with payloads of all sizes."""
    file = descriptor_pb2.FileDescriptorProto(name="entry_metadata.proto", syntax="proto2")
    message = file.message_type.add(name="BrokerEntryMetadata")
    for number, field in enumerate(("broker_timestamp", "index"), 1):
        message.field.add(name=field, number=number, type="TYPE_UINT64", label="LABEL_OPTIONAL")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    theirs: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("BrokerEntryMetadata"))
    rows = []
    for name, values in (
        ("time", {"broker_timestamp": 1700000000123}),
        ("time and index", {"broker_timestamp": 1700000000123, "index": 1234567}),
    ):
        for size in (100, 10_000, 1_000_000):
            framed = entry_metadata.frame(bytes(size), **values)
            fields = theirs(**values).SerializeToString()
            if entry_metadata.peek(framed) != (values["broker_timestamp"], values.get("index")):
                raise AssertionError("the frame reads as something else")
            ours: Any = lambda data=framed: entry_metadata.peek(data)  # noqa: E731
            bare: Any = lambda data=fields: theirs.FromString(data)  # noqa: E731
            rows.append(
                measure(f"peek, {name}, {size} bytes", ours, "FromString of the metadata alone", bare, quick=quick)
            )
    return Table("entry-metadata", "Entry metadata (PIP-70), against protobuf", "µs a record", rows)


def _encryption(*, quick: bool) -> Table:
    """Chains of ``encrypt`` alone, against the bare calls with a random nonce and the same associated data."""
    key, context, rows = os.urandom(32), RecordContext("benchmark", "value", []), []
    gcm, siv = AESGCM(key), AESSIV(key + key)
    for mode in ("gcm", "siv"):
        config = {"encryption.keys": {"key": key}, "encryption.mode": mode}
        write = SerializerChain.from_config({"value.serializers": "encrypt", **config})
        read = DeserializerChain.from_config({"value.deserializers": "encrypt", **config})
        for size in (1 << 10, 256 << 10, 1 << 20, 8 << 20):
            payload, associated, nonce = os.urandom(size), b"benchmark", os.urandom(12)
            ours = write(payload, context)
            if read(ours, context) != payload:
                raise AssertionError("the payload does not come back")
            calls: tuple[Any, Any]
            if mode == "gcm":
                theirs = gcm.encrypt(nonce, payload, associated)
                calls = (
                    lambda data=payload, aad=associated: gcm.encrypt(os.urandom(12), data, aad),
                    lambda data=theirs, iv=nonce, aad=associated: gcm.decrypt(iv, data, aad),
                )
            else:
                theirs = siv.encrypt(payload, [associated])
                calls = (
                    lambda data=payload, aad=associated: siv.encrypt(data, [aad]),
                    lambda data=theirs, aad=associated: siv.decrypt(data, [aad]),
                )
            encrypt: Any = lambda data=payload, chain=write: chain(data, context)  # noqa: E731
            decrypt: Any = lambda data=ours, chain=read: chain(data, context)  # noqa: E731
            for name, call, bare in (("encrypt", encrypt, calls[0]), ("decrypt", decrypt, calls[1])):
                label = f"{mode}, {name} {size >> 10} KiB"
                rows.append(measure(label, call, "cryptography", bare, quick=quick, rounds=21))
    return Table("encryption", "Encryption, against the bare calls of cryptography", "µs a payload", rows)


def _protobuf_of(registry: SchemaRegistry, count: int, *, quick: bool) -> list[Row]:
    file = descriptor_pb2.FileDescriptorProto(name=f"fields{count}.proto", package="benchmark", syntax="proto3")
    message = file.message_type.add(name="Record")
    kinds = {"INT64": 1234567890, "DOUBLE": 3.14159, "STRING": "a string of some length", "BOOL": True}
    values = {}
    for number, (kind, value) in zip(range(count), itertools.cycle(kinds.items())):
        message.field.add(name=f"f{number}", number=number + 1, type=f"TYPE_{kind}", label="LABEL_OPTIONAL")
        values[f"f{number}"] = value
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    record: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("benchmark.Record"))
    one, client, conf = record(**values), registry.client(), registry.serializer_conf()
    config = {"schema.registry.url": registry.url, "protobuf.message.class": record}
    write = SerializerChain.from_config({"value.serializer": "protobuf", **config})
    read = DeserializerChain.from_config({"value.deserializer": "protobuf", **config})
    their_write, their_read = ProtobufSerializer(record, client, conf), ProtobufDeserializer(record, conf, client)
    ours = RecordContext(f"protobuf-{count}", "value", [])
    theirs = SerializationContext(f"protobuf-{count}", MessageField.VALUE, [])
    data: Any = their_write(one, theirs)
    if write(one, ours) != data or read(data, ours) != one or their_read(data, theirs) != one:
        raise AssertionError("the serializers disagree")
    name = f"{count} fields"
    return [
        measure(f"{way}, {name}", our_call, f"Confluent's {their_class}", their_call, quick=quick)
        for way, our_call, their_call, their_class in (
            ("serialize", lambda: write(one, ours), lambda: their_write(one, theirs), "ProtobufSerializer"),
            ("deserialize", lambda: read(data, ours), lambda: their_read(data, theirs), "ProtobufDeserializer"),
        )
    ]
