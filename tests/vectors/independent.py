"""Readers written from the page docs/wire-formats.md alone: nothing here imports ours.

They show that the pages say enough. Each takes a vector, and returns the payload or raises ValueError.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

BUCKET: Final = "vectors"


def _headers(vector: Mapping[str, Any]) -> dict[str, bytes]:
    return {name: bytes.fromhex(value) for name, value in vector.get("headers", ())}  # the last one counts


def _fetch(
    vector: Mapping[str, Any], reference: bytes, size: bytes | None = None, digest: bytes | None = None
) -> bytes:
    if len(reference) > 8192:
        raise ValueError("a long reference")
    found = re.fullmatch(rf"s3://{BUCKET}/(.+)", reference.decode("utf-8"))
    segments = [] if found is None else [unquote(segment) for segment in found[1].split("/")]
    if not segments or any(segment in {"", ".", ".."} or "/" in segment for segment in segments):
        raise ValueError("not trusted")
    data = bytes.fromhex(vector["objects"].get("/".join(segments)) or _missing())
    if size is not None and (not re.fullmatch(rb"[0-9]+", size) or int(size) != len(data)):
        raise ValueError("another size")
    if digest is not None and digest.decode() != f"sha256:{hashlib.sha256(data).hexdigest()}":
        raise ValueError("another digest")
    return data


def _missing() -> str:
    raise ValueError("no such object")


def kip1159(vector: Mapping[str, Any]) -> bytes:
    data, headers = bytes.fromhex(vector["record"]), _headers(vector)
    name = "large-message" if vector["field"] == "value" else "large-message-key"
    mark = headers.get(name, b"false").lower()
    if mark == b"false":
        return data
    if mark != b"true":
        raise ValueError("the mark")
    return _fetch(vector, data, headers.get(f"{name}-size"), headers.get(f"{name}-digest"))


def bakdata(vector: Mapping[str, Any]) -> bytes:
    data, headers = bytes.fromhex(vector["record"]), _headers(vector)
    if vector["config"]["large.message.accept"] == "bakdata-flag":
        mark, data = data[:1], data[1:]
    else:
        mark = headers.get(f"__large.message.backed.{vector['field']}", b"\0")
    if mark == b"\0":
        return data
    if mark != b"\1":
        raise ValueError("the mark")
    old, new = (headers.get(f"__large.message.backed{dots}compression") for dots in ("..", "."))
    number = old or new or b"\0"
    if number not in {b"\0", b"\1"}:
        raise ValueError("a codec that is not known here")
    stored = _fetch(vector, data)
    return stored if number == b"\0" else zlib.decompressobj(31).decompress(stored)


def encrypt(vector: Mapping[str, Any]) -> bytes:
    data = bytes.fromhex(vector["record"])
    if len(data) < 4 or data[:2] != b"\xce\x01" or data[2] not in {1, 2}:
        raise ValueError("the head")
    is_gcm, end = data[2] == 1, 4 + data[3]
    if data[4:end] != b"k1":
        raise ValueError("the key")
    salt = data[end : end + 16] if is_gcm else None
    end += 16 if is_gcm else 0
    head, rest = data[:end], data[end:]
    info = b"serde-chain encrypt 1 gcm" if is_gcm else b"serde-chain encrypt 1 siv"
    key = HKDF(algorithm=SHA256(), length=32 if is_gcm else 64, salt=salt, info=info).derive(bytes(range(32)))
    associated = head + (b"\1" if vector["field"] == "value" else b"\0") + vector["topic"].encode()
    try:
        return (
            AESGCM(key).decrypt(rest[:12], rest[12:], associated) if is_gcm else AESSIV(key).decrypt(rest, [associated])
        )
    except InvalidTag:
        raise ValueError("the tag") from None


def entry_metadata(vector: Mapping[str, Any]) -> bytes:
    data = bytes.fromhex(vector["record"])
    if data[:2] != b"\x0e\x02":
        if vector["config"].get("entry.metadata.required") == "true":
            raise ValueError("no frame")
        return data
    size = int.from_bytes(data[2:6], "big", signed=True)
    if len(data) < 6 or not 0 <= size <= len(data) - 6:
        raise ValueError("the size")
    return data[6 + size :]


def large_fields(vector: Mapping[str, Any]) -> Any:
    value, header = json.loads(bytes.fromhex(vector["record"])), _headers(vector).get("large-fields")
    entries = [] if header is None else json.loads(header)
    if not isinstance(entries, list) or len({json.dumps(entry.get("path")) for entry in entries}) != len(entries):
        raise ValueError("the header")
    for entry in entries:
        steps = re.fullmatch(r"\w+(\[\d+\])*(\.\w+(\[\d+\])*)*", entry["path"])
        if entry.keys() != {"path", "size", "digest"} or steps is None or type(entry["size"]) is not int:
            raise ValueError("an entry")
        *path, last = [int(step) if step.isdigit() else step for step in re.findall(r"\w+", entry["path"])]
        holder = value
        for step in path:
            holder = holder[step]
        found = _fetch(vector, holder[last].encode(), b"%d" % entry["size"], entry["digest"].encode())
        holder[last] = found.decode()
    return value


_CHUNK: Final = re.compile(rb"(.+)/([0-9a-f]{16})/(0|[1-9][0-9]*)", re.DOTALL)


def _numbers(record: Mapping[str, Any]) -> tuple[int | None, ...]:
    headers, names = _headers(record), ("payload-chunk-bytes", "payload-chunks", "payload-size")
    found = [headers.get(name, b"") for name in names]
    return tuple(int(number) if re.fullmatch(rb"[0-9]{1,18}", number) else None for number in found)


def _check_chunk(index: int, length: int, numbers: tuple[int | None, ...], *, is_end: bool) -> None:
    """Compare a chunk with its own headers, and with the offsets of the reference."""
    each, count, total = numbers
    if each is None or (count is None) != (total is None) or is_end != (count == index + 1):
        raise ValueError("the headers")
    if count is not None and total is not None and (count <= index or count != max(1, -(-total // each))):
        raise ValueError("the number of chunks")
    if length != (each if total is None or not is_end else total - each * index):
        raise ValueError("the size of a chunk")


def kafka_chunks(vector: Mapping[str, Any]) -> bytes:
    place = re.fullmatch(r"kafka://[^/]+/[^/]+/\d+/(\d+)-(\d+)/(.+)", vector["reference"])
    if place is None:
        raise ValueError("the reference")
    first, last, path = int(place[1]), int(place[2]), unquote(place[3]).encode()
    records = {record["offset"]: record for record in vector["records"] if first <= record["offset"] <= last}
    keys = {at: _CHUNK.fullmatch(bytes.fromhex(record["key"] or "")) for at, record in records.items()}
    head = keys[first]
    if head is None or head[1] != path or head[3] != b"0":
        raise ValueError("another payload in its place")
    found: list[bytes] = []
    for at, key in keys.items():
        if key is None or key.groups()[:2] != head.groups()[:2] or int(key[3]) < len(found):
            continue
        if int(key[3]) > len(found) or records[at]["value"] is None:
            raise ValueError("a chunk is missing")
        value, numbers = bytes.fromhex(records[at]["value"]), _numbers(records[at])
        if not numbers[0] or numbers[0] != _numbers(records[first])[0] or (numbers[1] or 1) > last - first + 1:
            raise ValueError("the size or the number of chunks")
        _check_chunk(len(found), len(value), numbers, is_end=at == last)
        found.append(value)
    end = keys[last]
    if end is None or int(end[3]) != len(found) - 1:
        raise ValueError("the last chunk is missing")
    return b"".join(found)


READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "kip1159": kip1159,
    "bakdata": bakdata,
    "encrypt": encrypt,
    "entry-metadata": entry_metadata,
    "large-fields": large_fields,
    "kafka-chunks": kafka_chunks,
}
