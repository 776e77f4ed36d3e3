"""A payload store in a bucket or container of S3, Google Cloud Storage or Azure Blob Storage."""

from payload_stores.objects.store import ObjectsStore

__all__ = ["ObjectsStore"]
