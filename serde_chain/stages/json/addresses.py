"""Documents at addresses that the configuration names; no schema leads to another server."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterable
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlsplit

from serde_chain.schemas.deadline import within_deadline

_MOST_BYTES: Final = 4 << 20
_SECONDS: Final = 10


class UnresolvedError(ValueError):
    """A reference leads nowhere, or nowhere that may be opened."""


class MissingPartError(UnresolvedError):
    """A document has no such part."""


class UnreachableError(UnresolvedError):
    """The server of a named address does not answer."""


class Addresses(urllib.request.HTTPRedirectHandler):
    """Fetches documents from named addresses, or from below them.

    Args:
        named: The addresses, such as ``https://gcn.nasa.gov/schema``.

    Example:
        >>> Addresses(["https://gcn.nasa.gov/schema"]).include("https://gcn.nasa.gov/schema/main/gcn/circulars")
        True
    """

    def __init__(self, named: Iterable[str]) -> None:
        self._named = [urlsplit(address) for address in named]
        self._opener = urllib.request.build_opener(self)

    def include(self, address: str) -> bool:
        """Whether an address is named, or below one that is."""
        parts = urlsplit(address)
        if parts.scheme not in {"http", "https"} or ".." in parts.path.split("/"):
            return False
        return any(
            parts[:2] == named[:2] and f"{parts.path}/".startswith(f"{named.path.removesuffix('/')}/")
            for named in self._named
        )

    def fetch(self, address: str) -> Any:
        """The document at an address, within one deadline.

        Raises:
            UnresolvedError: The address is not named; or there is no JSON, or too much.
            UnreachableError: The server does not answer, or refuses.
        """
        if not self.include(address):
            raise UnresolvedError(f"json.schema.addresses does not name {address[:200]!r}")
        try:
            data = within_deadline(self._download, address)
        except (OSError, ValueError) as error:
            raise UnreachableError(f"{address[:200]} cannot be fetched: {error}") from error
        if len(data) > _MOST_BYTES:
            raise UnresolvedError(f"{address[:200]} has more than {_MOST_BYTES} bytes")
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise UnresolvedError(f"{address[:200]} is not JSON: {error}") from error

    def redirect_request(self, *arguments: Any) -> Any:
        """Follow a redirection to another named address only."""
        _, body, code, _, headers, address = arguments
        if not self.include(address):
            raise HTTPError(address, code, "it redirects to an address that is not named", headers, body)
        return super().redirect_request(*arguments)

    def _download(self, address: str) -> bytes:
        with self._opener.open(address, timeout=_SECONDS) as answer:
            data: bytes = answer.read(_MOST_BYTES + 1)
        return data
