"""Batches of records as Arrow columns: the contracts of stages, and the loop over them."""

from serde_chain.arrow.batch import Batch, BatchForm, BatchResult, SupportsBatchForm, Untouched
from serde_chain.arrow.writing import ArrowRecords, ColumnWriter, SupportsColumns

__all__ = [
    "ArrowRecords",
    "Batch",
    "BatchForm",
    "BatchResult",
    "ColumnWriter",
    "SupportsBatchForm",
    "SupportsColumns",
    "Untouched",
]
