"""KafScale's large file support, ``kafscale``: an envelope in JSON that names bucket, key, size and SHA-256.

The value begins with ``{`` and has ``"kfs_lfs"`` among its first fifty bytes, as KafScale's own readers look for it. An
envelope's other checksum is not verified: its own Python reader compares it with SHA-256, whatever algorithm it names.
"""

from __future__ import annotations

from typing import Final

from serde_chain.base import Buffer
from serde_chain.record import Context
from serde_chain.wire.foreign import ForeignFormat, digest_of, document, s3_url, size_of
from serde_chain.wire.reference_format import Reference

_MARK: Final = b'"kfs_lfs"'
_WITHIN: Final = 50


class _KafScaleFormat(ForeignFormat):
    in_band = True

    def read(self, data: Buffer, ctx: Context | None, *, is_key: bool) -> Reference | Buffer | None:
        begin = bytes(data[:_WITHIN])
        if not (begin.startswith(b"{") and _MARK in begin):
            return None
        envelope = document(data)
        if envelope is None:
            raise ValueError("the envelope is not JSON")
        if "kfs_lfs" not in envelope:
            return None
        version = envelope["kfs_lfs"]
        if type(version) is not int or version == 0:
            raise ValueError("the envelope's kfs_lfs is no version")
        return Reference(
            s3_url(envelope.get("bucket"), envelope.get("key")),
            size_of(envelope.get("size"), "the envelope's size"),
            digest_of(envelope.get("sha256"), "the envelope's sha256"),
        )


FORMAT: Final = _KafScaleFormat()
