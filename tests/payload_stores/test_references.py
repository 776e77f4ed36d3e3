"""References taken apart, and the prefixes below which stores follow them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from payload_stores import ConfigError, PayloadStore, PublishContext, UntrustedReferenceError, open_store, references
from payload_stores.base import Buffer
from payload_stores.memory import MemoryStore
from payload_stores.references import Location, Roots
from tests.payload_stores.cases import CASES, ID


class ShelfStore(PayloadStore):
    """A store of others, which has the default of :meth:`PayloadStore.owns`."""

    scheme = "shelf"

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        raise NotImplementedError

    def download(self, reference: str) -> bytes:
        raise self.untrusted(reference, "it is on another shelf")


class Unrooted(references.RootedStore):
    scheme = "shelf"

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        return self.roots.url(references.object_path(self, topic, data, context))

    def download(self, reference: str) -> bytes:
        raise self.untrusted(reference, str(self.roots.locate(reference)))


def test_a_store_without_roots_says_where_to_set_them() -> None:
    store = open_store(Unrooted, {})
    calls: list[Callable[[], object]] = [
        lambda: store.publish("alerts", b""),
        lambda: store.download("shelf://a/alerts/1"),
        lambda: store.owns("shelf://a/alerts/1"),
        lambda: store.reference("alerts", "1"),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=r"Unrooted has no roots.* Set self\.roots = Roots\(.*\) in configure"):
            call()
    rooted = Unrooted()
    rooted.roots = Roots(rooted, "a")
    assert rooted.publish("alerts", b"", PublishContext(payload_id="1")) == "shelf://a/alerts/1"


def s3(**more: str) -> PayloadStore:
    return open_store("s3", {"s3.bucket": "b", "s3.prefix": "pre/", "s3.region": "eu-west-1", **more})


NOBODY = [
    "",
    "x",
    "://",
    "http://[bad",
    "\x00",
    "\ud800",
    "other://h/t/1",
    "s3:/b/pre/t/1",
    " s3://b/pre/t/1",
    "a" * 9999,
]


@pytest.mark.parametrize("name", CASES)
def test_a_store_owns_what_lies_below_its_prefixes(name: str) -> None:
    case = CASES[name]
    store = open_store(name, {"large.message.max.payload.bytes": 10, **case.config})
    assert [reference for reference in case.own if not store.owns(reference)] == []
    assert [reference for reference in (*case.foreign, *NOBODY) if store.owns(reference)] == []
    for reference in (*case.foreign, *NOBODY):
        with pytest.raises(UntrustedReferenceError):
            store.download(reference)
    store.close()


def test_the_scheme_decides_for_a_store_without_a_prefix() -> None:
    store = ShelfStore()
    assert [store.owns(reference) for reference in ("shelf://x/1", "shelf:x", "shelves://x/1", "")] == [
        True, False, False, False,
    ]  # fmt: skip


def test_hop_asks_no_broker_whether_a_reference_is_its_own() -> None:
    store = open_store("hop", {"bootstrap.servers": "127.0.0.1:1", "hop.discovery.timeout.ms": 600_000})
    assert store.owns(f"https://anywhere/v1/msg/{ID}")
    assert not store.owns("https://anywhere/v1/msg/1")
    assert not store.owns(f"s3://anywhere/v1/msg/{ID}")
    store.close()


# Roots


def test_a_root_covers_whole_segments() -> None:
    root = Location("s3", "b", ("pre",))
    assert root.covers(Location("s3", "b", ("pre", "x")))
    for other in (
        Location("s3", "b", ("pre",)), Location("s3", "b", ("prefix", "x")), Location("s3", "c", ("pre", "x")),
        Location("gs", "b", ("pre", "x")), Location("s3", "b", ("x", "pre", "x")),
    ):  # fmt: skip
        assert not root.covers(other)


def test_roots_tell_the_path_below_them() -> None:
    store = s3(**{"large.message.trusted.references": "s3://old/x/"})
    roots = Roots(store, "b", ("pre",))
    assert roots.locate("s3://b/pre/t/a%20b") == (Location("s3", "b", ("pre",)), ("t", "a b"))
    assert roots.locate("s3://old/x/t/1") == (Location("s3", "old", ("x",)), ("t", "1"))
    assert roots.url(("t", "a b")) == "s3://b/pre/t/a%20b"
    with pytest.raises(UntrustedReferenceError, match="it is outside s3://b/pre/"):
        roots.locate("s3://old/x/t/1", own_only=True)
    store.close()


@pytest.mark.parametrize(
    ("host", "segments"),
    [
        ("a/b", ()),
        ("a?b", ()),
        ("a#b", ()),
        ("h", "ab/c"),
        ("h", ("..",)),
        ("h", ("",)),
        ("h", ("a/b",)),
        ("h", ("\0",)),
    ],
)
def test_a_prefix_whose_references_no_reader_accepts_is_refused(host: str, segments: Any) -> None:
    with pytest.raises(ConfigError, match="could not be read back"):
        Roots(MemoryStore(), host, segments)


@pytest.mark.parametrize("name", ["s3", "local"])
@pytest.mark.parametrize(
    "prefix", ["{scheme}:", "{scheme}:/x", "{scheme}:///a/../b/", "{scheme}://b?hush", "{scheme}://a:hush@b#x"]
)
def test_a_trusted_prefix_that_is_none_is_refused(name: str, prefix: str, tmp_path: Path) -> None:
    scheme = {"s3": "s3", "local": "file"}[name]
    config = {"s3.bucket": "b", "s3.region": "eu-west-1", "local.path": str(tmp_path)}
    with pytest.raises(ConfigError, match="is not a valid reference prefix") as caught:
        open_store(name, {**config, "large.message.trusted.references": prefix.format(scheme=scheme)})
    assert caught.value.key == "large.message.trusted.references"
    assert "hush" not in f"{caught.value} {caught.value.__cause__}"


def test_a_trusted_host_is_no_place_of_the_local_store(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "1").write_bytes(b"data")
    trusted = {"large.message.trusted.references": f"file://host{tmp_path}/"}
    store = open_store("local", {"local.path": str(tmp_path / "own"), **trusted})
    for reference in (f"file://host{tmp_path}/t/1", f"file://{tmp_path}/t/1"):
        with pytest.raises(UntrustedReferenceError):
            store.download(reference)
    store.close()


# Parsing


@pytest.mark.parametrize(
    ("segment", "is_taken"),
    [
        ("a", True), ("a%20b", True), ("%C3%A4", True), ("a.b", True), ("..a", True), ("%41", True), ("", False),
        (".", False), ("..", False), ("%2e%2e", False), ("a%2fb", False), ("a%5cb", False), ("a\\b", False),
        ("%00", False), ("%ff", False), ("%0a", False), ("%7f", False), ("a\tb", False), ("\ud800", False),
        ("a?b", False), ("a#b", False),
    ],
)  # fmt: skip
def test_segments(segment: str, is_taken: bool) -> None:
    store = ShelfStore()
    url = f"shelf://host/t/{segment}"
    if is_taken:
        location = references.parse(store, url)
        assert (location.scheme, location.host, location.segments[0], len(location.segments)) == (
            "shelf",
            "host",
            "t",
            2,
        )
        again = references.to_url(location.scheme, location.host, location.segments)
        assert references.parse(store, again) == location
    else:
        with pytest.raises(UntrustedReferenceError):
            references.parse(store, url)


@pytest.mark.parametrize(
    "url",
    [
        "other://host/t/1",
        "Shelf://host/t/1",
        "shelf:/host/t/1",
        "shelf://ho\tst/t/1",
        "shelf://ho\x7fst/t/1",
        "shelf://h",
    ],
)
def test_urls_of_another_form(url: str) -> None:
    with pytest.raises(UntrustedReferenceError):
        references.parse(ShelfStore(), url)


def test_long_references_are_cut_in_errors() -> None:
    with pytest.raises(UntrustedReferenceError) as caught:
        references.parse(ShelfStore(), "x" * 10_000)
    assert caught.value.reference == "x" * 500
    assert caught.value.about_record


Make = Callable[[], PayloadStore]


@pytest.mark.parametrize(
    ("payload_id", "is_taken"),
    [("a" * 200, True), ("a" * 201, False), ("a/b/c", True), ("a/.b", False), ("a.b~c_d-e", True), ("a+b", False)],
)
def test_ids(payload_id: str, is_taken: bool) -> None:
    store = open_store("memory", {})
    context = PublishContext(payload_id=payload_id)
    if is_taken:
        assert references.object_path(store, "t", b"", context) == ("t", *payload_id.split("/"))
    else:
        with pytest.raises(Exception, match="cannot be used as a payload id"):
            references.object_path(store, "t", b"", context)


def test_what_ids_begin_with() -> None:
    first = {*"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_~-"}
    assert {each for each in map(chr, range(0x3000)) if references.begins_id(each)} == first
