"""The format of a printed record, as kcat's ``-f`` has it."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, Final

from serde_chain.cli.outline import as_line, as_text, fetched

_PART: Final = re.compile(r"%(.)|\\(x[0-9A-Fa-f]{2}|.)|([^%\\]+)|.", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}


class Layout:
    r"""A format with placeholders for the parts of a record, as in kcat.

    ``%s`` value, ``%S`` its size in bytes, ``%R`` the same as 32 bits in network order, ``%k`` key, ``%K`` its size,
    ``%h`` headers, ``%t`` topic, ``%p`` partition, ``%o`` offset, ``%T`` time in ms since the epoch, ``%%`` a percent
    sign; ``\n``, ``\r``, ``\t``, ``\0``, ``\\`` and ``\xNN``. The size of what is not there is -1. Bytes are printed as
    they are, objects as JSON. Source: kcat 1.7, ``format.c``.

    Args:
        text: The format.

    Raises:
        ValueError: A placeholder is unknown.

    Example:
        >>> Layout(r"%t [%p] at %o\n")(message)  # doctest: +SKIP
        b'alerts [0] at 51\n'
    """

    def __init__(self, text: str) -> None:
        self._parts: list[bytes | Callable[[Any], bytes]] = []
        for match in _PART.finditer(text):
            placeholder, escape, literal = match.groups()
            if placeholder is not None:
                if placeholder not in _PLACEHOLDERS:
                    known = " ".join(f"%{name}" for name in _PLACEHOLDERS)
                    raise ValueError(f"%{placeholder} is no placeholder; there are {known}")
                self._parts.append(_PLACEHOLDERS[placeholder])
            elif escape is not None:
                self._parts.append(_escaped(escape))
            elif literal is not None:
                self._parts.append(literal.encode())
            else:
                raise ValueError(f"{match[0]!r} at the end is incomplete")

    def __call__(self, message: Any) -> bytes:
        """Format a record.

        Args:
            message: A ``confluent_kafka.Message``, decoded or not.
        """
        return b"".join(part if isinstance(part, bytes) else part(message) for part in self._parts)


def _escaped(escape: str) -> bytes:
    if escape.startswith("x") and len(escape) > 1:
        return bytes.fromhex(escape[1:])
    if escape not in _ESCAPES:
        raise ValueError(f"\\{escape} is no escape; there are \\n \\r \\t \\0 \\\\ \\xNN")
    return _ESCAPES[escape]


def _bytes(value: Any) -> bytes:
    value = fetched(value)
    if value is None or isinstance(value, bytes):
        return value or b""
    return (value if isinstance(value, str) else as_line(value)).encode("utf-8", "surrogatepass")


def _size(value: Any) -> int:
    return -1 if value is None else len(_bytes(value))


def _headers(message: Any) -> bytes:
    headers: list[tuple[str, bytes | str | None]] = message.headers() or []
    return b",".join(f"{name}={_header(value)}".encode("utf-8", "surrogatepass") for name, value in headers)


def _header(value: bytes | str | None) -> str:
    if isinstance(value, bytes):
        text = as_text(value)
        return value.hex() if text is None else text
    return "NULL" if value is None else value


def _number(number: int) -> bytes:
    return str(number).encode()


_PLACEHOLDERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "s": lambda message: _bytes(message.value()),
    "S": lambda message: _number(_size(message.value())),
    "R": lambda message: struct.pack(">i", _size(message.value())),
    "k": lambda message: _bytes(message.key()),
    "K": lambda message: _number(_size(message.key())),
    "h": _headers,
    "t": lambda message: str(message.topic()).encode(),
    "p": lambda message: _number(message.partition()),
    "o": lambda message: _number(message.offset()),
    "T": lambda message: _number(message.timestamp()[1]),
    "%": lambda _message: b"%",
}
