"""Whether payloads are there, without reading them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Final

from payload_stores.base import PayloadStore, SupportsInfo, SupportsList, SupportsRanges
from payload_stores.errors import PayloadIntegrityError, PayloadStoreError

__all__ = ["is_refused", "see", "see_others"]

_MOST_OTHERS: Final = 3


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


def see_others(store: PayloadStore, topic: str, reference: str, known: Iterable[str] = ()) -> bool:
    """See that other payloads of a topic can be read: then what one is refused for is about that one alone.

    Any writer of a store can put an object there that readers may not read: archived, encrypted with a key of its own,
    with its own permissions.

    Args:
        store: The store.
        topic: The topic whose payloads are tried, a few of them.
        reference: The one that was refused.
        known: Others that could be read before, which are tried first.

    Returns:
        Whether one was seen; False also where the store cannot be listed, and none is known.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> reference = store.publish("refused", b"payload")
        >>> see_others(store, "refused", reference), store.publish("refused", b"another") and False
        (False, False)
        >>> see_others(store, "refused", reference)
        True
    """
    for other in chain(known, _others(store, topic)):
        if other != reference:
            with suppress(PayloadStoreError):
                if see(store, other):
                    return True
    return False


def is_refused(store: PayloadStore, reference: str) -> bool:
    """Whether a payload that was refused is refused again: a moment ago, all may have been, say for credentials.

    Args:
        store: The store.
        reference: The payload.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> is_refused(store, store.publish("alerts", b"payload"))
        False
    """
    try:
        if isinstance(store, SupportsRanges):
            store.read_range(reference, 0, 1)
        else:
            store.download(reference)
    except PayloadStoreError as error:
        return not error.transient
    return False


def _others(store: PayloadStore, topic: str) -> Iterator[str]:
    """Some payloads of a topic: from a random place on, as there may be many refused ones at the beginning."""
    if isinstance(store, SupportsList):
        for prefix in (random.choice("0123456789abcdef"), ""):  # noqa: S311  no secret
            with suppress(PayloadStoreError):  # the listing is refused as well
                yield from [info.reference for info in islice(store.list(topic, prefix=prefix), _MOST_OTHERS)]
