"""What a process loads for plain clients, which start quickly: stores, stages and formats are loaded on demand."""

import subprocess
import sys

NEEDED_BY_OTHERS = {
    "bisect", "dataclasses", "gzip", "pathlib", "urllib.parse",
    "payload_stores.base", "payload_stores.kip1159", "payload_stores.registry",
    "serde_chain.arrow", "serde_chain.codecs", "serde_chain.config_paths", "serde_chain.stages", "serde_chain.wire",
    "serde_chain.clients.confluent.arrow", "serde_chain.clients.confluent.times", "serde_chain.clients.journal",
    "serde_chain.clients.seek", "serde_chain.clients.tables",
}  # fmt: skip


def test_plain_clients_load_no_store_stage_or_format() -> None:
    program = (
        "import sys, confluent_kafka\n"
        "before = set(sys.modules)\n"
        "from serde_chain import Consumer, Producer\n"
        "print(*sys.modules.keys() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert "serde_chain.clients.confluent.producer" in loaded
    assert not loaded & NEEDED_BY_OTHERS
