"""Spark's columns: those of its Kafka source, their types, and the steps of a query that compute them."""
