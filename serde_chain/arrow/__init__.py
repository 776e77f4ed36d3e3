"""Batches of records as Arrow columns: the contract of batch forms, and the loop over the stages."""

from serde_chain.arrow.batch import Batch, BatchForm, BatchResult, SupportsBatchForm, Untouched

__all__ = ["Batch", "BatchForm", "BatchResult", "SupportsBatchForm", "Untouched"]
