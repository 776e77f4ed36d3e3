"""The header ``large-fields``: valid bytes, and malformed ones."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serde_chain.wire.large_fields import MAX_HEADER_BYTES, FieldEntry, decode, encode, join, split

DIGEST = "sha256:" + 64 * "0"
NAMES = st.text(min_size=1, max_size=8).filter(lambda name: not set(".[]") & set(name) and name.isprintable())
PATHS = st.builds(lambda first, rest: (first, *rest), NAMES, st.lists(NAMES | st.integers(0, 10**9 - 1), max_size=4))


def test_the_bytes_are_those_of_the_design() -> None:
    entry = FieldEntry(("cutoutScience", "stampData"), 61243, DIGEST)
    expected = b'[{"path":"cutoutScience.stampData","size":61243,"digest":"%s"}]' % DIGEST.encode()
    assert encode([entry]) == expected
    assert decode(expected) == [entry]


def test_positions_are_in_brackets() -> None:
    assert join(("diaSources", 3, "stamp")) == "diaSources[3].stamp"
    assert split("a[0][12].b") == ("a", 0, 12, "b")


@given(st.lists(PATHS, unique=True, max_size=5), st.integers(0, 10**18 - 1))
def test_entries_come_back(paths: list[tuple[str | int, ...]], size: int) -> None:
    entries = [FieldEntry(path, size, DIGEST) for path in paths]
    assert decode(encode(entries)) == entries


def entry(**changes: object) -> dict[str, object]:
    return {"path": "a", "size": 1, "digest": DIGEST, **changes}


@pytest.mark.parametrize(
    "value",
    [
        {"path": "a"},
        "text",
        [1],
        [[]],
        [{"path": "a", "size": 1}],
        [entry(more=1)],
        [entry(size="1")],
        [entry(size=-1)],
        [entry(size=1.0)],
        [entry(size=True)],
        [entry(size=10**18)],
        [entry(digest="md5:0")],
        [entry(digest=DIGEST + "0")],
        [entry(digest=None)],
        *([entry(path=path)] for path in ("", ".", "a.", ".a", "a..b", "a[", "a[]", "a[-1]", "a[01]", "[0]", "a]b", 7)),
        [entry(path="a[1234567890]")],
        [entry(path="a\ud800")],
        [entry(), entry()],
    ],
)
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(json.dumps(value).encode())


@pytest.mark.parametrize(
    "header",
    [b"", b"[", b"\xff", b"[" * 100_000, b"NaN", b"[" + b"9" * 10_000 + b"]", b" " * (MAX_HEADER_BYTES + 1)],
    ids=["empty", "cut off", "not UTF-8", "deep", "no JSON", "long number", "long"],
)
def test_other_bytes_are_refused_and_not_kept(header: bytes) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        decode(header)
    assert len(str(caught.value)) < 300


@given(st.binary(max_size=200))
def test_any_bytes_end_in_entries_or_one_error(header: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert all(isinstance(found, FieldEntry) for found in decode(header))
