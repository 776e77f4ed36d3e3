"""The text of ``.proto`` files: what protobuf's own files say is what is read, and what is written is read again."""

import importlib
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from serde_chain.stages.protobuf import proto_text, proto_writer
from serde_chain.stages.protobuf.schema import class_at
from tests.stages.protobuf import protobuf_messages

FILES = [
    *(f"google.protobuf.{name}_pb2" for name in ("api", "struct", "timestamp", "type", "wrappers")),
    *(f"google.{name}_pb2" for name in ("api.http", "rpc.status", "type.date")),
]


def plain(file: Any) -> Any:
    """A file's descriptor without the options and names that do not change bytes."""
    file.ClearField("options")
    file.ClearField("service")
    waiting = list(file.message_type)
    enums = list(file.enum_type)
    while waiting:
        message = waiting.pop()
        is_entry = message.options.map_entry
        for name in ("options", "reserved_range", "reserved_name"):
            message.ClearField(name)
        if is_entry:
            message.options.map_entry = True
        for field in message.field:
            field.ClearField("options")
            field.ClearField("json_name")
        waiting += message.nested_type
        enums += message.enum_type
    for enum in enums:
        enum.ClearField("options")
        for value in enum.value:
            value.ClearField("options")
    return file


@pytest.mark.parametrize("module", FILES)
def test_what_is_written_is_read_again(module: str) -> None:
    file = importlib.import_module(module).DESCRIPTOR
    expected = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(expected)
    parsed = proto_text.parse(expected.name, proto_writer.write(expected))
    pool = descriptor_pool.DescriptorPool()
    add(pool, file.dependencies)
    pool.AddSerializedFile(parsed.SerializeToString())  # resolves the types
    found = descriptor_pb2.FileDescriptorProto()
    pool.FindFileByName(expected.name).CopyToProto(found)
    assert plain(found) == plain(expected)


def add(pool: Any, files: Any) -> None:
    for file in files:
        add(pool, file.dependencies)
        pool.AddSerializedFile(file.serialized_pb)


def test_a_map_is_written_as_one() -> None:
    assert "map<string, double> scores = 8;" in proto_writer.write(protobuf_messages.FILES[1])


PROTO2 = """
syntax = 'proto2';
package old.style;
option java_package = "x.y"; option (custom).name = { a: "}" b: 1 };
message Outer {
  option deprecated = true;
  required int32 id = 0x10 [default = 010, (mine) = {x: 1}];
  repeated sint32 many = 2 [packed=true];
  optional string text = 3 [default = "a\\"" '\\x41' "\\n" , deprecated = true];
  optional group Part = 4 { optional bool flag = 5; }
  oneof which { Kind kind = 6; .old.style.Outer outer = 7; }
  extensions 100 to 199, 300 to max;
  reserved 8, 9 to 11; reserved "gone";
  enum Kind { option allow_alias = true; NONE = 0; NIL = 0; LOW = -5; reserved -7 to -6; };
  extend Outer { optional int64 more = 150; }
}
service Ignored { rpc Call(Outer) returns (stream Outer) { option x = 1; } }
"""


def test_proto2() -> None:
    outer = class_at([proto_text.parse("old.proto", PROTO2)], (0,))
    fields = outer.DESCRIPTOR.fields_by_name
    assert {name: field.number for name, field in fields.items()} == {
        "id": 16, "many": 2, "text": 3, "part": 4, "kind": 6, "outer": 7,
    }  # fmt: skip
    assert (outer().id, outer().text) == (8, 'a"A\n')
    message = outer(id=1, many=[-1, 2], part={"flag": True}, kind=-5)
    # Tags 0x80 01 (id), 0x12 (packed), 0x23 … 0x24 (group), 0x30 (kind).
    assert message.SerializeToString() == bytes.fromhex("1202010423280124 30fbffffffffffffffff01 800101")
    assert outer.FromString(message.SerializeToString()).WhichOneof("which") == "kind"


def test_editions() -> None:
    text = """edition = "2023"; option features.field_presence = IMPLICIT;
    message A { int32 id = 1; int32 seen = 2 [features.field_presence = EXPLICIT]; repeated int32 all = 3; }"""
    fields = class_at([proto_text.parse("a.proto", text)], (0,)).DESCRIPTOR.fields_by_name
    assert [fields[name].has_presence for name in ("id", "seen")] == [False, True]


@pytest.mark.parametrize("name", ["B", 2, (0, 1)])
def test_messages_are_named_in_three_ways(name: Any) -> None:
    text = 'syntax = "proto3"; package p; message Z { message C {} message B {} } message A {}'
    assert class_at([proto_text.parse("p.proto", text)], name).DESCRIPTOR.full_name == {
        "B": "p.Z.B", 2: "p.Z.B", (0, 1): "p.Z.B",
    }[name]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("message A {", "line 1 has unexpected the end of the text"),
        ('syntax = "proto4";', "unexpected the syntax proto4"),
        ("message A { int32 id = x; }", "unexpected x"),
        ("message A { int32 id = 99999999999; }", "unexpected 99999999999"),
        ("\n\nmessage A { ? }", r"line 3 has unexpected \?"),
        ("message A {" * 200, "nest deeper than 100 levels"),
        ("/* no end", "line 1 has unexpected"),
        ("words alone", "unexpected words"),
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        proto_text.parse("a.proto", text)


def test_defaults_and_numbers_as_protoc_has_them() -> None:
    """Bytes as protoc's ``CEscape`` writes them, which the library reads back."""
    text = r"""syntax = "proto2";
        message M {
            optional bytes data = 1 [default = "a\\\001\xff\"\n'" "\X41é"];
            optional string text = 2 [default = "\\ \u00e9\U0001F600"];
            optional sint32 low = 3 [default = -2147483648];
        }
        enum E { A = -2147483648; B = 0x7fffffff; }"""
    file = proto_text.parse("m.proto", text)
    data, string, low = file.message_type[0].field
    assert data.default_value == r"a\\\001\377\"\n\'A\303\251"
    assert string.default_value == "\\ é😀"
    assert low.default_value == "-2147483648"
    assert [value.number for value in file.enum_type[0].value] == [-(2**31), 2**31 - 1]
    assert proto_text.parse("m.proto", proto_writer.write(file)) == file
    descriptor = class_at([file], (0,)).DESCRIPTOR
    assert descriptor.fields_by_name["data"].default_value == b"a\\\x01\xff\"\n'A\xc3\xa9"


@pytest.mark.parametrize("number", ["2147483648", "-2147483649"])
def test_enum_numbers_beyond_32_bits(number: str) -> None:
    with pytest.raises(ValueError, match="unexpected"):
        proto_text.parse("e.proto", f'syntax = "proto2"; enum E {{ A = {number}; }}')


def test_names_over_several_lines() -> None:
    text = """syntax = "proto3"; package a
        .b /* c */ . c;
        message M { a.
            b .c.N n = 1; repeated .a
            .b.c.N ns = 2; . a.b.c.N o = 3; map<string, .a . b.c.N> m = 4; message N {} }
        message N {}"""
    file = proto_text.parse("m.proto", text)
    assert file.package == "a.b.c"
    fields = file.message_type[0].field
    assert [field.type_name for field in fields] == ["a.b.c.N", ".a.b.c.N", ".a.b.c.N", "MEntry"]
    assert class_at([file], (0,)).DESCRIPTOR.fields_by_name["n"].message_type.full_name == "a.b.c.N"


@pytest.mark.parametrize("text", ["message M { a. = 1; }", "package a.;", "message M { .. x = 1; }"])
def test_names_that_end_with_a_dot(text: str) -> None:
    with pytest.raises(ValueError, match=r"unexpected|end"):
        proto_text.parse("m.proto", f'syntax = "proto3"; {text}')


def parsed(text: str) -> Any:
    return proto_text.parse("m.proto", text)


def test_names_without_spaces_around_their_dots() -> None:
    file = parsed(
        'syntax="proto2";message M{optional.M a=1;repeated . M b=2;extensions 9;}extend.M{optional int32 x=9;}'
    )
    assert [(field.label, field.type_name) for field in file.message_type[0].field] == [(1, ".M"), (3, ".M")]
    assert file.extension[0].extendee == ".M"


def test_adjacent_texts_are_one() -> None:
    text = r"""syntax = "pro" 'to2'; import "a" ".proto";
        message M { optional string s = 1 [default = "\x4" '1' "\1" "2" "\uD83D\uDE00", json_name = "x" "y"]; }"""
    file = parsed("\ufeff" + text)
    field = file.message_type[0].field[0]
    assert (file.dependency, field.json_name) == (["a.proto"], "xy")
    assert field.default_value == "\x041\x012😀"


def test_features_in_braces_and_in_all_places() -> None:
    text = """edition = "2023"; option features = { enum_type: CLOSED, repeated_field_encoding: EXPANDED
        [pb.cpp] { legacy_closed_enum: true } };
        option (more) = { url: "a", [example.com/a%20b!] <x: [1, {y: 2}]> };
        enum E { A = 1; }
        message M { repeated E es = 1; map<string, string> names = 2 [features.utf8_validation = NONE];
            oneof o { option features.(pb.cpp).string_type = VIEW;
                string s = 3 [features = {utf8_validation: NONE}]; } }"""
    file = parsed(text)
    assert (file.options.features.enum_type, file.options.features.repeated_field_encoding) == (2, 2)
    entry = file.message_type[0].nested_type[0]
    assert [field.options.features.utf8_validation for field in (*entry.field, file.message_type[0].field[2])] == [
        3
    ] * 3
    fields = class_at([file], (0,)).DESCRIPTOR.fields_by_name
    assert (fields["es"].is_packed, fields["es"].enum_type.is_closed) == (False, True)


def test_message_sets() -> None:
    file = parsed('syntax = "proto2"; message M { option message_set_wire_format = true; extensions 4 to max; }')
    assert file.message_type[0].extension_range[0].end == 2**31 - 1
    assert "message_set_wire_format" in proto_writer.write(file)


def test_what_is_written_keeps_the_places_of_messages_and_the_names_of_fields() -> None:
    """Records name messages by their places, with which maps count."""
    file = parsed(
        r'syntax = "proto3"; message M { map<string, N> a = 1 [json_name = "\u00e9\\\n"]; message N {} '
        "message O {} map<string, O> b = 2; message P {} }"
    )
    again = parsed(proto_writer.write(file))
    assert [nested.name for nested in again.message_type[0].nested_type] == ["AEntry", "N", "O", "BEntry", "P"]
    assert again == file


def test_names_of_optional_fields_and_defaults_of_doubles() -> None:
    file = parsed('syntax = "proto3"; message M { optional int32 _a = 1; }')
    assert [oneof.name for oneof in file.message_type[0].oneof_decl] == ["X_a"]
    file = parsed('syntax = "proto2"; message M { optional double d = 1 [default = 1e400]; }')
    assert file.message_type[0].field[0].default_value == "inf"


@pytest.mark.parametrize("name", ["local", "export"])
def test_words_of_later_editions_are_names_before(name: str) -> None:
    file = parsed(f'syntax = "proto3"; message M {{ {name} a = 1; }} message {name} {{}}')
    assert file.message_type[0].field[0].type_name == name
    file = parsed(f'edition = "2024"; {name} message M {{ {name} enum E {{ A = 0; }} }}')
    assert file.message_type[0].enum_type[0].name == "E"
