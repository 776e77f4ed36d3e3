"""A payload store in an S3 bucket."""

from payload_stores.s3.store import S3Store

__all__ = ["S3Store"]
