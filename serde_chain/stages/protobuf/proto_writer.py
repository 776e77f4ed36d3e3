"""The text of ``.proto`` files, written from a descriptor, for registries that take no descriptors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from serde_chain.stages.protobuf.proto_text import GROUP, REPEATED, SCALARS, escaped


def write(file: Any) -> str:
    """Write a file's text, without its comments and options that do not change bytes.

    Args:
        file: A ``FileDescriptorProto``.

    Returns:
        The text, which :func:`.proto_text.parse` reads, and other implementations too.

    Raises:
        ValueError: The file has extensions or an edition.
    """
    if file.syntax == "editions" or file.extension:
        raise ValueError("files with an edition or extensions are not written as text")
    syntax = file.syntax or "proto2"
    lines = [f'syntax = "{syntax}";']
    if file.package:
        lines.append(f"package {file.package};")
    lines += [
        f'import {"public " if at in file.public_dependency else ""}"{imported}";'
        for at, imported in enumerate(file.dependency)
    ]
    for message in file.message_type:
        lines += _message_lines(message, syntax)
    for enum in file.enum_type:
        lines += _enum_lines(enum)
    return "\n".join(lines) + "\n"


def _message_lines(message: Any, syntax: str) -> list[str]:
    if message.extension:
        raise ValueError("files with extensions are not written as text")
    inside = ["option message_set_wire_format = true;"] if message.options.message_set_wire_format else []
    for enum in message.enum_type:
        inside += _enum_lines(enum)
    inside += _member_lines(message, syntax)
    inside += [f"extensions {each.start} to {each.end - 1};" for each in message.extension_range]
    return [f"message {message.name} {{", *(f"  {line}" for line in inside), "}"]


def _member_lines(message: Any, syntax: str) -> Iterator[str]:
    """Fields and nested messages, each in their order, by which records name the second.

    The messages of maps and groups are written with their fields, behind those that precede them.
    """
    nested = {inner.name: inner for inner in message.nested_type}
    entries = {name: inner for name, inner in nested.items() if inner.options.map_entry}
    of_fields = {field.type_name.rpartition(".")[2] for field in message.field if field.type == GROUP} | set(entries)
    waiting = list(message.nested_type)

    def before(name: str) -> Iterator[str]:
        while waiting and waiting[0].name != name:
            inner = waiting.pop(0)
            if inner.name not in of_fields:
                yield from _message_lines(inner, syntax)

    written: set[int] = set()
    for field in message.field:
        if (kind := field.type_name.rpartition(".")[2]) in of_fields:
            yield from before(kind)
        if not field.HasField("oneof_index") or field.proto3_optional:
            yield from _field_lines(field, syntax, entries, nested, in_oneof=False)
        elif field.oneof_index not in written:
            written.add(field.oneof_index)
            yield f"oneof {message.oneof_decl[field.oneof_index].name} {{"
            for member in message.field:
                if member.HasField("oneof_index") and member.oneof_index == field.oneof_index:
                    yield from (f"  {line}" for line in _field_lines(member, syntax, entries, nested, in_oneof=True))
            yield "}"
    yield from before("")


def _field_lines(field: Any, syntax: str, entries: Any, nested: Any, *, in_oneof: bool) -> list[str]:
    kind = field.type_name.rpartition(".")[2]
    if field.label == REPEATED and kind in entries:
        key, value = (_type_of(member) for member in entries[kind].field)
        return [f"map<{key}, {value}> {field.name} = {field.number}{_in_brackets(_json_name_of(field))};"]
    label = "repeated " if field.label == REPEATED else "required " if field.label == 2 else "optional "
    if in_oneof or (syntax == "proto3" and field.label == 1 and not field.proto3_optional):
        label = ""
    if field.type == GROUP:
        _, *lines = _message_lines(nested[kind], syntax)
        return [f"{label}group {kind} = {field.number} {{", *lines]
    options = _json_name_of(field)
    if field.HasField("default_value"):
        kind, default = SCALARS[field.type - 1], field.default_value
        quoted = f'"{default}"' if kind == "bytes" else _quoted(default) if kind == "string" else default
        options.append(f"default = {quoted}")
    if field.options.HasField("packed"):
        options.append(f"packed = {'true' if field.options.packed else 'false'}")
    return [f"{label}{_type_of(field)} {field.name} = {field.number}{_in_brackets(options)};"]


def _in_brackets(options: list[str]) -> str:
    return f" [{', '.join(options)}]" if options else ""


def _json_name_of(field: Any) -> list[str]:
    is_set = field.json_name not in {"", _json_name(field.name)}
    return [f"json_name = {_quoted(field.json_name)}"] if is_set else []


def _type_of(field: Any) -> str:
    return str(field.type_name or SCALARS[field.type - 1])


def _quoted(text: str) -> str:
    return '"' + "".join(letter if letter > "\x7f" else escaped(letter.encode()) for letter in text) + '"'


def _json_name(name: str) -> str:
    """The name in ProtoJSON, if none is set: as protoc's ``ToJsonName``."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _enum_lines(enum: Any) -> list[str]:
    values = [f"  {value.name} = {value.number};" for value in enum.value]
    alias = ["  option allow_alias = true;"] if enum.options.allow_alias else []
    return [f"enum {enum.name} {{", *alias, *values, "}"]
