"""Kafka clients with chains for keys and values; what they share, and one folder for each library."""
