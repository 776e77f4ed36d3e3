"""SCRAM over HTTP (RFC 7804): a client's auth object for httpx2, and the server's side without a server.

:class:`ScramAuth` is loaded on first use: unlike the other modules here, it requires httpx2.
"""

from typing import TYPE_CHECKING

from payload_stores.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from payload_stores.scram.auth import ScramAuth as ScramAuth
else:
    __all__, __getattr__, __dir__ = _lazy_names(__name__, {".auth": "ScramAuth"})
