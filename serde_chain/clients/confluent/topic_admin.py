"""Asks for topic limits through confluent_kafka."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from payload_stores import forks
from payload_stores.client_log import without_log
from serde_chain.clients.client_limits import TopicLimit
from serde_chain.clients.topic_limits import DESCRIBED, limit_of, limit_without

_UNUSABLE: Final = ("transactional.", "transaction.")
# Beyond the client's own deadline.
_GRACE_S: Final = 1.0


class ConfluentAdmin:
    """A :class:`~serde_chain.clients.topic_limits.TopicAdmin` that connects for the first question.

    Args:
        client: Configuration of a Kafka client.
    """

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._settings = {
            key: value
            for key, value in client.items()
            if not key.startswith(_UNUSABLE) and (not callable(value) or key == "oauth_cb")
        }
        self._begin()
        forks.watch(self, ConfluentAdmin._leave_to_parent)

    def _begin(self) -> None:
        self._connecting = threading.Lock()
        self._client: Any = None

    def _leave_to_parent(self) -> list[object]:
        left = self._client
        self._begin()
        return [left]

    def describe(self, topic: str, timeout_s: float) -> TopicLimit:
        """See :class:`~serde_chain.clients.topic_limits.TopicAdmin`."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

        with self._connecting:
            client = self._client
            if client is None:
                client = self._client = AdminClient(without_log(self._settings))
                client.poll(0)  # fetches a token, if there is a callback for tokens
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (asked,) = client.describe_configs([resource], request_timeout=timeout_s).values()
        try:
            entries = asked.result(timeout_s + _GRACE_S)
        except KafkaException as error:
            limit = limit_without(error.args[0].code())
            if limit is None:
                raise
            return limit
        # A service may report some settings only.
        return limit_of({name: entries[name].value if name in entries else None for name in DESCRIBED})

    def may_wait(self) -> bool:
        """See :class:`~serde_chain.clients.topic_limits.TopicAdmin`: confluent_kafka has threads of its own."""
        return True

    def close(self) -> None:
        """Release the connection."""
        self._client = None
