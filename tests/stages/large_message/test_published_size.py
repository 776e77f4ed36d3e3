"""A payload larger than its record says is refused before it is fetched, by every way to read."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from payload_stores import PayloadIntegrityError, open_store
from serde_chain import DeserializerChain, PayloadHandle, RecordContext, SerializerChain
from serde_chain.testing.services import S3Server
from tests.relay import CountingRelay

STORE = "large.message.payload.store.class"
TOPIC = "sizes"
SIZE = 64 << 20
# When the size arrives, the sockets' buffers hold the beginning of a part of 8 MiB.
MOST = 16 << 20
Headers = list[tuple[str, Any]]
Way = Callable[[dict[str, Any], bytes, Headers], object]


def eager(config: dict[str, Any], placeholder: bytes, headers: Headers) -> object:
    with DeserializerChain.from_config({"value.deserializers": "large-message", **config}) as chain:
        return chain(placeholder, RecordContext(TOPIC, "value", headers))


def lazily(read: Callable[[PayloadHandle], object]) -> Way:
    def way(config: dict[str, Any], placeholder: bytes, headers: Headers) -> object:
        config = {"value.deserializers": "large-message", "large.message.fetch": "lazy", **config}
        with DeserializerChain.from_config(config) as chain:
            handle = chain(placeholder, RecordContext(TOPIC, "value", headers))
            assert isinstance(handle, PayloadHandle)
            return read(handle)

    return way


def at_a_position(handle: PayloadHandle) -> bytes:
    with handle.open() as file:
        file.seek(SIZE // 2)
        return file.read(1)


def as_columns(config: dict[str, Any], placeholder: bytes, headers: Headers) -> object:
    with DeserializerChain.from_config({"value.deserializers": "large-message", **config}) as chain:
        return chain.to_arrow([placeholder], headers=[headers], topic=TOPIC)


def of_a_field(config: dict[str, Any], placeholder: bytes, headers: Headers) -> object:
    digest = dict(headers)["large-message-digest"].decode()
    fields = json.dumps([{"path": "image", "size": 10, "digest": digest}]).encode()
    value = json.dumps({"image": placeholder.decode()}).encode()
    with DeserializerChain.from_config({"value.deserializers": "json, large-fields", **config}) as chain:
        return chain(value, RecordContext(TOPIC, "value", [("large-fields", fields)]))


WAYS: dict[str, Way] = {
    "eager": eager,
    "columns": as_columns,
    "lazy, read": lazily(lambda handle: handle.read()),
    "lazy, opened": lazily(lambda handle: handle.open().read()),
    "lazy, sought": lazily(at_a_position),
    "field": of_a_field,
}


@pytest.fixture(params=["s3", pytest.param("objects", marks=pytest.mark.full)])
def stored(
    request: pytest.FixtureRequest, s3_server: S3Server
) -> Iterator[tuple[dict[str, Any], CountingRelay, bytes, Headers]]:
    """A store behind a relay, and a record of it whose header states 10 bytes."""
    bucket = s3_server.create_bucket()
    config: dict[str, Any]
    config = s3_server.store_config(bucket) if request.param == "s3" else s3_server.objects_config(bucket)
    headers: Headers = []
    ctx = RecordContext(TOPIC, "value", headers)
    writing = {**config, STORE: request.param, "value.serializers": "large-message"}
    with SerializerChain.from_config(writing) as chain:
        placeholder = chain(bytes(SIZE), ctx)
    assert placeholder is not None
    headers = [(name, b"10" if name == "large-message-size" else value) for name, value in headers]
    with CountingRelay(s3_server.url) as relay:
        endpoint = "s3.endpoint.url" if request.param == "s3" else "objects.endpoint"
        yield {**config, STORE: request.param, endpoint: relay.url}, relay, placeholder, headers
    store = open_store(request.param, config)
    store.delete(placeholder.decode())  # type: ignore[attr-defined]
    store.close()


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
def test_a_payload_larger_than_published_is_not_fetched(way: str, stored: Any) -> None:
    config, relay, placeholder, headers = stored
    with pytest.raises(PayloadIntegrityError) as caught:
        WAYS[way](config, placeholder, headers)
    assert caught.value.about_record
    assert relay.received < MOST
