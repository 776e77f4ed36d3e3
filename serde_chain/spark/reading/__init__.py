"""Kafka's columns become typed columns."""
