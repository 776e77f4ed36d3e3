"""Headers of confluent_kafka's messages, also where a name is not UTF-8, as any writer of a topic can make one.

The client raises SystemError at the first look at such headers. At the second, it returns pairs of which one lacks its
name: Python code that takes the name ends the process (segmentation fault).
"""

from __future__ import annotations

from gc import get_referents
from typing import Any, Final

__all__ = ["NO_NAME", "headers_of"]

# For a name of which the client does not say the bytes.
NO_NAME: Final = "\ufffd"


def headers_of(message: Any) -> Any:
    """The headers of a message; names that are not UTF-8 become U+FFFD, in the message too.

    Args:
        message: A ``confluent_kafka.Message``.

    Returns:
        As its own ``headers()``: a list of pairs, or None.

    Example:
        >>> from confluent_kafka import Message
        >>> headers_of(Message(headers=[("telescope", b"Rubin")]))
        [('telescope', b'Rubin')]
    """
    try:
        headers = message.headers()
    except SystemError as error:
        if not _is_about_text(error):
            raise
        headers = message.headers()
    # A pair without a name refers to its value alone. Nothing else may touch it.
    if headers and len(get_referents(*headers)) < 2 * len(headers):
        headers = [pair if len(get_referents(pair)) == len(pair) else (NO_NAME, pair[1]) for pair in headers]
        message.set_headers(headers)
    return headers


def _is_about_text(error: BaseException | None) -> bool:
    """Whether it began with a name; the next name makes another SystemError of the first one's."""
    while isinstance(error, SystemError):
        error = error.__cause__
    return isinstance(error, UnicodeDecodeError)
