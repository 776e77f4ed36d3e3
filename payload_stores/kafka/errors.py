"""Converts Kafka's errors to those of payload stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from payload_stores.errors import PayloadAccessDeniedError, PayloadStoreError, PayloadStoreUnavailableError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

STORE: Final = "kafka"

# By name: importing them would import confluent_kafka, whose lack is to be reported by `require`.
AUTHENTICATION: Final = frozenset({"SASL_AUTHENTICATION_FAILED", "_AUTHENTICATION"})
_DENIED: Final = AUTHENTICATION | {
    "TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
}  # fmt: skip
_PERMISSIONS: Final = (
    "Check the credentials (sasl.*, ssl.*), and the permissions of this user: kafka-acls.sh --add --allow-principal "
    "User:<user> --operation Write (for writers, Read for readers) --topic <payload topic>"
)
_TRANSIENT: Final = frozenset({
    "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_MSG_TIMED_OUT", "_TIMED_OUT_QUEUE", "_WAIT_COORD",
    "_QUEUE_FULL", "_INTR", "_STATE", "_PURGE_QUEUE", "_PURGE_INFLIGHT", "_FATAL", "_DESTROY",
    "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION",
    "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "BROKER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE",
    "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "NOT_CONTROLLER",
    "KAFKA_STORAGE_ERROR", "THROTTLING_QUOTA_EXCEEDED", "UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH",
    "OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "REBOOTSTRAP_REQUIRED",
})  # fmt: skip


def translated(error: KafkaError, doing: str, **where: str) -> PayloadStoreError:
    """Convert an error of Kafka's. The result has no cause: Kafka's errors contain only their text.

    Args:
        error: Kafka's error.
        doing: The attempted action, such as ``write to the topic images.payloads``.
        **where: ``topic`` or ``reference``.
    """
    name = error.name()
    message = f"Kafka refused to {doing}: {error.str()}"
    if name in AUTHENTICATION:
        hint = "Check the user, the password and the mechanism (sasl.*), or the certificates (ssl.*)"
        return PayloadAccessDeniedError(message, hint=hint, store=STORE, **where)
    if name in _DENIED:
        denial = PayloadAccessDeniedError(message, hint=_PERMISSIONS, store=STORE, **where)
        denial.about_topic = name == "TOPIC_AUTHORIZATION_FAILED"
        return denial
    if name == "MSG_SIZE_TOO_LARGE":
        return PayloadStoreError(
            message,
            hint="Raise the topic's max.message.bytes, or lower batch.size and message.max.bytes of the producer",
            store=STORE,
            **where,
        )
    if name in _TRANSIENT or error.retriable():
        return unavailable(f"Kafka could not {doing}: {error.str()}", **where)
    return PayloadStoreError(message, store=STORE, **where)


def unavailable(message: str, **where: str) -> PayloadStoreUnavailableError:
    """The error for a broker that is down or too slow."""
    return PayloadStoreUnavailableError(
        message, hint="Check that the broker is running and can be reached (bootstrap.servers)", store=STORE, **where
    )


def denied(topic: str, operation: str, resource: str, why: str) -> PayloadAccessDeniedError:
    """The error for a missing permission, with the command that grants it.

    Args:
        topic: The data topic.
        operation: Kafka's name of the operation, such as ``Create``.
        resource: The topic concerned.
        why: The action that requires it.
    """
    return PayloadAccessDeniedError(
        f"this user may not {why} the payload topic {resource} ({operation})",
        hint=f"Run kafka-acls.sh --add --allow-principal User:<user> --operation {operation} --topic {resource}, or "
        "have an administrator create the topic",
        store=STORE,
        topic=topic,
    )


def missing_topic(name: str, **where: str) -> PayloadStoreError:
    """The error for a missing payload topic; it is about the record only if that is from another topic."""
    error = PayloadStoreError(
        f"the payload topic {name} does not exist",
        hint="If it was deleted, its payloads are gone; otherwise check bootstrap.servers and kafka.payload.topic",
        store=STORE,
        **where,
    )
    error.about_topic = True
    return error
