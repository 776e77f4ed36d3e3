"""Producer and consumer on confluent_kafka."""
