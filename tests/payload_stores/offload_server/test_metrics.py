"""What ``/metrics`` says, read by the parser of OpenMetrics' own library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from payload_stores import PayloadStoreUnavailableError
from payload_stores.memory import MemoryStore
from payload_stores.offload_server import Limits
from payload_stores.scram import ScramAuth
from tests.payload_stores.offload_server.test_bad_requests import Raw, eventually
from tests.payload_stores.offload_server.test_stores_and_users import Failing

if TYPE_CHECKING:
    from tests.payload_stores.offload_server.conftest import NewMessage, Serve

UPLOAD = "/topic/t+oversized"


def scraped(url: str) -> dict[tuple[str, ...], float]:
    """Values by the sample's name and its labels' values, in order of the labels' names."""
    answer = httpx2.get(url + "/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    families = text_string_to_metric_families(answer.text)  # type: ignore[no-untyped-call]
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


def test_requests_and_bytes(serve: Serve, new_message: NewMessage) -> None:
    url = serve(MemoryStore())
    assert scraped(url)["offload_bytes_total", "upload"] == 0
    message = new_message(bytes(100_000))
    with httpx2.Client(base_url=url, auth=ScramAuth("alice", "alice-secret")) as client:
        assert client.post(UPLOAD, content=message.body).status_code == 201
        size = len(client.get(message.path).content)
        assert client.get("/msg/x").status_code == 404
    found = scraped(url)
    assert found["offload_requests_total", "topic", "POST", "401"] == 1
    assert found["offload_requests_total", "topic", "POST", "201"] == 1
    assert found["offload_requests_total", "msg", "GET", "200"] == 1
    assert found["offload_requests_total", "msg", "GET", "404"] == 1
    assert found["offload_request_seconds_count", "msg"] == 2
    assert found["offload_bytes_total", "upload"] == len(message.body)
    assert found["offload_bytes_total", "download"] == size
    assert found["offload_transfers", "upload"] == found["offload_transfers", "download"] == 0
    assert found["offload_refused_logins_total",] == 0
    assert found["process_resident_memory_bytes",] > 0


def test_what_goes_wrong(serve: Serve, new_message: NewMessage) -> None:
    url = serve(Failing(PayloadStoreUnavailableError("down")))
    with httpx2.Client(base_url=url, auth=ScramAuth("alice", "alice-secret")) as client:
        assert client.post(UPLOAD, content=new_message().body).status_code == 503
        # Not the store's fault.
        assert client.post(UPLOAD, content=b"junk").status_code == 400
    with httpx2.Client(base_url=url, auth=ScramAuth("alice", "wrong")) as client:
        assert client.get("/msg/x").status_code == 401
    found = scraped(url)
    assert found["offload_store_errors_total", "upload"] == 1
    assert found["offload_store_errors_total", "download"] == 0
    assert found["offload_refused_logins_total",] == 1


def test_transfers_under_way(serve: Serve, new_message: NewMessage) -> None:
    url = serve(MemoryStore(), Limits(transfers_per_user=2))
    body = new_message(bytes(1000)).body
    uploads = [Raw(url, f"Content-Length: {len(body)}\r\n", body[:100]) for _ in range(3)]
    assert eventually(lambda: scraped(url)["offload_transfers", "upload"] == 2)
    for upload in uploads:
        upload.close()
    assert eventually(lambda: scraped(url)["offload_transfers", "upload"] == 0)
    assert scraped(url)["offload_requests_total", "topic", "POST", "none"] >= 2


@pytest.mark.full
def test_what_anybody_may_write_is_no_label(serve: Serve) -> None:
    url = serve(MemoryStore())
    for number in range(20):
        assert httpx2.request(f"M{number}", f"{url}/{number}").status_code == 401
    found = scraped(url)
    assert found["offload_requests_total", "other", "other", "401"] == 20
    assert sum(name == "offload_requests_total" for name, *_ in found) == 1
