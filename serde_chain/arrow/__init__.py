"""Batches of records as Arrow columns: what a stage's batch form is given, and the loop over the stages."""

from serde_chain.arrow.batch import Batch, BatchForm, BatchResult, SupportsBatchForm, Untouched

__all__ = ["Batch", "BatchForm", "BatchResult", "SupportsBatchForm", "Untouched"]
