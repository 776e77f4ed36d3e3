"""Measures what publishing and downloading one large payload take in memory; prints it as JSON.

In a process of its own, so that neither the server nor other tests are counted. Run with the configuration of an S3
store, as JSON.
"""

import json
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

from payload_stores import PublishContext, open_store
from tests.memory import peak_bytes, reset_peak

SIZE = 40 << 20


class Stream:
    """A stream that is as long as the payload, and holds nothing."""

    left = SIZE

    def read(self, size: int) -> bytes:
        block = bytes(min(size, self.left))
        self.left -= len(block)
        return block

    def seekable(self) -> bool:
        return False


def cost(operation: Callable[[], object]) -> dict[str, int]:
    """What an operation takes above what was taken before, in bytes; its result counts."""
    tracemalloc.start()
    operation()
    traced = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    before = reset_peak()
    operation()
    return {"traced": traced, "resident": peak_bytes() - before}


def main(config: dict[str, Any]) -> None:
    """Measure and print."""
    store: Any = open_store("s3", config)
    data = b"x" * SIZE
    view = memoryview(data)[1:]
    reference = store.publish("topic", data)
    store.download(reference)  # what is loaded once, and the connections, are no cost of a payload
    costs = {
        "bytes": cost(lambda: store.publish("topic", data)),
        "view": cost(lambda: store.publish("topic", view)),
        "content": cost(lambda: store.publish("topic2", data, PublishContext("content"))),
        "stream": cost(lambda: store.publish_stream("topic", Stream())),
        "download": cost(lambda: store.download(reference)),
    }
    print(json.dumps({"payload": SIZE, **costs}))  # noqa: T201  read by the test


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
