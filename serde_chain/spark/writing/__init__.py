"""Typed columns become those of Spark's Kafka sink."""
