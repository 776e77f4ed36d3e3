"""Listings by obstore, which refuses a page with an unusual name, and begins only at folders or after names."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from payload_stores.errors import PayloadStoreError

if TYPE_CHECKING:
    from payload_stores.objects.settings import Client

_log = logging.getLogger("payload_stores")

_LIST_ITEMS: Final = 1000
# obstore fails on a page of a listing if one name has an empty segment, "." or "..", or a control character.
_REFUSED_NAME: Final = re.compile(r'Path "(.*)"(?:: Encountered illegal| contained empty)', re.DOTALL)
_ILLEGAL: Final = re.compile(r"(?<=/)\.{1,2}(?=/|\Z)|(?<=/)(?=/)|[\x00-\x1f\x7f]")
# Characters that can follow such a name, in listing order.
_LEGAL: Final = "!$&'()+,-0123456789:;=@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
# Characters of ids, in listing order.
_ORDER: Final = "-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~"
_SHOWN: Final = 200


def pages(client: Client, folder: str, offset: str | None, *, is_ordered: bool) -> Iterator[Any]:
    """Pages of a listing; it continues after a name that obstore refuses.

    Args:
        client: The client of the bucket.
        folder: The folder.
        offset: The name before the first one; None to begin with the first.
        is_ordered: Whether listings are sorted by name.

    Raises:
        PayloadStoreError: It cannot continue after such a name.
    """
    for count in itertools.count(1):
        try:
            yield from client.list(folder, offset=offset, chunk_size=_LIST_ITEMS)
        except Exception as error:
            refused = _REFUSED_NAME.search(str(error))
            if refused is None:
                raise
            behind = _behind(refused[1]) if is_ordered else None
            if behind is None or (offset is not None and behind <= offset):
                raise PayloadStoreError(
                    f"the listing ends at an object of another writer, whose name obstore refuses: "
                    f"{refused[1][:_SHOWN]!r}",
                    hint="Delete or rename the object; the store s3 lists such names",
                ) from error
            _log.warning(
                "obstore refuses a name of another writer (%d so far in %s), and with it the names of its page, up "
                "to 1,000: delete or rename %.200r, or use the store s3",
                *(count, folder, refused[1]),
            )
            offset = behind
        else:
            return


def before(start: str) -> str | None:
    """A name that sorts before all names beginning with some text of id characters; None if none helps."""
    at = _ORDER.find(start[-1])
    return f"{start[:-1]}{_ORDER[at - 1]}~" if at > 0 else None


def _behind(name: str) -> str | None:
    """The next name accepted by obstore after one it refuses; None if there is none."""
    found = _ILLEGAL.search(name)
    if found is None:
        return None
    is_control = found[0] not in {"", ".", ".."}
    before, illegal = (name[: found.start()], found[0]) if is_control else (name[: found.end()], "/")
    while before:
        after = next((each for each in _LEGAL if each > illegal), None)
        if after is not None:
            return before + after
        before, illegal = before[:-1], before[-1]
    return None
