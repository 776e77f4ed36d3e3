"""Producer and consumer around those of aiokafka."""

from payload_stores.plugins import require

require("aiokafka", "aiokafka")

from serde_chain.clients.aiokafka.consumer import Consumer  # noqa: E402  which needs the package
from serde_chain.clients.aiokafka.decoder import RecordDecoder  # noqa: E402
from serde_chain.clients.aiokafka.producer import Producer  # noqa: E402

__all__ = ["Consumer", "Producer", "RecordDecoder"]
