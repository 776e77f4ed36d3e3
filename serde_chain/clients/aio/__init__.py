"""Clients for asyncio, over those of confluent_kafka: one sender and one window, driven from an event loop."""
