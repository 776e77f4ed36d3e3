"""What a process loads for plain clients, which start quickly: stores, stages and formats are loaded on demand."""

import subprocess
import sys

import pytest

NEEDED_BY_OTHERS = {
    "bisect", "dataclasses", "gzip", "importlib.util", "pathlib", "queue", "urllib.parse",
    "payload_stores.base", "payload_stores.kip1159", "payload_stores.registry",
    "serde_chain.arrow", "serde_chain.codecs", "serde_chain.config_paths", "serde_chain.stages", "serde_chain.wire",
    "serde_chain.base.foreign", "serde_chain.base.parts", "serde_chain.base.payloads", "serde_chain.base.plain",
    "serde_chain.base.values",
    "serde_chain.clients.confluent.arrow", "serde_chain.clients.confluent.times",
    "serde_chain.clients.confluent.topic_admin", "serde_chain.clients.confluent.transaction_outcome",
    "serde_chain.clients.client_limits", "serde_chain.clients.journal", "serde_chain.clients.negotiation",
    "serde_chain.clients.seek", "serde_chain.clients.tables", "serde_chain.clients.topic_limits",
    "serde_chain.transfer.answers",
}  # fmt: skip
NEEDED_BY_CONSUMERS = {"copy", "payload_stores.records", "serde_chain.clients.window", "serde_chain.transfer.ahead"}
NEEDED_BY_CLIENTS = {"serde_chain.chain", "serde_chain.order"}


@pytest.mark.parametrize(
    ("use", "not_needed"),
    [
        ("serde_chain.Consumer, serde_chain.Producer", NEEDED_BY_OTHERS | NEEDED_BY_CLIENTS),
        ("serde_chain.Producer({'bootstrap.servers': '127.0.0.1:1'}).close()", NEEDED_BY_OTHERS | NEEDED_BY_CONSUMERS),
    ],
)
def test_plain_clients_load_no_store_stage_or_format(use: str, not_needed: set[str]) -> None:
    program = (
        "import sys, confluent_kafka\n"
        "before = set(sys.modules)\n"
        f"import serde_chain; {use}\n"
        "print(*sys.modules.keys() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert "serde_chain.clients.confluent.producer" in loaded
    assert not loaded & not_needed
