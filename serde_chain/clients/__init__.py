"""Kafka clients: confluent_kafka's own, with chains for keys and values."""

from payload_stores.plugins import require

require("confluent_kafka", "kafka")
