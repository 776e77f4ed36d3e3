"""The batch form of ``json``: the documents' validated text; a JSON schema says little about columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from payload_stores.errors import drop_data
from payload_stores.plugins import require
from serde_chain.arrow.batch import Batch, BatchForm
from serde_chain.base import Buffer
from serde_chain.errors import ContextualError, DecodeError, SerializationError, is_about_record
from serde_chain.record import Context
from serde_chain.signals import let_through

__all__ = ["JsonBatch"]


class JsonBatch(BatchForm):
    """Validates every document and returns its text, which keeps details that parsing would lose, such as digits.

    Args:
        stage: The stage.
        document: Gives the document within a record that the stage has read.
    """

    def __init__(self, stage: Callable[..., Any], document: Callable[[Any, Context], Buffer]) -> None:
        self._stage = stage
        self._document = document

    @property
    def arrow_type(self) -> Any:
        """Arrow's text type."""
        return require("pyarrow", "arrow").string()

    def __call__(self, batch: Batch, /) -> Any:
        """Read a batch; see :class:`serde_chain.arrow.batch.BatchForm`."""
        texts: list[str | None] = []
        for row, data in enumerate(batch.objects):
            text = None
            if data is not None:
                try:
                    context = batch.context(row)
                    self._stage(data, context)
                    text = str(self._document(data, context), "utf-8")
                except SerializationError as error:
                    batch.fail(row, error)
                except ContextualError:
                    raise  # such as a missing package, which is no record's
                except Exception as error:  # noqa: BLE001  of a subclass, as for single records
                    let_through(error)
                    batch.fail(row, _failure(error))
            texts.append(text)
        kind = batch.arrow.string() if sum(map(len, filter(None, texts))) < 1 << 29 else batch.arrow.large_string()
        return batch.arrow.array(texts, kind)


def _failure(error: Exception) -> DecodeError:
    failure = DecodeError(f"{type(error).__name__}: {error}")
    drop_data(error)
    failure.__cause__ = error
    failure.about_record = is_about_record(error)
    return failure
