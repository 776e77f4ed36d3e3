"""The fields of a message, for stages that move single fields (:class:`~serde_chain.base.FieldType`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from serde_chain.base import NO_FIELDS, FieldType
from serde_chain.stages.protobuf.dictionaries import is_dynamic
from serde_chain.stages.protobuf.schema import is_map, is_repeated


def field_type(descriptor: Any) -> FieldType:
    """The type of messages.

    Args:
        descriptor: The descriptor of their class.

    Example:
        >>> from google.protobuf.descriptor_pb2 import FileDescriptorProto
        >>> field_type(FileDescriptorProto.DESCRIPTOR).fields()["name"].holds_text
        True
    """
    known: dict[str, FieldType] = {}

    def of_message(message: Any) -> FieldType:
        if is_dynamic(message):
            return NO_FIELDS
        if message.full_name not in known:
            known[message.full_name] = FieldType(fields=cache(lambda: fields_of(message)))
        return known[message.full_name]

    def fields_of(message: Any) -> Mapping[str, FieldType]:
        return {field.name: of_field(field) for field in message.fields}

    def of_field(field: Any) -> FieldType:
        if is_map(field):
            return NO_FIELDS
        if field.message_type is not None:
            kind = of_message(field.message_type)
        else:
            kind = FieldType(holds_bytes=field.type == field.TYPE_BYTES, holds_text=field.type == field.TYPE_STRING)
        return FieldType(items=lambda: kind) if is_repeated(field) else kind

    return of_message(descriptor)
