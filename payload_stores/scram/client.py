"""One SCRAM exchange from the client's side (RFC 5802), with cached keys.

The messages are scramp's, except for the proof: scramp derives the salted password for each exchange, with thousands of
rounds of HMAC, although the same password, salt and iteration count always yield the same keys.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import threading
from collections import OrderedDict
from typing import Final, NamedTuple

from payload_stores.plugins import require
from payload_stores.scram.wire import HASHES, MalformedHeaderError

require("scramp", "hop")

from scramp import ScramClient  # noqa: E402  after the check that it is there
from scramp.utils import saslprep  # noqa: E402

# Maximum salts remembered: a user has one per server, and a new one with each new password.
_MAX_SALTS: Final = 16


class Keys(NamedTuple):
    """The keys for proofs (RFC 5802 section 3).

    Attributes:
        client: ``ClientKey``.
        stored: ``StoredKey``.
        server: ``ServerKey``.
    """

    client: bytes
    stored: bytes
    server: bytes

    def __repr__(self) -> str:
        return "Keys(********)"


class Password:
    """A password, and the keys derived from it. Thread-safe.

    Args:
        password: The password.
        mechanism: One of :data:`~payload_stores.scram.wire.MECHANISMS`.

    Raises:
        ScramException: The password has characters that SCRAM does not allow (RFC 4013).
    """

    def __init__(self, password: str, mechanism: str) -> None:
        self.text = password
        self.hash_name: Final = HASHES[mechanism]
        self._prepared = saslprep(password).encode()
        self._lock = threading.Lock()
        self._keys: OrderedDict[tuple[bytes, int], Keys] = OrderedDict()

    def keys(self, salt: bytes, iterations: int) -> Keys:
        """The keys for a salt and an iteration count; cached."""
        with self._lock:
            if (keys := self._keys.get((salt, iterations))) is not None:
                self._keys.move_to_end((salt, iterations))
                return keys
        # Outside the lock: it takes milliseconds, and two threads get the same result.
        salted = hashlib.pbkdf2_hmac(self.hash_name, self._prepared, salt, iterations)
        client = hmac.digest(salted, b"Client Key", self.hash_name)
        stored = hashlib.new(self.hash_name, client).digest()
        made = Keys(client, stored, hmac.digest(salted, b"Server Key", self.hash_name))
        with self._lock:
            self._keys[salt, iterations] = made
            while len(self._keys) > _MAX_SALTS:
                self._keys.popitem(last=False)
        return made


class Exchange:
    """One exchange; call its methods in the order in which they are defined.

    Args:
        mechanism: The mechanism.
        username: The user's name.
        password: The password.

    Raises:
        ScramException: Here or in :meth:`take`: an argument is invalid.
    """

    def __init__(self, mechanism: str, username: str, password: Password) -> None:
        self._client = ScramClient([mechanism], username, password.text)
        self._password = password
        self._server_first = ""
        self._signature = b""

    @property
    def nonce(self) -> str:
        """The client's part of the nonce."""
        return str(self._client.c_nonce)

    def first(self) -> str:
        """The client's first message."""
        return str(self._client.get_client_first())

    def take(self, server_first: str) -> tuple[str, int]:
        """Read the server's first message.

        Returns:
            The salt in base64, and the iteration count.
        """
        self._client.set_server_first(server_first)
        self._server_first = server_first
        return str(self._client.salt), int(self._client.iterations)

    def final(self) -> str:
        """The client's last message, with the proof."""
        keys = self._password.keys(base64.b64decode(str(self._client.salt)), int(self._client.iterations))
        without_proof = f"c=biws,r={self._client.nonce}"
        signed = f"{self._client.client_first_bare},{self._server_first},{without_proof}".encode()
        signature = hmac.digest(keys.stored, signed, self._password.hash_name)
        proof = bytes(one ^ other for one, other in zip(keys.client, signature, strict=True))
        self._signature = hmac.digest(keys.server, signed, self._password.hash_name)
        return f"{without_proof},p={base64.b64encode(proof).decode()}"

    def check(self, server_final: str) -> None:
        """Check the server's signature.

        Raises:
            MalformedHeaderError: The signature is wrong or missing.
        """
        verifier = server_final.partition(",")[0]
        if not verifier.startswith("v="):
            raise MalformedHeaderError("there is no signature")
        try:
            signature = base64.b64decode(verifier.removeprefix("v="), validate=True)
        except (binascii.Error, ValueError):
            raise MalformedHeaderError("the signature is not base64") from None
        if not hmac.compare_digest(signature, self._signature):
            raise MalformedHeaderError("the signature does not match")
