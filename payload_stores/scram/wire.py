"""The text format of HTTP SCRAM for both sides: header fields, base64, limits (RFC 7804, RFC 9110)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash function of each mechanism."""
MECHANISMS: Final = tuple(HASHES)

# RFC 7677 section 4 requires at least 4096. The upper bound is ours: without it, a server could make its clients
# compute indefinitely; a million rounds take about half a second.
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 1_000_000

_NAME: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
# A quoted string, or anything up to the next comma: RFC 7804 writes base64 without quotes, although "=" and "/" are
# not allowed in a token.
_PARAMETER: Final = re.compile(rf'({_NAME})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))[ \t]*(?:,|$)')
_SCHEME: Final = re.compile(rf"({_NAME})(?:[ \t]+|[ \t]*(?=,|$))")
_TOKEN68: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*[ \t]*(?:,|$)")
_EMPTY: Final = re.compile(r"[ \t,]+")
_ESCAPED: Final = re.compile(r"\\(.)")


class MalformedHeaderError(ValueError):
    """A malformed header field or message."""


def mechanism_name(text: str) -> str | None:
    """The registered name of a supported mechanism, case-insensitive; None for others."""
    return text.upper() if text.upper() in MECHANISMS else None


def encode(message: str) -> str:
    """A SCRAM message as the value of ``data``."""
    return base64.b64encode(message.encode()).decode()


def decode(data: str) -> str:
    """The SCRAM message in ``data``.

    Raises:
        MalformedHeaderError: Not base64 of UTF-8.
    """
    try:
        return base64.b64decode(data.encode("ascii"), validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise MalformedHeaderError("data is not base64 of UTF-8 text") from error


def write(scheme: str, parameters: Mapping[str, str]) -> str:
    """A challenge, credentials or, with an empty scheme, an ``Authentication-Info`` field."""
    return f"{scheme} {','.join(f'{name}={value}' for name, value in parameters.items())}".strip()


def parse_parameters(text: str) -> dict[str, str]:
    """Read ``name=value, name="value"``, as in ``Authentication-Info`` (RFC 9110 section 11.6.3).

    Returns:
        Values by name, in lower case, without quotes.

    Raises:
        MalformedHeaderError: Another format, or a duplicate name.
    """
    parameters: dict[str, str] = {}
    position = _skip(text, 0)
    while position < len(text):
        match = _PARAMETER.match(text, position)
        if match is None:
            raise MalformedHeaderError("a list of parameters is malformed")
        _add(parameters, match)
        position = _skip(text, match.end())
    return parameters


def parse_challenges(text: str) -> list[tuple[str, dict[str, str]]]:
    """Read the challenges of ``WWW-Authenticate``, or the one of ``Authorization`` (RFC 9110 section 11.3).

    Args:
        text: The field's value; several fields of the name joined by commas.

    Returns:
        Schemes as written, with their parameters; schemes with a token instead (``Negotiate abc=``) have none.

    Raises:
        MalformedHeaderError: Another format.
    """
    challenges: list[tuple[str, dict[str, str]]] = []
    position = _skip(text, 0)
    while position < len(text):
        parameter = _PARAMETER.match(text, position)
        if parameter is not None and challenges:
            _add(challenges[-1][1], parameter)
            position = _skip(text, parameter.end())
            continue
        scheme = _SCHEME.match(text, position)
        if scheme is None:
            raise MalformedHeaderError("a challenge is malformed")
        challenges.append((scheme[1], {}))
        position = scheme.end()
        if _PARAMETER.match(text, position) is None and (token := _TOKEN68.match(text, position)):
            position = token.end()
        position = _skip(text, position)
    return challenges


def _add(parameters: dict[str, str], match: re.Match[str]) -> None:
    name, quoted, plain = match.groups()
    if name.lower() in parameters:
        raise MalformedHeaderError(f"a header field contains {name} twice")
    parameters[name.lower()] = _ESCAPED.sub(r"\1", quoted) if quoted is not None else plain


def _skip(text: str, position: int) -> int:
    match = _EMPTY.match(text, position)
    return match.end() if match else position
