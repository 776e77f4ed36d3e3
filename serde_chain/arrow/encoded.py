"""The batch form of stages whose values are opaque to Arrow: a column of the encoded values, each of them checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from payload_stores.errors import drop_data
from payload_stores.plugins import require
from payload_stores.signals import let_through
from serde_chain.arrow.batch import Batch, BatchForm
from serde_chain.arrow.columns import binary_column
from serde_chain.errors import ContextualError, DecodeError, SerializationError, is_about_record
from serde_chain.record import Context


class EncodedBatch(BatchForm):
    """Reads every value, and returns its bytes as they came.

    Args:
        stage: The stage.
    """

    def __init__(self, stage: Callable[..., Any]) -> None:
        self._stage = stage

    @property
    def arrow_type(self) -> Any:
        """Arrow's binary type."""
        return require("pyarrow", "arrow").binary()

    def encoded(self, data: Any, context: Context) -> Any:
        """The result for a value that the stage has read."""
        return data

    def make_column(self, results: list[Any], batch: Batch) -> Any:
        """The ``pyarrow.Array`` of the results."""
        return binary_column(results)

    def __call__(self, batch: Batch, /) -> Any:
        """Read a batch; see :class:`serde_chain.arrow.batch.BatchForm`."""
        results: list[Any] = []
        for row, data in enumerate(batch.objects):
            result = None
            if data is not None:
                try:
                    context = batch.context(row)
                    self._stage(data, context)
                    result = self.encoded(data, context)
                except SerializationError as error:
                    batch.fail(row, error)
                except ContextualError:
                    raise  # such as a missing package, which is no record's
                except Exception as error:  # noqa: BLE001  of a subclass, as for single records
                    let_through(error)
                    batch.fail(row, _failure(error))
            results.append(result)
        return self.make_column(results, batch)


def _failure(error: Exception) -> DecodeError:
    failure = DecodeError(f"{type(error).__name__}: {error}").marked(about_record=is_about_record(error))
    drop_data(error)
    failure.__cause__ = error
    return failure
