"""Payloads in Kafka itself: chunks in a topic beside the records."""

from payload_stores.kafka.store import KafkaStore

__all__ = ["KafkaStore"]
