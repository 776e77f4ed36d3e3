"""Payloads in Kafka itself, as chunks in a separate topic."""

from payload_stores.kafka.store import KafkaStore

__all__ = ["KafkaStore"]
