"""The text of ``.proto`` files, read into a descriptor, as registries keep schemas.

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

_MAX_BYTES: Final = 1 << 20  # about a second
_MAX_DEPTH: Final = 100
_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)"""
    r"""|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<number>\.?\d(?:[eE][+-]|[\w.])*)"""
    r"""|(?P<name>[A-Za-z_]\w*)"""
    # Aggregate options may hold more than the grammar's own marks, such as URLs.
    r"""|(?P<mark>(?!/\*)[!#-&(-/:-@\[\]^`{-~])""",
    re.DOTALL | re.ASCII,
)
SCALARS: Final = (
    "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message", "bytes",
    "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip
_NUMBERS: Final = {name: at for at, name in enumerate(SCALARS, 1) if name not in {"group", "message", "enum"}}
_LABELS: Final = {"optional": 1, "required": 2, "repeated": 3}
GROUP: Final = 10
_MESSAGE: Final = 11
REPEATED: Final = 3
_EDITIONS: Final = {"2023": 1000, "2024": 1001}
# On these, readers and writers of messages depend; protoc drops others from descriptors.
_FEATURES: Final = frozenset({
    "field_presence", "enum_type", "repeated_field_encoding", "utf8_validation", "message_encoding", "json_format",
})  # fmt: skip
_MAX_NUMBER: Final = (1 << 29) - 1
_MAX_OF_MESSAGE_SET: Final = (1 << 31) - 2
_ESCAPE: Final = re.compile(
    rb"\\(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|[xX][0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)",
    re.DOTALL,
)
_LENGTH_OF_PAIR: Final = len("uD83D\\uDE00")
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
    return _Parser(text.removeprefix("\ufeff")).file(name)


class _Parser:
    """A recursive-descent parser, one token ahead."""

    def __init__(self, text: str) -> None:
        self._pb: Any = require("google.protobuf.descriptor_pb2", "protobuf")
        self._tokens = _tokens(text)
        self._syntax, self._edition = "proto2", ""
        self._next = next(self._tokens)

    def file(self, name: str) -> Any:
        file = self._pb.FileDescriptorProto(name=name)
        while self._next.kind != "end":
            word = self._take().text
            if word in {"syntax", "edition"}:
                self._expect("=")
                self._set_syntax(file, word, self._text())
                self._expect(";")
            elif word == "package":
                file.package = self._name()
                self._expect(";")
            elif word == "import":
                kind = self._take().text if self._next.text in {"public", "weak", "option"} else ""
                if kind == "public":
                    file.public_dependency.append(len(file.dependency))
                imported = self._text()
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
            self._edition = value
        elif value == "proto3":
            file.syntax = value
        elif value != "proto2":
            raise self._wrong(f"the syntax {value[:20]}")

    def _declaration(self, word: str, messages: Any, enums: Any, extensions: Any, depth: int) -> None:
        """A message, enum or extension, in a file or message; or an empty statement."""
        if self._is_visibility(word):
            word = self._take().text
        if word == "message":
            self._message(messages.add(name=self._name()), depth + 1)
        elif word == "enum":
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
            elif word == ";" or (
                (word in {"message", "enum", "extend"} or self._is_visibility(word)) and self._names_follow()
            ):
                self._declaration(word, message.nested_type, message.enum_type, message.extension, depth)
            else:
                self._field(word, message.field, message.nested_type, depth)
        self._number_optionals(message)
        if message.options.message_set_wire_format:
            for each in message.extension_range:
                each.end = _MAX_OF_MESSAGE_SET + 1 if each.end == _MAX_NUMBER + 1 else each.end

    def _names_follow(self) -> bool:
        return self._next.kind == "name" or self._next.text == "."

    def _is_visibility(self, word: str) -> bool:
        """Whether a word says who may import what follows; before edition 2024, types may have such names."""
        return word in {"export", "local"} and self._edition == "2024"

    def _oneof(self, message: Any, depth: int) -> None:
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=self._name())
        self._expect("{")
        while not self._is("}"):
            word = self._take().text
            if word == "option":
                self._option(oneof.options)
            elif word != ";":
                self._field(word, message.field, message.nested_type, depth).oneof_index = index

    def _field(self, word: str, fields: Any, messages: Any, depth: int) -> Any:
        label = _LABELS.get(word) if self._names_follow() or self._next.text == "<" else None
        kind = self._rest(self._take().text if label is not None else word)
        if kind == "map" and self._next.text == "<":
            return self._map(fields, messages)
        field = fields.add(label=label or 1)
        if kind == "group":
            field.name = (name := self._name()).lower()
            field.type, field.type_name = GROUP, name
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
        field = fields.add(label=REPEATED, type=_MESSAGE, name=self._name())
        field.number = self._number_after("=")
        self._field_options(field)
        self._expect(";")
        entry = messages.add(name="".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry")
        entry.options.map_entry = True
        for number, (name, kind) in enumerate((("key", key), ("value", value)), 1):
            member = entry.field.add(name=name, number=number, label=1)
            if field.options.HasField("features"):
                member.options.features.CopyFrom(field.options.features)
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
                name = f"_{field.name.removeprefix('_')}"
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
                self._field_options(None)
                self._expect(";")

    def _extensions(self, message: Any) -> None:
        while True:
            start = self._integer()
            end = start
            if self._next.text == "to":
                self._take()
                end = _MAX_NUMBER if self._next.text == "max" and self._take() else self._integer()
            message.extension_range.add(start=start, end=end + 1)
            if not self._is(","):
                break
        self._field_options(None)
        self._expect(";")

    def _field_options(self, field: Any) -> None:
        """The options in brackets, if there are any; they are skipped for None."""
        if not self._is("["):
            return
        while True:
            for name, value in self._one_option():
                if field is None:
                    continue
                if name == "default":
                    # Without a type, it is an enum's.
                    field.default_value = _default(value, SCALARS[field.type - 1] if field.HasField("type") else "")
                elif name in {"packed", "deprecated"}:
                    setattr(field.options, name, value == "true")
                elif name == "json_name" and isinstance(value, bytes):
                    field.json_name = _decoded(value)
                else:
                    self._feature(field.options, name, value)
            if self._is("]"):
                return
            self._expect(",")

    def _option(self, options: Any) -> None:
        for name, value in self._one_option():
            if name in {"allow_alias", "message_set_wire_format"} and name in options.DESCRIPTOR.fields_by_name:
                setattr(options, name, value == "true")
            else:
                self._feature(options, name, value)
        self._expect(";")

    @staticmethod
    def _feature(options: Any, name: str, value: str | bytes) -> None:
        """A feature of an edition, such as ``features.field_presence = IMPLICIT``."""
        outer, _, inner = name.partition(".")
        if outer == "features" and inner in _FEATURES:
            kind = options.features.DESCRIPTOR.fields_by_name[inner].enum_type
            if value in kind.values_by_name:
                setattr(options.features, inner, kind.values_by_name[value].number)

    def _one_option(self) -> list[tuple[str, str | bytes]]:
        """An option's name and value, bytes for a text.

        ``features = { a: B c: D }`` is ``features.a = B`` and ``features.c = D``.
        """
        words = []
        while not self._is("="):
            words.append(self._take().text)
        name = "".join(words)
        if self._next.text == "{":
            return [(f"{name}.{inner}", value) for inner, value in self._aggregate()]
        if self._next.kind == "text":
            return [(name, self._texts())]
        sign = self._take().text if self._next.text in {"-", "+"} else ""
        return [(name, sign + self._take().text)]

    def _aggregate(self) -> Iterator[tuple[str, str]]:
        """The names with a single word as their value, of a value in braces; others are skipped."""
        self._expect("{")
        depth = 0
        while depth >= 0:
            token = self._take()
            if token.kind == "mark":
                depth += (token.text in "{<[") - (token.text in "}>]")
            elif token.kind == "name" and not depth and self._is(":") and self._next.kind == "name":
                yield token.text, self._take().text

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
        if not self._names_follow():
            raise self._wrong(self._next.text)
        return self._rest(self._take().text)

    def _rest(self, name: str) -> str:
        """The whole of a name, whose parts may be apart: spaces, lines and comments may stand around its dots."""
        while name.endswith(".") or self._next.text == ".":
            name += self._take().text
        return name

    def _text(self) -> str:
        if self._next.kind != "text":
            raise self._wrong(self._next.text)
        return _decoded(self._texts())

    def _texts(self) -> bytes:
        """Adjacent texts, which are one."""
        parts = []
        while self._next.kind == "text":
            parts.append(_unquoted(self._take().text))
        return b"".join(parts)

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


def _default(value: str | bytes, kind: str) -> str:
    """A default as descriptors have it: numbers in decimal, bytes escaped as protoc does (``CEscape``)."""
    if isinstance(value, bytes):
        return escaped(value) if kind == "bytes" else _decoded(value)
    number = _integer(value)
    if number is not None:
        return str(number)
    # Beyond the largest, it is infinite.
    return str(float(value)) if kind in {"double", "float"} else value


def escaped(value: bytes) -> str:
    """Bytes as protoc's ``CEscape`` writes them."""
    return "".join(_BYTES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in value)


def _decoded(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _unquoted(text: str) -> bytes:
    def unescape(match: re.Match[bytes]) -> bytes:
        what = match[1]
        if what[:1] in {b"x", b"X"} and len(what) > 1:
            return bytes((int(what[1:], 16),))
        if len(what) == _LENGTH_OF_PAIR:
            return bytes.fromhex((what[1:5] + what[7:]).decode()).decode("utf-16-be").encode()
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
