"""SCRAM over HTTP (RFC 7804): a client's auth object for httpx2, and the server's side without a server.

:class:`ScramAuth` is loaded on first use: unlike the other modules here, it requires httpx2.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from payload_stores.scram.auth import ScramAuth

__all__ = ["ScramAuth"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.auth"), name)
