"""Producer and consumer on confluent_kafka."""

from payload_stores.plugins import require

require("confluent_kafka", "kafka")
