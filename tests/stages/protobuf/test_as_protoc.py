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


@pytest.mark.parametrize("syntax", range(len(SYNTAXES)), ids=SYNTAXES)
def test_ugly_files(tmp_path: Path, syntax: int) -> None:
    for seed in SEEDS[syntax :: len(SYNTAXES)]:
        ugly = UglyText(seed)
        files = compiled(written_to(tmp_path / str(seed), ugly.texts), [ugly.name], tmp_path / "out")
        theirs, ours = pool_of(files), pool_of(proto_text.parse(file.name, ugly.texts[file.name]) for file in files)
        for file in files:
            assert difference(said(theirs, file.name), said(ours, file.name)) == [], seed


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
