"""protoc, the reference for ``.proto`` texts, out of grpcio-tools; and what a descriptor says, to compare two.

``python -m tests.stages.protobuf.protoc FOLDER`` compares all files of a folder.
"""

from __future__ import annotations

import difflib
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from serde_chain.stages.protobuf import proto_text

__all__ = ["RefusedError", "compare", "compiled", "difference", "include", "pool_of", "said"]

# Of these, bytes and fields do not depend; a text of the registry may lack them.
_SKIPPED: Final = frozenset({
    "service", "source_code_info", "weak_dependency", "option_dependency", "reserved_range", "reserved_name",
    "visibility",
})  # fmt: skip
_KEPT: Final = frozenset({"map_entry", "message_set_wire_format", "allow_alias", "packed", "features"})
_FEATURES: Final = frozenset({
    "field_presence", "enum_type", "repeated_field_encoding", "utf8_validation", "message_encoding", "json_format",
})  # fmt: skip


class RefusedError(Exception):
    """protoc has refused a file."""


def include() -> Path:
    """The folder with protobuf's own files."""
    tools: Any = pytest.importorskip("grpc_tools", reason="the lowest versions have no grpcio-tools")
    return Path(tools.__file__).parent / "_proto"


def compiled(folder: Path, names: Iterable[str], out: Path) -> list[Any]:
    """Compile files.

    Args:
        folder: The folder that their names are relative to.
        names: Their names.
        out: A file to write.

    Returns:
        ``FileDescriptorProto`` objects of all files, each behind its imports.

    Raises:
        RefusedError: They are no ``.proto`` files; protoc has printed why.
    """
    own = include()
    from grpc_tools import protoc

    paths = f"-I{folder}", f"-I{own}"
    if protoc.main(["protoc", *paths, "--include_imports", f"--descriptor_set_out={out}", *names]):
        raise RefusedError
    return list(descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file)


def pool_of(files: Iterable[Any]) -> Any:
    """A pool of files, each behind its imports."""
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def said(pool: Any, name: str) -> Any:
    """What a file says about bytes and fields, with all that the pool finds out.

    Args:
        pool: A pool with the file.
        name: The file's name.

    Returns:
        A ``FileDescriptorProto``.
    """
    found = pool.FindFileByName(name)
    file = descriptor_pb2.FileDescriptorProto()
    found.CopyToProto(file)
    waiting = [
        *zip(file.message_type, found.message_types_by_name.values(), strict=True),
        *zip(file.extension, found.extensions_by_name.values(), strict=True),
    ]
    while waiting:
        proto, descriptor = waiting.pop()
        if isinstance(proto, descriptor_pb2.FieldDescriptorProto):
            proto.json_name = descriptor.json_name
            continue
        waiting += zip(proto.nested_type, descriptor.nested_types, strict=True)
        waiting += zip(proto.field, descriptor.fields, strict=True)
        waiting += zip(proto.extension, descriptor.extensions, strict=True)
    _strip(file)
    return file


def _strip(message: Any) -> None:
    for field, value in list(message.ListFields()):
        if field.name in _SKIPPED:
            message.ClearField(field.name)
        elif field.name == "options":
            _strip_options(value)
            if not value.ListFields():
                message.ClearField("options")
        elif field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                _strip(inner)


def _strip_options(options: Any) -> None:
    options.DiscardUnknownFields()
    for field, value in list(options.ListFields()):
        if field.is_extension:
            options.ClearExtension(field)
        elif field.name not in _KEPT:
            options.ClearField(field.name)
        elif field.name == "features":
            for feature, _ in list(value.ListFields()):
                if feature.is_extension:
                    value.ClearExtension(feature)
                elif feature.name not in _FEATURES:
                    value.ClearField(feature.name)
            if not value.ListFields():
                options.ClearField("features")


def difference(theirs: Any, ours: Any) -> list[str]:
    """The lines in which two descriptors differ, as a patch; none if they do not."""
    return list(difflib.unified_diff(str(theirs).splitlines(), str(ours).splitlines(), "protoc", "ours", lineterm=""))


def compare(folder: Path, names: Sequence[str], out: Path) -> tuple[list[str], dict[str, list[str]]]:
    """Compare our parser with protoc, file by file.

    Args:
        folder: The folder that the files' names are relative to; imports are looked up there, too.
        names: Their names.
        out: A file to write.

    Returns:
        The names of those that protoc refuses, and the differences by the names of the others; equal files have none.
    """
    refused, found = [], {}
    for name in names:
        try:
            files = compiled(folder, [name], out)
            pool = pool_of(files)
        except (RefusedError, TypeError):  # the second by the library, which knows fewer editions
            refused.append(name)
            continue
        try:
            texts = [next(at / file.name for at in (folder, include()) if (at / file.name).exists()) for file in files]
            ours = pool_of(
                proto_text.parse(file.name, text.read_text("utf-8")) for file, text in zip(files, texts, strict=True)
            )
            found[name] = difference(said(pool, name), said(ours, name))
        except (ValueError, TypeError) as error:
            found[name] = [f"{type(error).__name__}: {error}"]
    return refused, found


def main(folder: Path) -> None:
    """Compare all files of a folder, and print the differences."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as place:
        refused, found = compare(folder, names, Path(place, "out"))
    wrong = {name: lines for name, lines in found.items() if lines}
    for name, lines in wrong.items():
        sys.stdout.write("\n    ".join((f"{name}:", *lines)) + "\n")
    equal = len(found) - len(wrong)
    sys.stdout.write(f"{equal} files are equal, {len(wrong)} are not; protoc refuses {len(refused)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
