"""Generates unusual but valid ``.proto`` texts, for parsers that must agree with protoc."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, TypeVar

__all__ = ["SYNTAXES", "UglyText"]

SYNTAXES: Final = ("proto2", "proto3", "2023", "2024")
T = TypeVar("T")

_SCALARS: Final = (
    "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32",
    "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip
_KEYS: Final = tuple(kind for kind in _SCALARS if kind not in {"double", "float", "bytes"})
# Words of the grammar are names as well.
_WORDS: Final = (
    "optional_", "message_", "syntax", "stream", "rpc", "returns", "to", "max", "weak", "public", "inf", "nan", "true",
    "package", "import", "service", "default", "json_name", "packed", "group", "map", "features", "edition",
)  # fmt: skip
_SPACES: Final = (" ", "\n", "\t", "\r\n", ' /* ; } " */ ', "/**/", " // } ' \" /*\n", "\v", "\f ")
_INTS: Final = {
    "32": ("0", "1", "-1", "2147483647", "-2147483648", "0x7fffffff", "-0x80000000", "017", "-0"),
    "64": ("9223372036854775807", "-9223372036854775808", "0x7FFFFFFFFFFFFFFF", "0777"),
    "u32": ("0", "4294967295", "0xffffffff", "037777777777"),
    "u64": ("18446744073709551615", "0xffffffffffffffff", "01777777777777777777777"),
}
_REALS: Final = (
    "0", "1", "-1", "1.5", ".5", "-.5e-3", "1e10", "1E+10", "5.", "inf", "-inf", "nan", "-0.0", "0x10", "010",
    "3.4028235e38", "0.1", "18446744073709551616", "123456789012345678901234567890", "1e400",
)  # fmt: skip
_TEXTS: Final = (
    '""', "''", '"a"', '"\\x41\\X42\\103"', "'\\'\\\"\\?\\\\'", '"\\n\\t\\r\\a\\b\\f\\v"', '"// no /* comment"', '"é✓"',
    '"\\u00e9"', '"\\U0001F600"', '"\\uD83D\\uDE00"', '"\\0"', '"\\1" "1"', "'\\x4' \"1\"", '"{};[]"', "'\"'",
)  # fmt: skip
_BYTES: Final = (*_TEXTS, '"\\377\\xfe"', '"\\x0\\x00a"', "'\\200'")


class UglyText:
    """A file and what it imports, of one package, each as a text.

    Args:
        seed: Of all that is random.

    Attributes:
        texts: The texts by the files' names; each after those that it imports.
        name: The last one's name.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._syntax = SYNTAXES[seed % len(SYNTAXES)]
        self._package = self._one(("", "a", "a.b.c", "p.message_.q"))
        self._enums: dict[str, list[str]] = {}
        self._messages: list[str] = []
        self._extended: list[tuple[str, int]] = []
        self._count = 0
        self.texts: dict[str, str] = {}
        imports: list[str] = []
        for at, kind in enumerate((self._one(("", "weak")), "public", "")):
            self.name = f"{'x/' if at == 1 else ''}f{at}.proto"
            self._add_file(imports, kind)
            imports = [self.name] if kind == "public" else [*imports, self.name]

    @property
    def _is_edition(self) -> bool:
        return self._syntax.startswith("2")

    def _add_file(self, imports: Sequence[str], kind: str) -> None:
        marks = [self._statement("edition" if self._is_edition else "syntax", "=", self._quoted(self._syntax))]
        rest = [self._statement("package", *self._dotted(self._package))] if self._package else []
        for imported in imports:
            how = [kind] if kind == "public" or (kind == "weak" and self._syntax != "2024") else []
            rest.append(self._statement("import", *how, self._quoted(imported)))
        rest += self._options()
        self._random.shuffle(rest)
        body = [part for _ in range(3) for part in self._declarations(0, self._package)]
        marks += [*rest, *body, self._service()]
        text = self._typeset([token for statement in marks for token in statement])
        self.texts[self.name] = self._one(("", "", "\ufeff")) + text

    # Statements, as lists of tokens

    def _statement(self, *tokens: str) -> list[str]:
        return [*tokens, ";", *([";"] if self._chance(0.1) and tokens[0] in {"option", "import"} else [])]

    def _options(self) -> list[list[str]]:
        options = [["java_package", "=", self._quoted("x.y")]]
        if self._syntax == "2024":
            for name, value in (("enforce_naming_style", "STYLE_LEGACY"), ("default_symbol_visibility", "EXPORT_ALL")):
                options.append(["features", ".", name, "=", value])
        if self._is_edition and self._chance(0.8):
            name, value = self._feature("file")
            if self._chance(0.5) and self._syntax == "2023":
                options.append(["features", "=", "{", name, ":", value, "}"])
            else:
                options.append(["features", ".", name, "=", value])
        return [self._statement("option", *option) for option in options]

    def _feature(self, place: str) -> tuple[str, str]:
        choices = {
            "file": (
                ("field_presence", ("EXPLICIT", "IMPLICIT")),
                ("repeated_field_encoding", ("PACKED", "EXPANDED")),
                ("utf8_validation", ("VERIFY", "NONE")),
            ),
            "list": (("repeated_field_encoding", ("PACKED", "EXPANDED")),),
            "string": (("utf8_validation", ("VERIFY", "NONE")),),
            "message": (("message_encoding", ("LENGTH_PREFIXED", "DELIMITED")),),
        }
        name, values = self._one(choices[place])
        return name, self._one(values)

    def _declarations(self, depth: int, around: str) -> list[list[str]]:
        return [self._enum(around), self._message(depth, around), *self._extensions_of_others(around)]

    def _visibility(self) -> list[str]:
        if self._syntax != "2024" or self._chance(0.7):
            return []
        # Others import all but the last file.
        return [self._one(("export", "local")) if self.name == "f2.proto" else "export"]

    def _enum(self, around: str) -> list[str]:
        name, numbers = self._new("E"), [0, -1, 2147483647, -2147483648, 0x10]
        texts = ["0", "-1", "2147483647", "-2147483648", "0x10"]
        tokens = [*self._visibility(), "enum", name, "{"]
        if is_alias := self._chance(0.3):
            tokens += ["option", "allow_alias", "=", "true", ";"]
        first = 0 if self._syntax != "proto2" else self._random.randrange(len(numbers))
        order = [first, *(at for at in range(len(numbers)) if at != first and self._chance(0.7))]
        order += [first] if is_alias else []
        values = self._enums[_joined(around, name)] = []
        for at in order:
            sign, digits = (["-"], texts[at][1:]) if texts[at].startswith("-") else ([], texts[at])
            more = ["[", "deprecated", "=", "true", "]"] if self._chance(0.2) else []
            values.append(self._new(f"{name}_V"))
            tokens += [values[-1], "=", *sign, digits, *more, ";"]
        tokens += ["reserved", "100", "to", "110", ",", "-", "9", ";"] if self._chance(0.3) else []
        return [*tokens, "}"]

    def _message(self, depth: int, around: str) -> list[str]:
        name = self._new("M")
        full = _joined(around, name)
        self._messages.append(full)
        numbers = iter(self._random.sample([*range(1, 40), 18_999, 20_000, 536_870_911], 40))
        tokens = [*self._visibility(), "message", name, "{"]
        tokens += ["option", "deprecated", "=", "false", ";"] if self._chance(0.2) else []
        for _ in range(self._random.randint(0, 6)):
            tokens += self._member(numbers, depth, full)
        if self._syntax != "proto3" and self._chance(0.4):
            tokens += ["extensions", "1000", "to", "1999", ",", "2000", ";"]
            self._extended.append((full, 1000 + 20 * len(self._extended)))
        tokens += ["reserved", "40", ",", "50", "to", "60", ";"] if self._chance(0.3) else []
        if not self._is_edition and self._chance(0.3):
            tokens += ["reserved", '"gone"', ",", "'away'", ";"]
        return [*tokens, "}", *([";"] if self._chance(0.3) else [])]

    def _member(self, numbers: Any, depth: int, around: str) -> list[str]:
        match self._random.randint(0, 11):
            case 0 if depth < 3:
                return [token for part in self._declarations(depth + 1, around) for token in part]
            case 1:
                return self._map(next(numbers))
            case 2:
                inside = [token for _ in range(2) for token in self._field(numbers, depth, around, labels=False)]
                return ["oneof", self._new("o"), "{", *inside, "}"]
            case 3:
                return [";"]
        return self._field(numbers, depth, around)

    def _field(self, numbers: Any, depth: int, around: str, *, labels: bool = True) -> list[str]:
        label = self._label() if labels else []
        name, number = self._new(self._one(("f", "F", "_", "a_b_", "a__9", *_WORDS))), self._number(next(numbers))
        if self._syntax == "proto2" and depth < 3 and self._chance(0.15):
            group = self._new("G")
            self._messages.append(_joined(around, group))
            inside = [token for _ in range(2) for token in self._member(numbers, depth + 1, _joined(around, group))]
            return [*label, "group", group, "=", number, "{", *inside, "}"]
        kind, enum = self._one((*_SCALARS, "enum", "message")), ""
        if kind == "enum" and self._enums:
            enum = self._one(list(self._enums))
            of = self._reference(enum)
        elif kind in {"enum", "message"}:
            kind, of = "message", self._reference(self._one(self._messages))
            label = [part for part in label if part != "required"]  # a message may hold itself
            label = label or (["optional"] if self._syntax == "proto2" and labels else [])
        else:
            of = [kind]
        options = self._options_of(kind, label, self._enums[enum] if kind == "enum" else [], labels=labels)
        return [*label, *of, name, "=", str(number), *options, ";"]

    def _label(self) -> list[str]:
        if self._syntax == "proto2":
            return [self._one(("optional", "required", "repeated"))]
        label = self._one(("", "repeated", "optional") if self._syntax == "proto3" else ("", "repeated"))
        return [label] if label else []

    def _options_of(self, kind: str, label: list[str], values: list[str], *, labels: bool) -> list[str]:
        options: list[list[str]] = []
        is_list = label == ["repeated"]
        if self._chance(0.3):
            options.append(["json_name", "=", *self._quoted_twice(self._new("j"))])
        if is_list and kind not in {"string", "bytes", "message"} and self._chance(0.6):
            if self._is_edition:
                name, value = self._feature("list")
                options.append(["features", ".", name, "=", value])
            else:
                options.append(["packed", "=", self._one(("true", "false"))])
        if self._is_edition and kind in {"string", "message"} and self._chance(0.4):
            name, value = self._feature(kind)
            options.append(["features", ".", name, "=", value])
        if (self._syntax == "proto2" or (self._is_edition and labels)) and not is_list and self._chance(0.7):
            default = [self._one(values)] if values else self._default(kind)
            options += [["default", "=", *default]] if default else []
            if default and self._is_edition:
                options.append(["features", ".", "field_presence", "=", "EXPLICIT"])
        if self._chance(0.1):
            options.append(["deprecated", "=", "true"])
        self._random.shuffle(options)
        if not options:
            return []
        tokens = [token for option in options for token in (*option, ",")]
        return ["[", *tokens[:-1], "]"]

    def _default(self, kind: str) -> list[str]:
        if kind in {"double", "float"}:
            return _signed(self._one(_REALS))
        if kind == "bool":
            return [self._one(("true", "false"))]
        if kind in {"string", "bytes"}:
            return [self._one(_TEXTS if kind == "string" else _BYTES) for _ in range(self._random.randint(1, 3))]
        if kind == "message":
            return []
        size = "32" if kind.endswith("32") else "64"
        if kind.startswith(("u", "fixed")):
            return [self._one(_INTS["u32"] if size == "32" else _INTS["u32"] + _INTS["u64"])]
        return _signed(self._one(_INTS["32"] if size == "32" else _INTS["32"] + _INTS["64"]))

    def _map(self, number: int) -> list[str]:
        kinds = [*_SCALARS, "message", *(["enum"] if self._enums and self._syntax != "proto2" else [])]
        kind = self._one(kinds)
        value = [kind]
        if kind in {"enum", "message"}:
            value = self._reference(self._one(list(self._enums) if kind == "enum" else self._messages))
        options = []
        if self._is_edition and self._chance(0.4):
            name, feature = self._feature("string")
            options = ["[", "features", ".", name, "=", feature, "]"]
        key = "string" if options else self._one(_KEYS)
        name = self._new(self._one(("m", "_m_n", "mN_", "M")))
        return ["map", "<", key, ",", *value, ">", name, "=", str(number), *options, ";"]

    def _extensions_of_others(self, around: str) -> list[list[str]]:
        if not self._extended or self._chance(0.5):
            return []
        at = self._random.randrange(len(self._extended))
        full, number = self._extended[at]
        self._extended[at] = full, number + 2
        label = ["repeated"] if self._is_edition else [self._one(("optional", "repeated"))]
        fields = []
        for offset in range(2):
            fields += [*label, self._one(_SCALARS), self._new("x"), "=", str(number + offset), ";"]
        return [["extend", *self._reference(full), "{", *fields, "}"]]

    def _service(self) -> list[str]:
        if not self._messages or self._chance(0.6):
            return []
        one = self._reference(self._messages[0])
        rpc = ["rpc", "Call", "(", "stream", *one, ")", "returns", "(", *one, ")"]
        return ["service", self._new("S"), "{", *rpc, "{", "option", "deprecated", "=", "true", ";", "}", "}"]

    # Words

    def _one(self, choices: Sequence[T]) -> T:
        return self._random.choice(choices)

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _new(self, start: str) -> str:
        self._count += 1
        return f"{start}{self._count}"

    def _number(self, number: int) -> str:
        return self._one((str(number), hex(number), f"0{number:o}"))

    def _reference(self, full: str) -> list[str]:
        """A type as tokens: its full name, or that within the package."""
        inside = full.removeprefix(f"{self._package}.")
        return self._dotted(inside) if self._chance(0.4) else [".", *self._dotted(full)]

    @staticmethod
    def _dotted(name: str) -> list[str]:
        return name.replace(".", " . ").split()

    def _quoted(self, text: str) -> str:
        return self._one((f'"{text}"', f"'{text}'"))

    def _quoted_twice(self, text: str) -> list[str]:
        return [self._quoted(text[:1]), self._quoted(text[1:])]

    def _typeset(self, tokens: list[str]) -> str:
        parts, before = [], ""
        for token in tokens:
            is_needed = before[-1:].isalnum() or before.endswith("_")
            is_needed = is_needed and (token[0].isalnum() or token[0] == "_" or before[-1].isdigit())
            # Two marks may be a comment, and a dot before a digit a number.
            if is_needed or before == "." or self._chance(0.4):
                parts.append(self._one(_SPACES) if self._chance(0.4) else " ")
            parts.append(token)
            before = token
        return "".join(parts) + self._one(("", "\n", "// the end", "/* the end */"))


def _joined(around: str, name: str) -> str:
    return f"{around}.{name}" if around else name


def _signed(number: str) -> list[str]:
    return ["-", number[1:]] if number.startswith("-") else [number]
