"""The inputs of the vectors of payloads in Kafka: a reference, and the records at its offsets and around them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.vectors.cases import CLUSTER, PAYLOAD, Vector, hexed

__all__ = ["kafka_chunks"]

PUBLICATION: Final = "0123456789abcdef"
FIRST: Final = 7
PLACE: Final = f"kafka://{CLUSTER}/alerts-payloads/3/{FIRST}"
DATA: Final = PAYLOAD + bytes(range(200)) + PAYLOAD


def _record(key: bytes | None, value: bytes | None, *headers: tuple[str, Any]) -> Vector:
    pairs = [(name, str(each).encode()) for name, each in headers]
    one = [None if each is None else each.hex() for each in (key, value)]
    return {"key": one[0], "value": one[1], "headers": hexed(pairs)}


def _key(index: int | str, path: str = "alerts/1", publication: str = PUBLICATION) -> bytes:
    return f"{path}/{publication}/{index}".encode()


def _chunk(index: int, value: bytes | None, count: int = 3, **more: Any) -> Vector:
    """A chunk with all headers but the digest; ``more`` has what is not as it should be."""
    size, chunk_bytes = more.pop("size", len(DATA)), more.pop("chunk_bytes", 100)
    headers = (("payload-chunk-bytes", chunk_bytes), ("payload-chunks", count), ("payload-size", size))
    return _record(_key(index, **more), value, *headers)


def _read(name: str, records: list[Vector], last: int | None = None, **more: Any) -> Vector:
    numbered = [{"offset": at, **found} for at, found in enumerate(records, FIRST)]
    end = numbered[-1]["offset"] if last is None else last
    return {"name": name, "reference": f"{PLACE}-{end}/alerts/1", "records": numbered, **more}


PARTS: Final = [_chunk(index, DATA[at : at + 100]) for index, at in enumerate(range(0, len(DATA), 100))]
OTHER: Final = _record(b"alerts/2/0000000000000000/0", b"x", ("payload-chunk-bytes", 100))


def kafka_chunks() -> Iterator[Vector]:
    yield from _written()
    yield from _among_others()
    yield from _gone()
    yield from _damaged()


def _written() -> Iterator[Vector]:
    for name, payload, path, is_stream in (
        ("one chunk", b"small", "alerts/1", False),
        ("three chunks", DATA, "alerts/1", False),
        ("full chunks", DATA[:200], "alerts/1", False),
        ("an empty payload", b"", "alerts/1", False),
        ("of a stream", DATA, "alerts/1", True),
        ("characters encoded in the reference", b"small", "alerts/M 51/\u00fc", False),
    ):
        yield {
            "name": name,
            "place": PLACE,
            "path": path,
            "chunk_bytes": 100,
            "publication": PUBLICATION,
            "stream": is_stream,
            "payload": payload.hex(),
            "writes": True,
        }


def _among_others() -> Iterator[Vector]:
    whole: Vector = {"result": DATA.hex()}
    again = [_chunk(index, bytes(100), publication="f" * 16) for index in range(2)]
    strange = [_record(None, None), _record(b"alerts/1", b"x"), _record(b"\xff/0000000000000000/0", b"x")]
    more = hexed([("user", b"1"), ("payload-chunk-bytes", b"1")])
    with_more = {**PARTS[0], "headers": [*more, *PARTS[0]["headers"]]}
    yield _read("records of others between", [PARTS[0], OTHER, *strange, PARTS[1], OTHER, PARTS[2]], **whole)
    yield _read("two publications of one id", [PARTS[0], again[0], PARTS[1], again[1], PARTS[2]], **whole)
    yield _read("a chunk twice", [PARTS[0], PARTS[1], PARTS[1], PARTS[2]], **whole)
    yield _read("headers of others, and two of a name", [with_more, *PARTS[1:]], **whole)


def _gone() -> Iterator[Vector]:
    for name, records in (
        ("another payload in its place", [OTHER, *PARTS]),
        ("not the first chunk", PARTS[1:]),
        ("a chunk is missing", [PARTS[0], OTHER, PARTS[2]]),
        ("the last chunk is missing", [PARTS[0], PARTS[1], OTHER]),
        ("a chunk is deleted", [PARTS[0], _chunk(1, None), PARTS[2]]),
        ("a path that goes on", [_chunk(0, b"small", 1, size=5, path="alerts/1/2")]),
        ("a publication in capitals", [_chunk(0, b"small", 1, size=5, publication="A" * 16)]),
        ("an index with a zero in front", [{**PARTS[0], "key": _key("00").hex()}, *PARTS[1:]]),
    ):
        yield _read(name, records, error="PayloadNotFoundError")


def _damaged() -> Iterator[Vector]:
    known = [("payload-chunk-bytes", 100), ("payload-chunks", 1), ("payload-size", 1)]
    for name, records in (
        ("a chunk too short", [PARTS[0], _chunk(1, DATA[100:199]), PARTS[2]]),
        ("the last chunk too long", [*PARTS[:2], _chunk(2, DATA[200:] + b"x")]),
        ("another size", [*PARTS[:2], _chunk(2, DATA[200:], size=len(DATA) + 1)]),
        ("another number of chunks", [*PARTS[:2], _chunk(2, DATA[200:], 4)]),
        ("chunks of another size", [PARTS[0], _chunk(1, DATA[100:199], chunk_bytes=99), PARTS[2]]),
        ("the last offset is another's", [*PARTS, OTHER]),
        ("no size of chunks", [_record(_key(0), b"x")]),
        ("chunks of no size", [_chunk(0, b"", 1, chunk_bytes=0, size=0)]),
        ("a number with a sign", [_chunk(0, b"small", 1, chunk_bytes="+100", size=5)]),
        ("a number, then a header of its name without one", [_record(_key(0), b"x", *known, ("payload-size", ""))]),
        ("a number of chunks without a size", [_record(_key(0), b"x", *known[:2])]),
    ):
        yield _read(name, records, error="PayloadIntegrityError")
    yield _read("more chunks than offsets", PARTS, FIRST + 1, error="PayloadIntegrityError")
