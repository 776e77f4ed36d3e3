"""Memory of a producer whose payloads wait for their uploads, by what the kernel says, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from serde_chain.testing.services import KafkaBroker, S3Server

pytestmark = pytest.mark.full

PAYLOADS, PAYLOAD_BYTES = 48, 20_000_000
BUFFER_BYTES = 128 << 20
BESIDE_BYTES = 64 << 20


@pytest.mark.parametrize("name", ["local", "s3"])
def test_a_full_pipeline_takes_little_more_than_its_buffer(
    broker: KafkaBroker, topic: str, s3_server: S3Server, tmp_path: Path, name: str
) -> None:
    config = {
        **broker.client_config(),
        "log_level": 0,
        "value.serializers": "bytes, large-message",
        "large.message.payload.store.class": name,
        "large.message.buffer.bytes": BUFFER_BYTES,
        **({"local.path": str(tmp_path)} if name == "local" else s3_server.store_config(s3_server.create_bucket())),
    }
    program = f"""
from serde_chain import Producer
from tests.memory import peak_bytes, reset_peak

failures = []
def report(error, _message):
    if error is not None:
        failures.append(str(error))

with Producer({config!r}) as producer:
    producer.produce({topic!r}, bytes(2_000_000))
    producer.flush()
    before = reset_peak()
    for number in range({PAYLOADS}):
        producer.produce({topic!r}, bytes([number]) * {PAYLOAD_BYTES}, on_delivery=report)
    producer.flush()
    print(peak_bytes() - before, len(failures))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    extra, failures = map(int, done.stdout.split())
    assert failures == 0
    assert BUFFER_BYTES // 2 < extra <= BUFFER_BYTES + BESIDE_BYTES
