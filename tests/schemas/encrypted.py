"""Confluent's serializers with a rule that encrypts, as a user's module has them: made by name, in any process."""

from typing import Any

import pyarrow as pa
from confluent_kafka.schema_registry import (
    Rule,
    RuleKind,
    RuleMode,
    RuleParams,
    RuleSet,
    Schema,
    SchemaRegistryClient,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.common.protobuf import _schema_to_str
from confluent_kafka.schema_registry.confluent import meta_pb2
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.schema_registry.rule_registry import RuleRegistry
from confluent_kafka.schema_registry.rules.encryption.encrypt_executor import FieldEncryptionExecutor
from confluent_kafka.schema_registry.rules.encryption.localkms.local_driver import LocalKmsDriver
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict

AVRO = """{"type": "record", "name": "Star", "fields": [
    {"name": "name", "type": "string", "confluent:tags": ["PII"]}, {"name": "numbers", "type": "string"}]}"""
JSON = """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Star", "type": "object", "properties": {
    "name": {"type": "string", "confluent:tags": ["PII"]}, "numbers": {"type": "string"}}}"""
COLUMNS = pa.struct({"name": pa.string(), "numbers": pa.string()})
SETTINGS = {"auto.register.schemas": False, "use.latest.version": True}
FIELD_META: Any = vars(meta_pb2)["field_meta"]  # made at run time
# Confluent's library keeps the first one that it sees for as long as the process lives.
SECRET = {"secret": "of this test"}


def _message() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="star.proto", package="sky", syntax="proto3")
    file.dependency.append(meta_pb2.DESCRIPTOR.name)
    star = file.message_type.add(name="Star")
    name = star.field.add(number=1, name="name", type="TYPE_STRING", label="LABEL_OPTIONAL")
    name.options.Extensions[FIELD_META].tags.append("PII")
    star.field.add(number=2, name="numbers", type="TYPE_STRING", label="LABEL_OPTIONAL")
    pool = descriptor_pool.DescriptorPool()
    for known in (descriptor_pb2.DESCRIPTOR, meta_pb2.DESCRIPTOR):
        pool.AddSerializedFile(known.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("sky.Star"))


STAR = _message()


def encrypting(mode: RuleMode = RuleMode.WRITEREAD, *, expiry_days: int = 0, **more: Any) -> Rule:
    """The rule: fields with the tag PII are encrypted."""
    key = {"encrypt.kek.name": "stars", "encrypt.kms.type": "local-kms", "encrypt.kms.key.id": "stars"}
    if expiry_days:
        key["encrypt.dek.expiry.days"] = str(expiry_days)
    settings = {"kind": RuleKind.TRANSFORM, "type": "ENCRYPT", "tags": ["PII"], "disabled": False, **more}
    return Rule(
        name="encrypt",
        doc="",
        mode=mode,
        params=RuleParams(key),
        expr=None,
        on_success=None,
        on_failure=None,
        **settings,
    )


def schema(kind: str, rule: Rule) -> Schema:
    """The schema of a star with a rule, for a registry."""
    text = {"AVRO": AVRO, "JSON": JSON, "PROTOBUF": _schema_to_str(STAR.DESCRIPTOR.file)}[kind]
    return Schema(text, kind, [], None, RuleSet(None, [rule]))


def with_rules(url: str) -> dict[str, Any]:
    """Arguments of Confluent's serializers: the registry, and the executor of the rules."""
    LocalKmsDriver.register()
    rules = RuleRegistry()  # type: ignore[no-untyped-call]  # theirs
    rules.register_executor(FieldEncryptionExecutor())
    return {"schema_registry_client": SchemaRegistryClient({"url": url}), "rule_conf": SECRET, "rule_registry": rules}


class AvroWriter(AvroSerializer):
    """Writes rows as Avro."""

    def __init__(self, url: str) -> None:
        super().__init__(conf=SETTINGS, **with_rules(url))


class AvroReader(AvroDeserializer):
    """Reads rows, whose type it says."""

    def __init__(self, url: str) -> None:
        super().__init__(**with_rules(url))

    def arrow_type(self) -> Any:
        return COLUMNS


class JsonWriter(JSONSerializer):
    """Writes rows as JSON."""

    def __init__(self, url: str) -> None:
        super().__init__(None, conf=SETTINGS, **with_rules(url))


class JsonReader(JSONDeserializer):
    """Reads rows."""

    def __init__(self, url: str) -> None:
        super().__init__(None, **with_rules(url))


class ProtobufWriter(ProtobufSerializer):
    """Writes rows as messages."""

    def __init__(self, url: str) -> None:
        super().__init__(STAR, conf=SETTINGS, **with_rules(url))

    def __call__(self, row: dict[str, Any], ctx: Any = None) -> Any:
        return super().__call__(STAR(**row), ctx)


class ProtobufReader(ProtobufDeserializer):
    """Reads messages as rows."""

    def __init__(self, url: str) -> None:
        super().__init__(STAR, **with_rules(url))

    def __call__(self, data: bytes | None, ctx: Any = None) -> Any:
        return MessageToDict(super().__call__(data, ctx), preserving_proto_field_name=True)


def stage(name: str, url: str) -> dict[str, Any]:
    """An item of a list of stages, as a file of settings has it."""
    return {"class": f"{__name__}.{name}", "url": url}
