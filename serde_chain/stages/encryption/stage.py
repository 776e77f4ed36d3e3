"""``encrypt``: authenticated encryption with AES-256-GCM, or with AES-SIV, which gives equal payloads equal bytes.

Keys are never used directly: each mode derives its own with HKDF-SHA-256 (RFC 5869). For GCM (NIST SP 800-38D), the
derivation has a random salt of 16 bytes, which is part of the record and is renewed for every stage and after 2^20
records, so that no number of records approaches the 2^32 after which random nonces of one key might repeat. SIV (RFC
5297) has no nonce; it reveals which payloads are equal, and keeps content ids stable.

See :mod:`serde_chain.stages.encryption.envelope` for the bytes. Topic and field are authenticated too: a value copied
to another topic, or used as a key, is refused.
"""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple, cast

from payload_stores.options import Option, choice, text
from payload_stores.plugins import require
from serde_chain.base import Buffer, Data, Deserializer, Serializer, Stage
from serde_chain.errors import (
    ConfigError,
    DecodeError,
    DecryptionError,
    EncodeError,
    MissingDependencyError,
    UnknownKeyError,
)
from serde_chain.record import KEY, Context, topic_of
from serde_chain.stages.encryption import envelope
from serde_chain.stages.encryption import keys as encryption_keys
from serde_chain.stages.encryption.envelope import GCM, NONCE_BYTES, SALT_BYTES, SIV, TAG_BYTES
from serde_chain.stages.encryption.keys import MIN_KEY_BYTES, KeyProvider
from serde_chain.transfer import Lookups, finish

_MODES: Final = {"gcm": GCM, "siv": SIV}
_INFO: Final = {GCM: b"serde-chain encrypt 1 gcm", SIV: b"serde-chain encrypt 1 siv"}
_KEY_BYTES: Final = {GCM: 32, SIV: 64}
_RECORDS_PER_SALT: Final = 1 << 20
_REMEMBERED: Final = 256
# An unknown key may be added later.
_UNKNOWN_SECONDS: Final = 60

MODE: Final = Option("encryption.mode", choice(*_MODES), "gcm", doc="gcm, or siv: equal payloads become equal bytes")
TOPIC: Final = Option("encryption.topic", text, None, doc="authenticated topic, for records copied from that topic")


class _Encryption(Stage):
    """Keys, ciphers and associated data, shared by both directions."""

    authenticates = True

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the keys, or create their provider."""
        super().configure(config, is_key)
        self._aead: Any = require("cryptography.hazmat.primitives.ciphers.aead", "encryption")
        self._provider: KeyProvider = encryption_keys.key_provider(config)
        self._topic = TOPIC.read(config)

    def _ask_provider(self, key_id: str) -> bytes:
        key = bytes(self._provider.key(key_id))
        if len(key) < MIN_KEY_BYTES:
            raise ConfigError(f"it has {len(key)} bytes, at least {MIN_KEY_BYTES} are required")
        return key

    def _make_cipher(self, mode: int, key: bytes, salt: bytes) -> Any:
        hashes: Any = require("cryptography.hazmat.primitives.hashes", "encryption")
        hkdf: Any = require("cryptography.hazmat.primitives.kdf.hkdf", "encryption")
        derivation = hkdf.HKDF(algorithm=hashes.SHA256(), length=_KEY_BYTES[mode], salt=salt, info=_INFO[mode])
        derived = derivation.derive(key)
        return self._aead.AESGCM(derived) if mode == GCM else self._aead.AESSIV(derived)

    def _associated(self, head: bytes, ctx: Context | None) -> bytes:
        topic = self._topic or topic_of(ctx, "encrypt")
        return envelope.associated_data(head, topic, is_key=ctx is not None and ctx.field == KEY)


class _Session(NamedTuple):
    """The current cipher for writing, and the bytes before the nonce."""

    head: bytes
    cipher: Any


class EncryptionSerializer(_Encryption, Serializer[Buffer]):
    """Encrypts bytes; adds 4 bytes and the key id, and 44 bytes in GCM or 16 in SIV mode."""

    takes = Data.BYTES
    gives = Data.BYTES
    options = (MODE, TOPIC, *encryption_keys.OPTIONS)

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read mode and keys, and create the first cipher."""
        super().configure(config, is_key)
        if not hasattr(self._aead.AESGCM, "encrypt_into"):
            raise MissingDependencyError("cryptography is older than 47", hint="pip install 'cryptography>=47'")
        self._mode = _MODES[MODE.read(config)]
        self.varies = f"Set {MODE.name} = siv for keys" if self._mode == GCM else None
        self._key_id = encryption_keys.key_to_write(config, self._provider)
        self._numbers = itertools.count()
        self._sessions: Lookups[int, _Session] = Lookups(most=2, refused_s=0)
        try:
            self._sessions.get(0, self._new_session)
        except EncodeError as error:
            raise ConfigError(error.message, key=encryption_keys.KEY_ID_OPTION.name) from error

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> bytes | None:
        """Encrypt one payload."""
        return None if data is None else cast("bytes", finish(self.begin(data, ctx)))

    def begin(self, data: Buffer, ctx: Context | None, /) -> Any:
        """Encrypt one payload; in GCM mode, a transfer requests the key again after 2^20 records."""
        number = next(self._numbers) // _RECORDS_PER_SALT if self._mode == GCM else 0
        session = self._sessions.known.get(number)
        if session is None:
            return self._sessions.transfer(number, self._new_session, partial(self._seal, data, ctx))
        return self._seal(data, ctx, session)

    def _seal(self, data: Buffer, ctx: Context | None, session: _Session) -> bytes:
        gcm = self._mode == GCM
        head, cipher = session
        associated = self._associated(head, ctx)
        start = len(head) + NONCE_BYTES if gcm else len(head)
        # The buffer of a BytesIO becomes its value without a copy, which would cost a quarter of GCM's time.
        out = io.BytesIO(bytes(start + len(data) + TAG_BYTES))
        try:
            with out.getbuffer() as view:
                view[: len(head)] = head
                if gcm:
                    nonce = view[len(head) : start] = os.urandom(NONCE_BYTES)
                    cipher.encrypt_into(nonce, data, associated, view[start:])
                else:
                    cipher.encrypt_into(data, [associated], view[start:])
        except (OverflowError, ValueError) as error:
            raise EncodeError(f"the payload of {len(data)} bytes cannot be encrypted: {error}") from error
        return out.getvalue()

    def _new_session(self) -> _Session:
        """Create a cipher; in GCM mode, with a fresh salt."""
        salt = os.urandom(SALT_BYTES) if self._mode == GCM else b""
        try:
            cipher = self._make_cipher(self._mode, self._ask_provider(self._key_id), salt)
        except Exception as error:  # a provider may fail in any way
            raise EncodeError(f"the key {self._key_id} cannot be obtained: {_reason(error)}") from error
        return _Session(envelope.head(self._mode, self._key_id, salt), cipher)


class EncryptionDeserializer(_Encryption, Deserializer[bytes]):
    """Decrypts bytes of any mode with the key that they name, so that old keys remain readable after a rotation."""

    takes = Data.BYTES
    gives = Data.BYTES
    options = (TOPIC, *encryption_keys.OPTIONS)
    removed_headers = ()

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the keys, or create their provider."""
        super().configure(config, is_key)
        # Ids come from records, many of which may name one key with different salts, or a nonexistent key.
        self._keys: Lookups[str, bytes] = Lookups(most=_REMEMBERED, refused_s=_UNKNOWN_SECONDS)
        # By the bytes before the nonce, which name mode, key and salt.
        self._ciphers: dict[bytes, Any] = {}

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> bytes | None:
        """Decrypt one payload."""
        return None if data is None else cast("bytes", finish(self.begin(data, ctx)))

    def begin(self, data: Buffer, ctx: Context | None, /) -> Any:
        """Decrypt one payload; a transfer requests a key that is not known yet."""
        try:
            found = envelope.split(data)
            cipher = self._ciphers.get(found.head)
            if cipher is not None:
                return self._open(data, ctx, found, cipher)
            key_id, _ = envelope.key_of(found.head)
        except ValueError as error:
            raise DecodeError(f"the payload was not encrypted by this stage: {error}") from error
        key = self._keys.known.get(key_id)
        if key is None:
            return self._keys.transfer(key_id, partial(self._key, key_id), partial(self._open_by, data, ctx, found))
        return self._open_by(data, ctx, found, key)

    def _open_by(self, data: Buffer, ctx: Context | None, found: envelope.Envelope, key: bytes) -> bytes:
        cipher = self._make_cipher(found.mode, key, envelope.key_of(found.head)[1])
        if len(self._ciphers) >= _REMEMBERED:  # heads come from records
            self._ciphers.clear()
        self._ciphers[found.head] = cipher
        return self._open(data, ctx, found, cipher)

    def _open(self, data: Buffer, ctx: Context | None, found: envelope.Envelope, cipher: Any) -> bytes:
        mode, head, nonce, start = found
        try:
            associated = self._associated(head, ctx)
        except EncodeError as error:
            raise DecodeError(error.message, hint=error.hint) from error
        sealed = memoryview(data)[start:]
        try:
            opened: bytes = (
                cipher.decrypt(nonce, sealed, associated) if mode == GCM else cipher.decrypt(sealed, [associated])
            )
        except Exception as error:  # InvalidTag, or OverflowError for more than 2 GiB
            raise DecryptionError(
                f"the payload cannot be authenticated with the key {envelope.key_of(head)[0]}: the key differs, "
                "the record was written for another topic or field, or its bytes were changed",
                hint=f"If it was copied from another topic, set {TOPIC.name} to that one",
            ) from error
        return opened

    def _key(self, key_id: str) -> bytes:
        try:
            return self._ask_provider(key_id)
        except KeyError:
            raise UnknownKeyError(
                f"the payload is encrypted with the key {key_id}, which is not configured",
                hint=f"Add it to {encryption_keys.KEYS.name}: keep keys there until no record needs them",
            ) from None
        except Exception as error:  # a provider may fail in any way
            raise DecryptionError(
                f"the key {key_id} cannot be obtained: {_reason(error)}",
                # The record may be valid; a fault of the key itself is permanent.
            ).marked(about_record=False, transient=not isinstance(error, ConfigError)) from error


def _reason(error: Exception) -> str:
    """The part of a provider's error that is safe to show: our own message, otherwise its type alone."""
    return error.message if isinstance(error, ConfigError) else type(error).__name__
