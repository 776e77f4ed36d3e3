"""The batch form of ``json``: the documents' validated text; a JSON schema says little about columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from payload_stores.plugins import require
from serde_chain.arrow.batch import Batch
from serde_chain.arrow.encoded import EncodedBatch
from serde_chain.base import Buffer
from serde_chain.record import Context


class JsonBatch(EncodedBatch):
    """Validates every document and returns its text, which keeps details that parsing would lose, such as digits.

    Args:
        stage: The stage.
        document: Gives the document within a record that the stage has read.
    """

    def __init__(self, stage: Callable[..., Any], document: Callable[[Any, Context], Buffer]) -> None:
        super().__init__(stage)
        self._document = document

    @property
    def arrow_type(self) -> Any:
        """Arrow's text type."""
        return require("pyarrow", "arrow").string()

    def encoded(self, data: Any, context: Context) -> str:
        """The document's text."""
        return str(self._document(data, context), "utf-8").removeprefix("\ufeff")

    def make_column(self, results: list[Any], batch: Batch) -> Any:
        """A column of text."""
        kind = batch.arrow.string() if sum(map(len, filter(None, results))) < 1 << 29 else batch.arrow.large_string()
        return batch.arrow.array(results, kind)
