"""Sends a message as the SQS extended client does; a program of its own, since importing that client changes boto3.

Prints the address of the queue.
"""

import sys

import boto3
import sqs_extended_client  # noqa: F401 - importing it is how it is used

ENDPOINT, BUCKET, LEGACY = sys.argv[1:]
SIZE = 300_000

client = boto3.client(
    "sqs",
    endpoint_url=ENDPOINT,
    aws_access_key_id="test",
    aws_secret_access_key="test",
    region_name="us-east-1",
)
client.large_payload_support = BUCKET
client.use_legacy_attribute = LEGACY == "legacy"
client.s3_client = boto3.client(
    "s3",
    endpoint_url=ENDPOINT,
    aws_access_key_id="test",
    aws_secret_access_key="test",
    region_name="us-east-1",
)
queue = client.create_queue(QueueName=f"queue-{BUCKET}")["QueueUrl"]
client.send_message(QueueUrl=queue, MessageBody="ü" * SIZE)
sys.stdout.write(queue)
