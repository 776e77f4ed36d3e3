"""A payload store in a folder."""

from payload_stores.local.store import LocalStore

__all__ = ["LocalStore"]
