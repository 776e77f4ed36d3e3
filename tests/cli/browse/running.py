"""``serde-chain browse`` in a process of its own, and a topic with something to look at."""

import json
import math
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serde_chain import Producer
from serde_chain.testing.services import KafkaBroker, S3Server
from tests.cli.browse.conftest import png
from tests.cli.conftest import COMMAND, environment

SCHEMA = {
    "type": "record",
    "name": "Alert",
    "fields": [
        {"name": "object_id", "type": "string"},
        {"name": "band", "type": "string"},
        {"name": "magnitude", "type": "float"},
        {"name": "cutouts", "type": {"type": "map", "values": "bytes"}},
    ],
}


@contextmanager
def browsing(config: Path, topic: str, *more: object) -> Iterator[str]:
    """Run the command: the link that it prints. It ends by Ctrl-C, in order."""
    command = [*COMMAND, "browse", str(config), topic, *map(str, more)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment()) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            link = process.stdout.readline().strip()
            assert link.startswith("http://127.0.0.1:"), process.stderr.read()
            yield link
            process.send_signal(signal.SIGINT)
            rest, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, rest, errors) == (0, "", "")


def fill(broker: KafkaBroker, topic: str, store: S3Server, bucket: str, folder: Path) -> Path:
    """Produce alerts, most of them with pictures, which are large; returns the file of the configuration."""
    config = {
        **broker.client_config(),
        "key.serializer": "string",
        "key.deserializer": "string",
        "value.serializers": "avro, zstd, large-message",
        "value.deserializers": "large-message, zstd, avro",
        "avro.schema": json.dumps(SCHEMA),
        "large.message.payload.store.class": "s3",
        "large.message.threshold.bytes": 10_000,
        **store.store_config(bucket),
    }
    path = folder / "client.toml"
    path.write_text("".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in config.items()))
    with Producer(path) as producer:
        for number in range(30):
            producer.produce(
                topic, alert(number), f"SRV26{number * 7919:06d}", timestamp=1_795_000_000_000 + number * 39_000
            )
        producer.flush(60)
    return path


def alert(number: int) -> dict[str, Any]:
    """An alert; each fourth has no pictures."""
    source = random.Random(number)
    flux = 40 + 120 * source.random()
    pictures = {
        "science": _picture(source, 90, flux),
        "template": _picture(source, 90, 0),
        "difference": _picture(source, 0, flux),
    }
    return {
        "object_id": f"SRV26{number * 7919:06d}",
        "band": source.choice("ugriz"),
        "magnitude": 25 - 2.5 * math.log10(flux),
        "cutouts": {} if number % 4 == 1 else pictures,
    }


def _picture(source: random.Random, galaxy: float, star: float) -> bytes:
    """A galaxy with a star beside it, and noise."""

    def shade(x: int, y: int) -> int:
        light = galaxy * math.exp(-math.hypot((x - 45) / 16, (y - 52) / 9)) + star * math.exp(
            -((x - 62) ** 2 + (y - 46) ** 2) / 18
        )
        return max(0, min(255, round(30 + light + source.gauss(0, 6))))

    return png(96, 96, shade)
