"""A store written to KIP-1159's interface alone, which Spark's workers import."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Shelf:
    """Payloads in a folder; its full paths are no URLs."""

    def configure(self, configs: Mapping[str, Any]) -> None:
        self.room = Path(configs["shelf.room"])

    def publish(self, topic: str, data: bytes) -> str:
        full_path = f"{topic}/{self.id(data)}"
        (self.room / topic).mkdir(parents=True, exist_ok=True)
        (self.room / full_path).write_bytes(data)
        return full_path

    def download(self, full_path: str) -> bytes:
        return (self.room / full_path).read_bytes()

    def id(self, data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()
