"""Transfers of large payloads for all object stores: parallel parts and ranges, files in blocks."""

from payload_stores.multipart.download import TransferCount, download_ranges
from payload_stores.multipart.file import PayloadFile, open_ranges
from payload_stores.multipart.sizes import MAX_PARTS, PARALLEL, PART_BYTES
from payload_stores.multipart.upload import Blocks, put_parts, read_parts, released, slices, stream_digest
from payload_stores.threads import DaemonPool, settle

__all__ = [
    "MAX_PARTS",
    "PARALLEL",
    "PART_BYTES",
    "Blocks",
    "DaemonPool",
    "PayloadFile",
    "TransferCount",
    "download_ranges",
    "open_ranges",
    "put_parts",
    "read_parts",
    "released",
    "settle",
    "slices",
    "stream_digest",
]
