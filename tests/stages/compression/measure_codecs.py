"""Measures what decompressing a payload as large as allowed takes in memory; prints it as JSON, by codec.

In a process of its own, since most codecs take memory that Python does not count.
"""

import gzip
import json
import sys
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import zstandard

from serde_chain.codecs import CODECS
from serde_chain.stages.large_message.offload_codecs import decompress
from tests.memory import peak_bytes, reset_peak


def taken(read: Callable[[bytes], bytes], frame: bytes, size: int) -> int:
    """The most bytes that it took, the result included."""
    read(frame)
    before = reset_peak()
    assert len(read(frame)) == size
    return peak_bytes() - before


def main(size: int) -> None:
    """Measure and print."""
    payload = bytes(size)
    stream = zstandard.ZstdCompressor().compressobj()
    frames = {
        "zstd": stream.compress(payload) + stream.flush(),
        "lz4": lz4.frame.compress(payload, store_size=False),
        "gzip": gzip.compress(payload),
        "zlib": zlib.compress(payload),
        "snappy": bytes(cramjam.snappy.compress(payload)),
    }
    del payload
    found = {}
    for name, frame in frames.items():
        CODECS[name].load()
        found[name] = taken(CODECS[name].decompressor(size), frame, size)
    found["gzip, offloaded"] = taken(lambda frame: decompress("gzip", frame, size), frames["gzip"], size)
    print(json.dumps(found))  # noqa: T201, what the test reads


if __name__ == "__main__":
    main(int(sys.argv[1]))
