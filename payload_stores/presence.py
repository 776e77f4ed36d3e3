"""Whether a payload is there, without reading it."""

from __future__ import annotations

from payload_stores.base import PayloadStore, SupportsInfo, SupportsRanges
from payload_stores.errors import PayloadIntegrityError

__all__ = ["see"]


def see(store: PayloadStore, reference: str, size: int | None = None) -> bool:
    """See that a payload is there, and as large as its record says, by the byte at its end.

    Args:
        store: The store to which the reference belongs.
        reference: The reference.
        size: The payload's size in bytes; None if it is not known.

    Returns:
        Whether it was seen; False for a store that could only be asked by a download.

    Raises:
        PayloadNotFoundError: The payload is gone.
        PayloadIntegrityError: It is of another size.
        PayloadStoreError: The store does not follow the reference, or does not answer.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> see(store, store.publish("alerts", b"payload"), 7)
        True
    """
    if isinstance(store, SupportsRanges):
        end = store.read_range(reference, max((size or 0) - 1, 0), 2)
        is_right = len(end) == min(size or 0, 1)
    elif isinstance(store, SupportsInfo):
        is_right = store.info(reference).size == size
    else:
        return False
    if size is not None and not is_right:
        raise PayloadIntegrityError(
            f"the payload does not have the {size} bytes that were published", store=store.scheme, reference=reference
        )
    return True
