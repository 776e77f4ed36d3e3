"""Whether a payload is there, of stores that can say more or less about it."""

from datetime import UTC, datetime

import pytest

from payload_stores import PayloadInfo, PayloadStore, PublishContext, open_store
from payload_stores.base import Buffer
from payload_stores.errors import PayloadIntegrityError, PayloadNotFoundError
from payload_stores.probes import see
from payload_stores.testing import FaultyStore


class Whole(PayloadStore):
    """Returns payloads as a whole only."""

    scheme = "whole"

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        return f"whole://{topic}/1"

    def download(self, reference: str) -> bytes:
        raise AssertionError("nothing is downloaded")


class Looking(Whole):
    """Knows sizes beside that."""

    def info(self, reference: str) -> PayloadInfo:
        return PayloadInfo(reference, 7, datetime.now(UTC))


@pytest.mark.parametrize(("payload", "other"), [(b"payload", 8), (b"payload", 6), (b"", 1), (b"p", 0)])
def test_a_byte_at_the_end_tells(payload: bytes, other: int) -> None:
    store = FaultyStore(open_store("memory", {}))
    reference = store.publish("images", payload)
    store.calls.clear()
    assert see(store, reference, len(payload))
    assert see(store, reference)
    with pytest.raises(PayloadIntegrityError, match=f"does not have the {other} bytes"):
        see(store, reference, other)
    assert store.calls == ["read_range"] * 3
    with pytest.raises(PayloadNotFoundError):
        see(store, f"{reference}x", len(payload))


def test_a_size_tells() -> None:
    assert see(Looking(), "whole://images/1", 7)
    assert see(Looking(), "whole://images/1")
    with pytest.raises(PayloadIntegrityError):
        see(Looking(), "whole://images/1", 8)


def test_others_are_not_asked() -> None:
    assert not see(Whole(), "whole://images/1", 7)
