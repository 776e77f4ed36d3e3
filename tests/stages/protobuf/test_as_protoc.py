"""``.proto`` texts, read as protoc reads them: files of other packages, and ugly ones."""

from collections import defaultdict
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import pytest

from serde_chain.stages.protobuf import proto_text, proto_writer
from tests.stages.protobuf.protoc import compare, compiled, difference, include, pool_of, said
from tests.stages.protobuf.ugly_texts import SYNTAXES, UglyText

SEEDS: Final = range(200)
WRITTEN: Final = range(0, 200, 3)


@pytest.mark.full
def test_files_of_installed_packages(tmp_path: Path) -> None:
    names = defaultdict(set)
    names[include()] = {path.relative_to(include()).as_posix() for path in include().rglob("*.proto")}
    for distribution in metadata.distributions():
        for file in distribution.files or ():
            if file.suffix == ".proto" and file.parts[0] != "grpc_tools":
                names[Path(str(distribution.locate_file("")))].add(file.as_posix())
    assert sum(map(len, names.values())) > 60
    for folder, found in names.items():
        refused, differences = compare(folder, sorted(found), tmp_path / "out")
        assert not refused
        assert {name: lines for name, lines in differences.items() if lines} == {}


def written_to(folder: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    return folder


@pytest.mark.full
@pytest.mark.parametrize("syntax", range(len(SYNTAXES)), ids=SYNTAXES)
def test_ugly_files(tmp_path: Path, syntax: int) -> None:
    for seed in SEEDS[syntax :: len(SYNTAXES)]:
        ugly = UglyText(seed)
        files = compiled(written_to(tmp_path / str(seed), ugly.texts), [ugly.name], tmp_path / "out")
        theirs, ours = pool_of(files), pool_of(proto_text.parse(file.name, ugly.texts[file.name]) for file in files)
        for file in files:
            assert difference(said(theirs, file.name), said(ours, file.name)) == [], seed


ODD_TEXTS: Final = {
    "a byte order mark": '\ufeffsyntax="proto3"; message A{int32 a=1;}',
    "a comment that ends with CR": 'syntax = "proto3"; // x\rmessage A { int32 a = 1; }\n',
    "keywords as names": 'syntax="proto3"; message message { int32 message=1; string syntax=2; '
    "repeated int32 repeated=3; "
    "map<string,message> map=4; optional int32 optional=5; int32 oneof=6; int32 reserved=7; int32 extend=8; "
    "int32 group=9; int32 rpc=10; int32 returns=11; int32 stream=12; int32 to=13; int32 max=14; }",
    "empty statements": 'syntax="proto3";; message A{; int32 a=1;; enum E{; X=0;;} oneof o{ int32 b=2; } ;};;',
    "numbers": 'syntax="proto2"; message A{ optional float a=1 [default=1e400]; optional double b=2 [default=-inf]; '
    "optional double c=3 [default=-nan]; optional float d=4 [default=.5]; optional float e=5 [default=5.]; "
    "optional double f=6 [default=1e-400]; optional uint64 g=7 [default=0xFFFFFFFFFFFFFFFF]; "
    "optional int64 h=010 [default=-0777]; }",
    "texts": r"""syntax="proto2"; message A{ optional string a=1 [default="x" 'y'
      "z"]; optional bytes b=2 [default="\x41\101\u00e9\U0001F600\a\?\v"]; }""",
    "groups": 'syntax="proto2"; message A{ repeated group Foo=1 { optional group Bar=2 {} } optional Foo y=3; '
    "oneof o { group Baz=4 { } } }",
    "names within names": 'syntax="proto3"; package a.b; '
    "message a { message b { message C{} } b.C x=1; .a.b.a.b.C y=2; }",
    "reserved": 'syntax="proto3"; message A{ reserved 1,2 to 5,9 to max; reserved "a","b"; int32 c=8;} '
    'enum E{X=0; reserved -5 to -1, 7 to max; reserved "Q";}',
    "braces in options": 'syntax="proto3"; import "google/protobuf/descriptor.proto"; '
    "extend google.protobuf.FieldOptions{ string s=50001; Op o=50002; } message Op{ int32 x=1; repeated string y=2; } "
    'message A{ int32 a=1 [(s)="}; int32 b=2 {", (o)={x:1 y:["a","b"]}, json_name="q"]; }',
    "comments": 'syntax/*a*/=/*b*/"proto3"/*c*/;//d\nmessage/*e*/A/*f*/{/*g*/int32/*h*/a/*i*/=/*j*/1/*k*/;/**/}',
    "services": 'syntax="proto3"; service S{ rpc F(A) returns (stream A){ option deprecated=true; }; } message A{}',
    "an edition": 'edition="2024"; message A{ int32 a=1; } export message B{} local message C{}',
    "optional beside a oneof of its name": 'syntax="proto3"; message A{ optional int32 b=2; oneof _b{ int32 e=5; } }',
    "no syntax": "message A{ required int32 a=1; }",
    "30 levels": 'syntax="proto3"; '
    + "".join(f"message M{level} {{ " for level in range(30))
    + "int32 a=1;"
    + "}" * 30,
    "feeds": 'syntax="proto3";\f message A{\v int32 a=1;\t}',
}


@pytest.mark.parametrize("name", ODD_TEXTS)
def test_odd_files(tmp_path: Path, name: str) -> None:
    text = ODD_TEXTS[name]
    files = compiled(written_to(tmp_path, {"a.proto": text}), ["a.proto"], tmp_path / "out")
    ours = pool_of([*files[:-1], proto_text.parse("a.proto", text)])
    assert difference(said(pool_of(files), "a.proto"), said(ours, "a.proto")) == []


@pytest.mark.full
def test_protoc_reads_what_is_written(tmp_path: Path) -> None:
    """And finds the same messages in the same places, by which records name them."""
    count = 0
    for seed in WRITTEN:
        ugly = UglyText(seed)
        files = compiled(written_to(tmp_path / str(seed), ugly.texts), [ugly.name], tmp_path / "out")
        theirs, texts = pool_of(files), dict(ugly.texts)
        for file in files:
            text = written(resolved(theirs, file))
            texts[file.name] = texts[file.name] if text is None else text
            count += text is not None
        again = pool_of(compiled(written_to(tmp_path / f"{seed}-again", texts), [ugly.name], tmp_path / "out"))
        for file in files:
            assert difference(said(theirs, file.name), said(again, file.name)) == [], seed
    assert count > len(WRITTEN) / 2


def resolved(pool: Any, file: Any) -> Any:
    """A file as a message class has it."""
    copy = type(file)()
    pool.FindFileByName(file.name).CopyToProto(copy)
    return copy


def written(file: Any) -> str | None:
    """The file as a text; None for what has no such form here."""
    with suppress(ValueError):
        return proto_writer.write(file)
    return None
