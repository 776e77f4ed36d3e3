"""Checks whether payloads exist and have their size, without reading them."""

from __future__ import annotations

import io
import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import BinaryIO, Final

from payload_stores.base import PayloadStore, SupportsInfo, SupportsList, SupportsRanges
from payload_stores.errors import PayloadIntegrityError, PayloadStoreError

_MOST_OTHERS: Final = 3


def see(store: PayloadStore, reference: str, size: int | None = None) -> bool:
    """Check that a payload exists and has the size in its record, by reading its last byte.

    Args:
        store: The store that owns the reference.
        reference: The reference.
        size: The payload's size in bytes; None if unknown.

    Returns:
        Whether the payload was checked; False for a store that needs a whole download for it.

    Raises:
        PayloadNotFoundError: The payload is gone.
        PayloadIntegrityError: The size differs.
        PayloadStoreError: The store does not follow the reference, or did not answer.

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


def refuse_larger(file: BinaryIO, reference: str, size: int | None) -> None:
    """Refuse an open payload that is larger than published. Seeking to its end fetches nothing of it.

    Args:
        file: The payload, at its beginning; not compared if it cannot be sought.
        reference: The reference.
        size: Published size in bytes; None if unknown.

    Raises:
        PayloadIntegrityError: It is larger.

    Example:
        >>> import io
        >>> refuse_larger(io.BytesIO(b"payload"), "memory:///alerts/1", 7)
    """
    if size is None or not file.seekable():
        return
    if file.seek(0, io.SEEK_END) > size:
        raise PayloadIntegrityError(
            f"the payload does not have the {size} bytes that were published", reference=reference
        )
    file.seek(0)


def see_others(store: PayloadStore, topic: str, reference: str, known: Iterable[str] = ()) -> bool:
    """Check that other payloads of a topic are readable: then the refusal of one concerns that one only.

    Any writer can store an object unreadable for readers: archived, encrypted with another key, or with other
    permissions.

    Args:
        store: The store.
        topic: The topic; a few of its payloads are tried.
        reference: The refused reference.
        known: References that were readable before; tried first.

    Returns:
        Whether one was readable; also False if the store cannot list and none is known.

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
    """Whether a refused payload is refused again: before, all may have been, for instance because of credentials.

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
    """Some payloads of a topic, from a random position on, since many at the beginning may be refused."""
    if isinstance(store, SupportsList):
        for prefix in (random.choice("0123456789abcdef"), ""):  # noqa: S311  no secret
            with suppress(PayloadStoreError):  # the listing is refused too
                yield from [info.reference for info in islice(store.list(topic, prefix=prefix), _MOST_OTHERS)]
