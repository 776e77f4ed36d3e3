"""Headers of confluent_kafka messages, including names that are not UTF-8, which any writer of a topic can produce.

The client raises SystemError when such headers are first read. The second time, it returns pairs with one name
missing: Python code that uses the name crashes the process (segmentation fault).
"""

from __future__ import annotations

from gc import get_referents
from operator import methodcaller
from typing import Any, Final

# Called from C: a hot call in Python does not check for the client's exception, which would surface anywhere.
_headers: Final = methodcaller("headers")

# For a name whose bytes the client does not expose.
NO_NAME: Final = "\ufffd"


def headers_of(message: Any) -> Any:
    """The headers of a message; names that are not UTF-8 become U+FFFD, in the message too.

    Args:
        message: A ``confluent_kafka.Message``.

    Returns:
        Like ``message.headers()``: a list of pairs, or None.

    Example:
        >>> from confluent_kafka import Message
        >>> headers_of(Message(headers=[("telescope", b"Rubin")]))
        [('telescope', b'Rubin')]
    """
    try:
        headers = _headers(message)
    except SystemError as error:
        if not _is_about_text(error):
            raise
        headers = _headers(message)
    # A pair without a name holds a reference to its value only. Nothing else may touch it.
    if headers and len(get_referents(*headers)) < 2 * len(headers):
        headers = [pair if len(get_referents(pair)) == len(pair) else (NO_NAME, pair[1]) for pair in headers]
        message.set_headers(headers)
    return headers


def _is_about_text(error: BaseException | None) -> bool:
    """Whether it began with a name; the next name replaces the SystemError of the first by another."""
    while isinstance(error, SystemError):
        error = error.__cause__
    return isinstance(error, UnicodeDecodeError)
