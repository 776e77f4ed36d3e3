"""Message classes for tests, made without protoc: what a generated module would hold."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

__all__ = ["ALERT", "FILES", "FIRST", "POSITION", "VISIT", "descriptor_set", "make"]


def _field(message: Any, number: int, name: str, kind: str, *, repeated: bool = False, **options: Any) -> None:
    label = "LABEL_REPEATED" if repeated else "LABEL_OPTIONAL"
    if "." in kind:
        options |= {"type_name": kind}
        kind = "enum" if kind.endswith("Band") else "message"
    message.field.add(number=number, name=name, type=f"TYPE_{kind.upper()}", label=label, **options)


def _files() -> list[Any]:
    sky = descriptor_pb2.FileDescriptorProto(name="sky/position.proto", package="sky", syntax="proto3")
    position = sky.message_type.add(name="Position")
    _field(position, 1, "ra", "double")
    _field(position, 2, "dec", "double")

    survey = descriptor_pb2.FileDescriptorProto(
        name="survey/alert.proto",
        package="survey",
        syntax="proto3",
        dependency=["sky/position.proto", "google/protobuf/timestamp.proto"],
    )
    band = survey.enum_type.add(name="Band")
    for number, name in enumerate("UGR"):
        band.value.add(name=name, number=number)
    _field(survey.message_type.add(name="First"), 1, "id", "int64")
    alert = survey.message_type.add(name="Alert")
    _field(alert, 1, "id", "int64")
    _field(alert, 2, "name", "string")
    _field(alert, 3, "tags", "string", repeated=True)
    _field(alert, 4, "position", ".sky.Position")
    _field(alert, 5, "time", ".google.protobuf.Timestamp")
    _field(alert, 6, "band", ".survey.Band")
    _field(alert, 7, "cutout", "bytes")
    _field(alert, 8, "scores", ".survey.Alert.ScoresEntry", repeated=True)
    _field(alert, 9, "history", ".survey.Alert.Visit", repeated=True)
    _field(alert, 10, "magnitude", "double", proto3_optional=True, oneof_index=0)
    alert.oneof_decl.add(name="_magnitude")
    _field(alert, 11, "parent", ".survey.Alert")
    entry = alert.nested_type.add(name="ScoresEntry")
    entry.options.map_entry = True
    _field(entry, 1, "key", "string")
    _field(entry, 2, "value", "double")
    visit = alert.nested_type.add(name="Visit")
    _field(visit, 1, "flux", "double", repeated=True)
    return [sky, survey]


FILES = _files()


def make(name: str, files: list[Any] | None = None) -> Any:
    """The class of a message, out of a pool of its own."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for file in FILES if files is None else files:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


ALERT = make("survey.Alert")  # the second message of its file: its index is [1]
FIRST = message_factory.GetMessageClass(ALERT.DESCRIPTOR.file.message_types_by_name["First"])
VISIT = message_factory.GetMessageClass(ALERT.DESCRIPTOR.nested_types_by_name["Visit"])  # [1, 1]
POSITION = make("sky.Position")


def descriptor_set() -> bytes:
    """What protoc --descriptor_set_out writes, without --include_imports for protobuf's own files."""
    encoded: bytes = descriptor_pb2.FileDescriptorSet(file=FILES).SerializeToString()
    return encoded
