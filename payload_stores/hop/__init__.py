"""A payload store behind hop's offload API (SCiMMA Hopskotch)."""

from payload_stores.hop.store import HopStore

__all__ = ["HopStore"]
