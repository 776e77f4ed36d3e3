"""Asks for topic limits through the connections of an aiokafka producer."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Final

from aiokafka import errors
from aiokafka.protocol.admin import DescribeConfigsRequest

from serde_chain.clients.client_limits import TopicLimit
from serde_chain.clients.topic_limits import DESCRIBED, limit_of, limit_without

_TOPIC: Final = 2  # a resource's type
_BACKOFF_S: Final = 0.1
# Beyond the loop's own deadline.
_GRACE_S: Final = 1.0


class AiokafkaAdmin:
    """A :class:`~serde_chain.clients.topic_limits.TopicAdmin` that sends its questions on the event loop.

    ``AIOKafkaAdminClient`` sends the same request, but would need the connection's settings and login, which aiokafka's
    producer keeps to itself.

    Args:
        client: The producer's ``client``.
        loop: Its event loop.
    """

    def __init__(self, client: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop
        self._thread = threading.get_ident()

    def describe(self, topic: str, timeout_s: float) -> TopicLimit:
        """See :class:`~serde_chain.clients.topic_limits.TopicAdmin`."""
        asking = asyncio.run_coroutine_threadsafe(self._describe(topic, timeout_s), self._loop)
        return asking.result(timeout_s + _GRACE_S)

    def may_wait(self) -> bool:
        """See :class:`~serde_chain.clients.topic_limits.TopicAdmin`."""
        return threading.get_ident() != self._thread

    def close(self) -> None:
        """The connections are the producer's."""

    async def _describe(self, topic: str, timeout_s: float) -> TopicLimit:
        request = DescribeConfigsRequest([(_TOPIC, topic, list(DESCRIBED))])
        async with asyncio.timeout(timeout_s):
            response = await self._answer(request)
        code, message, _type, _name, entries = response.resources[0]
        if code:
            limit = limit_without(code)
            if limit is None:
                raise errors.for_code(code)(message)
            return limit
        values = {entry[0]: entry[1] for entry in entries}
        return limit_of({name: values.get(name) for name in DESCRIBED})

    async def _answer(self, request: DescribeConfigsRequest) -> Any:
        while True:
            try:
                return await self._client.send(self._client.get_random_node(), request)
            except errors.KafkaError as error:
                if not error.retriable:
                    raise
            await asyncio.sleep(_BACKOFF_S)
