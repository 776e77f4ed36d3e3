"""Times in S3's answers: the usual forms without dateutil, all others as botocore reads them."""

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import botocore.session
import pytest
from botocore.awsrequest import AWSResponse, HeadersDict
from botocore.utils import parse_timestamp

from payload_stores import open_store
from payload_stores.s3 import S3Store
from payload_stores.s3.times import with_fast_times

LISTING = b"""<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>topic/1</Key><Size>7</Size>
<LastModified>2026-11-27T05:00:59.000Z</LastModified></Contents></ListBucketResult>"""
HEADERS = HeadersDict({"Content-Length": "7", "Last-Modified": "Fri, 27 Nov 2026 05:00:59 GMT", "ETag": '"1"'})


class Raw(io.BytesIO):
    """A body, as botocore expects it of urllib3."""

    def stream(self, *_args: object, **_options: object) -> Iterator[bytes]:
        yield self.read()


def test_the_usual_times_are_read_without_dateutil(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise AssertionError("dateutil takes most of the time of a listing")

    monkeypatch.setattr("dateutil.parser.parse", refuse)
    keys = {"s3.access.key": "a", "s3.secret.key": "b"}
    store = open_store("s3", {"s3.bucket": "bucket", "s3.endpoint.url": "http://127.0.0.1:1", **keys})
    assert isinstance(store, S3Store)
    events: Any = store._client.meta.events
    answers: tuple[tuple[str, bytes, Any], ...] = (
        ("ListObjectsV2", LISTING, HeadersDict()),
        ("HeadObject", b"", HEADERS),
    )
    for name, body, headers in answers:
        events.register(
            f"before-send.s3.{name}",
            lambda request, body=body, headers=headers, **_: AWSResponse(request.url, 200, headers, Raw(body)),
        )
    (listed,) = store.list("topic")
    assert listed == store.info("s3://bucket/topic/1")
    assert listed.modified == datetime(2026, 11, 27, 5, 0, 59, tzinfo=UTC)
    store.close()


@pytest.mark.parametrize(
    "value",
    [
        "Fri, 27 Nov 2026 05:00:59 GMT", "Fri, 27 Nov 2026 05:00:59 +0100", "Friday, 27-Nov-26 05:00:59 GMT",
        "Fri, 27 Nov 2026 05:0", "Fri, 27 Nov 2026 29:00:59 GMT", "Fri, 27 Nox 2026 05:00:59 GMT", "Fri, 2", "",
        "2026-11-27T05:00:59Z", "2026-11-27T05:00:59.5Z", "2026-11-27T05:00:59.123456789Z", "2026-11-27T05:00:5",
        "2026-11-27T05:00:59+01:00", "2026-13-27T05:00:59Z", "2026-11-27", "٢026-11-27T05:00:59Z", "1764219600",
        1764219600, 1764219600.5,
    ],
)  # fmt: skip
def test_times_are_those_of_botocore(value: Any) -> None:
    session = with_fast_times(botocore.session.get_session())
    parser: Any = session.get_component("response_parser_factory").create_parser("rest-xml")
    try:
        expected = parse_timestamp(value)
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011  its text is botocore's or Python's
            parser._timestamp_parser(value)
    else:
        assert parser._timestamp_parser(value) == expected
