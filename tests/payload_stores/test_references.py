"""References taken apart, and the prefixes below which stores follow them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from payload_stores import ConfigError, PayloadStore, PublishContext, UntrustedReferenceError, open_store, references
from payload_stores.base import Buffer
from payload_stores.references import Location, Roots
from payload_stores.registry import STORES

ID = "123e4567-e89b-12d3-a456-426614174000"


class ShelfStore(PayloadStore):
    """A store of others, which has the default of :meth:`PayloadStore.owns`."""

    scheme = "shelf"

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        raise NotImplementedError

    def download(self, reference: str) -> bytes:
        raise self.untrusted(reference, "it is on another shelf")


def s3(**more: str) -> PayloadStore:
    return open_store("s3", {"s3.bucket": "b", "s3.prefix": "pre/", "s3.region": "eu-west-1", **more})


# Configuration of each store, references that are its own, and references that are not.
OWN: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "memory": ({}, ["memory:///t/1", "memory:///t/a/b"], ["memory://host/t/1", "memory:///t/../1", "memory:///"]),
    "local": (
        {"local.path": "/srv/payloads", "large.message.trusted.references": "file:///srv/old/"},
        ["file:///srv/payloads/t/1", "file:///srv/old/t/1"],
        [
            "file:///srv/payloads", "file:///srv/payloads2/t/1", "file:///srv/older/t/1",
            "file://host/srv/old/t/1", "file:///etc/passwd", "file:///srv/payloads/%2e%2e/x",
        ],
    ),
    "s3": (
        {
            "s3.bucket": "b", "s3.prefix": "pre/", "s3.region": "eu-west-1",
            "large.message.trusted.references": "s3://old/x/,https://h/",
        },
        ["s3://b/pre/t/1", "s3://old/x/t/1"],
        ["s3://b/prefix/t/1", "s3://b/t/1", "s3://old/t/1", "s3://old/x", "s3://c/pre/t/1", "S3://b/pre/t/1"],
    ),
    "objects": (
        {"objects.url": "gs://b/pre", "large.message.trusted.references": "gs://old/x/,s3://b/pre/"},
        ["gs://b/pre/t/1", "gs://old/x/t/1"],
        ["gs://b/prefix/t/1", "gs://b/t/1", "gs://old/t/1", "s3://b/pre/t/1", "gs://c/pre/t/1", "gs://b/pre"],
    ),
    "hop": (
        {"hop.offload.url": "http://h:8080/v1/", "large.message.trusted.references": "https://old/x"},
        [f"http://h:8080/v1/msg/{ID}", f"HTTP://H:8080/v1//msg/{ID}", "https://old/x/anything"],
        [
            f"https://h:8080/v1/msg/{ID}", f"http://h/v1/msg/{ID}", f"http://h:8080/msg/{ID}", "http://h:8080/v1/msg/1",
            f"http://h:8080/v1/topic/{ID}", "https://old/xy/z", "https://old/x",
        ],
    ),
    "kafka": (
        {
            "bootstrap.servers": "127.0.0.1:1", "kafka.cluster.id": "C",
            "large.message.trusted.references": "kafka://C/old.x/",
        },
        ["kafka://C/t.payloads/0/1-1/t/1", "kafka://C/t.payloads/11/0-9/t/a/b", "kafka://C/old.x/0/1-2/t/1"],
        [
            "kafka://D/t.payloads/0/1-1/t/1", "kafka://C/u.payloads/0/1-1/t/1", "kafka://C/t/0/1-1/t/1",
            "kafka://C/t.payloads/0/1-1/t", "kafka://C/t.payloads/0/1-1", "kafka://C/t.payloads/t/1", "kafka://C/t",
            "kafka://C/t.payloads/0/2-1/t/1", "kafka://C/t.payloads/-1/1-1/t/1", "kafka://C/t.payloads/0/-1-1/t/1",
            "kafka://C/t.payloads/0/01-1/t/1", "kafka://C/t.payloads/00/1-1/t/1", "kafka://C/t.payloads/0/1/t/1",
            "kafka://C/t.payloads/0/0-99999999999/t/1", "kafka://C/t.payloads/4294967296/0-0/t/1",
            "kafka://C/t.payloads/0/9223372036854775808-9223372036854775808/t/1", "kafka://C/old.xx/0/1-2/t/1",
            "kafka://C/t.payloads/0/1-1/../1", "kafka://C/t.payloads/0/1-1/t/%2e%2e", "kafka://C/t.payloads/0/1%EF%BC%91-99/t/1",
            "kafka://C/a b.payloads/0/1-1/a b/1", f"kafka://C/t.payloads/0/1-1/t/{'1' * 1023}",
        ],
    ),
    "mirror": (
        {
            "mirror.primary": {"class": "local", "local.path": "/srv/new"},
            "mirror.secondary": {"class": "s3", "s3.bucket": "b", "s3.region": "eu-west-1"},
        },
        ["file:///srv/new/t/1", "s3://b/t/1"],
        ["file:///srv/new", "file:///srv/t/1", "s3://c/t/1", "memory:///t/1"],
    ),
}  # fmt: skip
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


def test_every_store_has_a_case() -> None:
    assert set(OWN) == set(STORES.builtins)


@pytest.mark.parametrize("name", OWN)
def test_a_store_owns_what_lies_below_its_prefixes(name: str) -> None:
    config, own, foreign = OWN[name]
    store = open_store(name, {"large.message.max.payload.bytes": 10, **config})
    assert [reference for reference in own if not store.owns(reference)] == []
    assert [reference for reference in (*foreign, *NOBODY) if store.owns(reference)] == []
    for reference in (*foreign, *NOBODY):
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
    with pytest.raises(UntrustedReferenceError, match="it lies outside s3://b/pre/"):
        roots.locate("s3://old/x/t/1", own_only=True)
    store.close()


@pytest.mark.parametrize("name", ["s3", "local"])
@pytest.mark.parametrize(
    "prefix", ["{scheme}:", "{scheme}:/x", "{scheme}:///a/../b/", "{scheme}://b?x", "{scheme}://b#x"]
)
def test_a_trusted_prefix_that_is_none_is_refused(name: str, prefix: str, tmp_path: Path) -> None:
    scheme = {"s3": "s3", "local": "file"}[name]
    config = {"s3.bucket": "b", "s3.region": "eu-west-1", "local.path": str(tmp_path)}
    with pytest.raises(ConfigError, match="cannot be a prefix of references") as caught:
        open_store(name, {**config, "large.message.trusted.references": prefix.format(scheme=scheme)})
    assert caught.value.key == "large.message.trusted.references"


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
