"""The text of ``.proto`` files: read into a descriptor, and written from one, as registries keep schemas.

The grammar is that of "Protocol Buffers Language Specification" (proto2, proto3 and editions). Read are the parts that
determine a message's bytes and fields: packages, imports, messages, fields, maps, oneofs, groups, enums, extensions,
and the options ``packed``, ``default``, ``allow_alias`` and the features of editions; other options, services and
reserved names are skipped. Types are resolved by protobuf's own descriptor pool.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from payload_stores.plugins import require

__all__ = ["parse", "write"]

_MAX_BYTES: Final = 1 << 20  # about a second
_MAX_DEPTH: Final = 100
_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)"""
    r"""|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<number>\.?\d(?:[eE][+-]|[\w.])*)"""
    r"""|(?P<name>\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"""
    r"""|(?P<mark>[-+={}\[\]()<>;,:/.])""",
    re.DOTALL,
)
_SCALARS: Final = (
    "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message", "bytes",
    "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip
_NUMBERS: Final = {name: at for at, name in enumerate(_SCALARS, 1) if name not in {"group", "message", "enum"}}
_LABELS: Final = {"optional": 1, "required": 2, "repeated": 3}
_GROUP: Final = 10
_MESSAGE: Final = 11
_REPEATED: Final = 3
_EDITIONS: Final = {"2023": 1000, "2024": 1001}
_ESCAPE: Final = re.compile(rb"\\([xX][0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPED: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}

_BYTES: Final = {
    ord(byte): f"\\{name}" for byte, name in (*zip("\n\r\t", "nrt", strict=True), *zip("\\'\"", "\\'\"", strict=True))
}


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def parse(name: str, text: str) -> Any:
    """Read a file.

    Args:
        name: Its name in imports.
        text: Its text.

    Returns:
        A ``FileDescriptorProto``, whose references to types are as they are in the text.

    Raises:
        ValueError: The text is not a ``.proto`` file.
        MissingDependencyError: protobuf is not installed.

    Example:
        >>> file = parse("a.proto", 'syntax = "proto3"; message Alert { int64 id = 1; }')
        >>> file.message_type[0].field[0].name
        'id'
    """
    if len(text) > _MAX_BYTES:
        raise ValueError(f"it has more than {_MAX_BYTES} characters")
    return _Parser(text).file(name)


class _Parser:
    """A recursive-descent parser, one token ahead."""

    def __init__(self, text: str) -> None:
        self._pb: Any = require("google.protobuf.descriptor_pb2", "protobuf")
        self._tokens = _tokens(text)
        self._syntax = "proto2"
        self._next = next(self._tokens)

    def file(self, name: str) -> Any:
        file = self._pb.FileDescriptorProto(name=name)
        while self._next.kind != "end":
            word = self._take().text
            if word in {"syntax", "edition"}:
                self._expect("=")
                self._set_syntax(file, word, self._text().decode())
                self._expect(";")
            elif word == "package":
                file.package = self._name()
                self._expect(";")
            elif word == "import":
                kind = self._take().text if self._next.text in {"public", "weak", "option"} else ""
                if kind == "public":
                    file.public_dependency.append(len(file.dependency))
                imported = self._text().decode()
                if kind != "option":
                    file.dependency.append(imported)
                self._expect(";")
            elif word == "option":
                self._option(file.options)
            elif word == "service":
                self._name()
                self._skip_block()
            else:
                self._declaration(word, file.message_type, file.enum_type, file.extension, 0)
        return file

    def _set_syntax(self, file: Any, word: str, value: str) -> None:
        self._syntax = word if word == "edition" else value
        if word == "edition":
            if value not in _EDITIONS:
                raise self._wrong(f"the edition {value[:20]}")
            file.syntax, file.edition = "editions", _EDITIONS[value]
        elif value == "proto3":
            file.syntax = value
        elif value != "proto2":
            raise self._wrong(f"the syntax {value[:20]}")

    def _declaration(self, word: str, messages: Any, enums: Any, extensions: Any, depth: int) -> None:
        """A message, enum or extension, in a file or message; or an empty statement."""
        if word == "message" or (word in {"export", "local"} and self._next.text == "message"):
            if word != "message":
                self._take()
            self._message(messages.add(name=self._name()), depth + 1)
        elif word == "enum" or (word in {"export", "local"} and self._next.text == "enum"):
            if word != "enum":
                self._take()
            self._enum(enums.add(name=self._name()))
        elif word == "extend":
            extended = self._name()
            self._expect("{")
            while not self._is("}"):
                self._field(self._take().text, extensions, messages, depth + 1).extendee = extended
        elif word != ";":
            raise self._wrong(word)

    def _message(self, message: Any, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise ValueError(f"its messages nest deeper than {_MAX_DEPTH} levels")
        self._expect("{")
        while not self._is("}"):
            word = self._take().text
            if word == "oneof" and self._next.kind == "name":
                self._oneof(message, depth)
            elif word == "option" and self._next.kind in {"name", "mark"}:
                self._option(message.options)
            elif word == "extensions":
                self._extensions(message)
            elif word == "reserved":
                self._skip_statement()
            elif word in {"message", "enum", "extend", ";", "export", "local"} and self._declares(word):
                self._declaration(word, message.nested_type, message.enum_type, message.extension, depth)
            else:
                self._field(word, message.field, message.nested_type, depth)
        self._number_optionals(message)

    def _declares(self, word: str) -> bool:
        return word == ";" or self._next.kind == "name"

    def _oneof(self, message: Any, depth: int) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._name())
        self._expect("{")
        while not self._is("}"):
            word = self._take().text
            if word == "option":
                self._option(None)
            elif word != ";":
                self._field(word, message.field, message.nested_type, depth).oneof_index = index

    def _field(self, word: str, fields: Any, messages: Any, depth: int) -> Any:
        label = _LABELS.get(word) if self._next.kind == "name" or self._next.text == "<" else None
        kind = self._rest(self._take().text if label is not None else word)
        if kind == "map" and self._next.text == "<":
            return self._map(fields, messages)
        field = fields.add(label=label or 1)
        if kind == "group":
            field.name = (name := self._name()).lower()
            field.type, field.type_name = _GROUP, name
            field.number = self._number_after("=")
            self._field_options(field)
            self._message(messages.add(name=name), depth + 1)
            return field
        if kind in _NUMBERS:
            field.type = _NUMBERS[kind]
        elif re.fullmatch(r"\.?[A-Za-z_][\w.]*", kind):
            field.type_name = kind  # a message or an enum: the pool finds out
        else:
            raise self._wrong(kind)
        field.name = self._name()
        field.number = self._number_after("=")
        field.proto3_optional = self._syntax == "proto3" and label == 1
        if not field.proto3_optional:
            field.ClearField("proto3_optional")
        self._field_options(field)
        self._expect(";")
        return field

    def _map(self, fields: Any, messages: Any) -> Any:
        self._expect("<")
        key = self._name()
        self._expect(",")
        value = self._name()
        self._expect(">")
        field = fields.add(label=_REPEATED, type=_MESSAGE, name=self._name())
        field.number = self._number_after("=")
        self._field_options(field)
        self._expect(";")
        entry = messages.add(name="".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry")
        entry.options.map_entry = True
        for number, (name, kind) in enumerate((("key", key), ("value", value)), 1):
            member = entry.field.add(name=name, number=number, label=1)
            if kind in _NUMBERS:
                member.type = _NUMBERS[kind]
            else:
                member.type_name = kind
        field.type_name = entry.name
        return field

    @staticmethod
    def _number_optionals(message: Any) -> None:
        """Each optional field of proto3 is the only one of a oneof, after the others ("synthetic oneofs")."""
        taken = {field.name for field in message.field} | {oneof.name for oneof in message.oneof_decl}
        for field in message.field:
            if field.proto3_optional:
                name = f"_{field.name}"
                while name in taken:
                    name = f"X{name}"
                taken.add(name)
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=name)

    def _enum(self, enum: Any) -> None:
        self._expect("{")
        while not self._is("}"):
            word = self._take().text
            if word == "option" and self._next.text != "=":
                self._option(enum.options)
            elif word == "reserved" and self._next.text != "=":
                self._skip_statement()
            elif word != ";":
                value = enum.value.add(name=word)
                value.number = self._number_after("=")
                if self._is("["):
                    self._options(None)
                self._expect(";")

    def _extensions(self, message: Any) -> None:
        while True:
            start = self._integer()
            end = start
            if self._next.text == "to":
                self._take()
                end = (1 << 29) - 1 if self._next.text == "max" and self._take() else self._integer()
            message.extension_range.add(start=start, end=end + 1)
            if not self._is(","):
                break
        if self._is("["):
            self._options(None)
        self._expect(";")

    def _field_options(self, field: Any) -> None:
        if self._is("["):
            self._options(field)

    def _options(self, field: Any) -> None:
        """The options in brackets, whose first is read already."""
        while True:
            name, value = self._one_option()
            if field is not None and name == "default" and value is not None:
                field.default_value = _default(value, is_bytes=_SCALARS[field.type - 1] == "bytes")
            elif field is not None and name in {"packed", "deprecated"} and value is not None:
                setattr(field.options, name, value.text == "true")
            elif field is not None and name == "json_name" and value is not None:
                field.json_name = _unquoted(value.text).decode()
            elif field is not None and value is not None:
                self._feature(field.options, name, value.text)
            if self._is("]"):
                return
            self._expect(",")

    def _option(self, options: Any) -> None:
        name, value = self._one_option()
        self._expect(";")
        if options is None or value is None:
            return
        if (
            name in {"allow_alias", "map_entry", "message_set_wire_format"}
            and name in options.DESCRIPTOR.fields_by_name
        ):
            setattr(options, name, value.text == "true")
        self._feature(options, name, value.text)

    @staticmethod
    def _feature(options: Any, name: str, value: str) -> None:
        """A feature of an edition, such as ``features.field_presence = IMPLICIT``."""
        outer, _, inner = name.partition(".")
        if outer == "features" and inner in options.features.DESCRIPTOR.fields_by_name:
            kind = options.features.DESCRIPTOR.fields_by_name[inner].enum_type
            if kind is not None and value in kind.values_by_name:
                setattr(options.features, inner, kind.values_by_name[value].number)

    def _one_option(self) -> tuple[str, _Token | None]:
        """An option's name, and its value; None for a value in braces."""
        words = []
        while not self._is("="):
            words.append(self._take().text)
        name = "".join(words)
        if self._next.text == "{":
            self._skip_block()
            return name, None
        sign = self._take().text if self._next.text in {"-", "+"} else ""
        value = self._take()
        text = value.text
        if value.kind == "text" and self._next.kind == "text":
            more = [text[1:-1]]
            while self._next.kind == "text":
                more.append(self._take().text[1:-1])
            text = f"{text[0]}{''.join(more)}{text[0]}"
        return name, value._replace(text=sign + text)

    def _skip_statement(self) -> None:
        while not self._is(";"):
            self._take()

    def _skip_block(self) -> None:
        self._expect("{")
        depth = 1
        while depth:
            token = self._take()
            depth += (token.text == "{") - (token.text == "}") if token.kind == "mark" else 0

    def _take(self) -> _Token:
        token = self._next
        if token.kind == "end":
            raise self._wrong("the end of the text")
        self._next = next(self._tokens)
        return token

    def _is(self, mark: str) -> bool:
        """Whether a mark comes next, which is then read."""
        if self._next.text == mark:
            self._take()
            return True
        return False

    def _expect(self, mark: str) -> None:
        if not self._is(mark):
            raise self._wrong(self._next.text)

    def _name(self) -> str:
        if self._next.kind != "name" and self._next.text != ".":
            raise self._wrong(self._next.text)
        return self._rest(self._take().text)

    def _rest(self, name: str) -> str:
        """The whole of a name, whose parts may be apart: spaces, lines and comments may stand around its dots."""
        while name.endswith(".") or (self._next.text[:1] == "." and self._next.kind != "number"):
            name += self._take().text
        return name

    def _text(self) -> bytes:
        if self._next.kind != "text":
            raise self._wrong(self._next.text)
        return _unquoted(self._take().text)

    def _number_after(self, mark: str) -> int:
        self._expect(mark)
        return self._integer()

    def _integer(self) -> int:
        sign = -1 if self._is("-") else 1
        token = self._take()
        number = _integer(token.text)
        if token.kind != "number" or number is None or not -(1 << 31) <= sign * number < 1 << 31:
            raise self._wrong(token.text)
        return sign * number

    def _wrong(self, found: str) -> ValueError:
        return ValueError(f"line {self._next.line} has unexpected {found[:40] or 'end'}")


def _integer(text: str) -> int | None:
    try:
        return int(text, 8) if re.fullmatch(r"0[0-7]+", text) else int(text, 0)
    except ValueError:
        return None


def _default(value: _Token, *, is_bytes: bool) -> str:
    """A default as descriptors have it: numbers in decimal, bytes escaped as protoc does (``CEscape``)."""
    if value.kind == "text" and is_bytes:
        return "".join(
            _BYTES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in _unquoted(value.text)
        )
    if value.kind == "text":
        return _unquoted(value.text).decode("utf-8", "backslashreplace")
    number = _integer(value.text)
    return value.text if number is None else str(number)


def _unquoted(text: str) -> bytes:
    def unescape(match: re.Match[bytes]) -> bytes:
        what = match[1]
        if what[:1] in {b"x", b"X"} and len(what) > 1:
            return bytes((int(what[1:], 16),))
        if what[:1] in {b"u", b"U"} and len(what) > 1:
            return chr(int(what[1:], 16)).encode()
        return bytes((int(what, 8) & 255,)) if what[:1].isdigit() else _ESCAPED.get(what, what)

    return _ESCAPE.sub(unescape, text[1:-1].encode())


def _tokens(text: str) -> Iterator[_Token]:
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"line {line} has unexpected {text[at : at + 10]!r}")
        if match.lastgroup != "space":
            yield _Token(str(match.lastgroup), match[0], line)
        line += match[0].count("\n")
        at = match.end()
    yield _Token("end", "", line)
    while True:
        yield _Token("end", "", line)


def write(file: Any) -> str:
    """Write a file's text, without its comments and options that do not change bytes.

    Args:
        file: A ``FileDescriptorProto``.

    Returns:
        The text, which :func:`parse` reads, and other implementations too.

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
    entries = {entry.name: entry for entry in message.nested_type if entry.options.map_entry}
    groups = {field.type_name.rpartition(".")[2] for field in message.field if field.type == _GROUP}
    nested = {inner.name: inner for inner in message.nested_type}
    inside: list[str] = []
    for inner in message.nested_type:
        if inner.name not in entries and inner.name not in groups:
            inside += _message_lines(inner, syntax)
    for enum in message.enum_type:
        inside += _enum_lines(enum)
    written: set[int] = set()
    for field in message.field:
        if not field.HasField("oneof_index") or field.proto3_optional:
            inside += _field_lines(field, syntax, entries, nested, in_oneof=False)
        elif field.oneof_index not in written:
            written.add(field.oneof_index)
            inside.append(f"oneof {message.oneof_decl[field.oneof_index].name} {{")
            for member in message.field:
                if member.HasField("oneof_index") and member.oneof_index == field.oneof_index:
                    inside += [f"  {line}" for line in _field_lines(member, syntax, entries, nested, in_oneof=True)]
            inside.append("}")
    inside += [f"extensions {each.start} to {each.end - 1};" for each in message.extension_range]
    return [f"message {message.name} {{", *(f"  {line}" for line in inside), "}"]


def _field_lines(field: Any, syntax: str, entries: Any, nested: Any, *, in_oneof: bool) -> list[str]:
    kind = field.type_name.rpartition(".")[2]
    if field.label == _REPEATED and kind in entries:
        key, value = (_type_of(member) for member in entries[kind].field)
        return [f"map<{key}, {value}> {field.name} = {field.number};"]
    label = "repeated " if field.label == _REPEATED else "required " if field.label == 2 else "optional "
    if in_oneof or (syntax == "proto3" and field.label == 1 and not field.proto3_optional):
        label = ""
    if field.type == _GROUP:
        _, *lines = _message_lines(nested[kind], syntax)
        return [f"{label}group {kind} = {field.number} {{", *lines]
    options = []
    if field.HasField("default_value"):
        kind, default = _SCALARS[field.type - 1], field.default_value
        quoted = f'"{default}"' if kind == "bytes" else _quoted(default) if kind == "string" else default
        options.append(f"default = {quoted}")
    if field.options.HasField("packed"):
        options.append(f"packed = {'true' if field.options.packed else 'false'}")
    told = f" [{', '.join(options)}]" if options else ""
    return [f"{label}{_type_of(field)} {field.name} = {field.number}{told};"]


def _type_of(field: Any) -> str:
    return str(field.type_name or _SCALARS[field.type - 1])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _enum_lines(enum: Any) -> list[str]:
    values = [f"  {value.name} = {value.number};" for value in enum.value]
    alias = ["  option allow_alias = true;"] if enum.options.allow_alias else []
    return [f"enum {enum.name} {{", *alias, *values, "}"]
