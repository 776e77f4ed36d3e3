"""Stages of a user's own that mark records, or remove the marks, as no stage of ours does."""

from typing import Any

from serde_chain.base import Data, Deserializer, RemovedHeaders
from serde_chain.record import get_header, remove_headers
from serde_chain.stages.large_fields.read import LargeFieldsDeserializer


class OwnMark(LargeFieldsDeserializer):
    """Marks its records by a header of its own."""

    def marker_headers(self) -> frozenset[str]:
        return frozenset({"own-mark"})


class Voids(Deserializer[bytes]):
    """Drops the references of records that are marked as void."""

    takes = gives = Data.BYTES
    removed_headers = (RemovedHeaders("void", frozenset({"large-fields"})),)

    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        if data is not None and get_header(ctx, "void") is not None:
            remove_headers(ctx, ("large-fields",))
        return data
