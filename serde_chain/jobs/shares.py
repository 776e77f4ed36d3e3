"""Divides the folders of large topics among readers that list them at the same time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Final

from serde_chain.jobs.payload_folders import Folder, IdRange

MOST_PARTS: Final = 4096
"""The most parts of one folder."""

# Fifty requests of S3, or some seconds.
_PAYLOADS_OF_PART: Final = 50_000
# A page: one request.
_PROBE: Final = 1000
_MIDDLE: Final = "8"
_DIGITS: Final = re.compile(r"[0-9a-f]{1,12}")


def parts_of(folders: Sequence[Folder], chosen: Sequence[int]) -> Iterator[IdRange]:
    """Divide folders into ranges of ids, of at most some 50,000 payloads each.

    All ids made here begin with random hexadecimal digits, which the ranges divide evenly. Together they have every
    id: of others, more may be in one range.

    Args:
        folders: All folders.
        chosen: The indexes of those to divide; their stores list ranges.

    Raises:
        PayloadStoreError: A store does not answer.
    """
    for at in chosen:
        count = min(-(-estimate(folders[at]) // _PAYLOADS_OF_PART), MOST_PARTS)
        bounds = [f"{number * MOST_PARTS // count:03x}" for number in range(1, count)]
        for after, until in pairwise(("", *bounds, None)):
            yield IdRange(at, after or "", until)


def estimate(folder: Folder) -> int:
    """The approximate number of payloads in a folder, by the density of ids in its middle: one request.

    A thousand random ids are a sample with a relative error of some 3 %.

    Raises:
        PayloadStoreError: The store does not answer.
    """
    ids = [folder.id_of(info.reference) for info in islice(folder.list_range(after=_MIDDLE), _PROBE)]
    if len(ids) < _PROBE:
        return 2 * len(ids)
    share = _place(ids[-1]) - _place(_MIDDLE)
    return round(_PROBE / share) if share > 0 else MOST_PARTS * _PAYLOADS_OF_PART


def _place(payload_id: str) -> float:
    """Where an id is among all that begin with hexadecimal digits: from 0 to 1."""
    digits = _DIGITS.match(payload_id)
    return int(digits[0], 16) / 16 ** len(digits[0]) if digits else 1.0
