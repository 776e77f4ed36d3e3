"""The envelope around encrypted payloads.

=======  ==========================================================================================
bytes    content
=======  ==========================================================================================
2        ``CE 01``, the version of the envelope
1        mode: ``01`` AES-256-GCM, ``02`` AES-256-SIV
1        length n of the key id, 1 to 128
n        the key id: letters, digits and ``. _ : / -``
16       GCM only: salt of the key, see :mod:`serde_chain.stages.encryption.stage`
12       GCM only: nonce
rest     GCM: ciphertext and the tag of 16 bytes; SIV: synthetic IV of 16 bytes and ciphertext
=======  ==========================================================================================

The associated data (RFC 5116, section 2.1) consists of all bytes before the nonce, one byte for the record's field
(``00`` key, ``01`` value) and the topic in UTF-8.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from serde_chain.base import Buffer

GCM: Final = 1
SIV: Final = 2
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
KEY_ID: Final = re.compile(r"[A-Za-z0-9._:/-]{1,128}")

_MAGIC: Final = 0xCE
_VERSION: Final = 1


class Envelope(NamedTuple):
    """The head in front of a ciphertext.

    Attributes:
        mode: :data:`GCM` or :data:`SIV`.
        head: The bytes before the nonce.
        nonce: Nonce; empty for SIV.
        start: Where the ciphertext begins.
    """

    mode: int
    head: bytes
    nonce: bytes
    start: int


def head(mode: int, key_id: str, salt: bytes = b"") -> bytes:
    """The bytes before the nonce."""
    encoded = key_id.encode("ascii")
    return bytes((_MAGIC, _VERSION, mode, len(encoded))) + encoded + salt


def associated_data(head: bytes, topic: str, *, is_key: bool) -> bytes:
    """The data authenticated in addition to the payload."""
    return b"".join((head, b"\x00" if is_key else b"\x01", topic.encode()))


def split(data: Buffer) -> Envelope:
    """Read an envelope.

    Raises:
        ValueError: The data is not an envelope, has an unknown version or mode, or is truncated.
    """
    if len(data) < 2 or data[0] != _MAGIC:
        raise ValueError(f"the data begins with {bytes(data[:2]).hex() or 'nothing'} instead of {_MAGIC:02x}01")
    if data[1] != _VERSION:
        raise ValueError(f"unknown version {data[1]} of the envelope, expected {_VERSION}")
    if len(data) < 4:
        raise ValueError(f"the envelope is truncated after {len(data)} bytes")
    mode = data[2]
    end = 4 + data[3]
    start = end
    if mode == GCM:
        end += SALT_BYTES
        start = end + NONCE_BYTES
    elif mode != SIV:
        raise ValueError(f"unknown mode {mode} of the envelope")
    if len(data) < start + TAG_BYTES:
        raise ValueError(f"the envelope is truncated after {len(data)} bytes")
    return Envelope(mode, bytes(data[:end]), bytes(data[end:start]), start)


def key_of(head: bytes) -> tuple[str, bytes]:
    """The key id and the salt of a head that :func:`split` returned.

    Raises:
        ValueError: The key id is invalid.
    """
    end = 4 + head[3]
    key_id = head[4:end].decode("ascii", "replace")
    if not KEY_ID.fullmatch(key_id):
        raise ValueError("the envelope's key id is empty, longer than 128 bytes, or contains invalid characters")
    return key_id, head[end:]
