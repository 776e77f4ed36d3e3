"""The one engine of all stores in buckets; each store adds its options and a driver for its library."""

from payload_stores.buckets.store import BucketStore

__all__ = ["BucketStore"]
