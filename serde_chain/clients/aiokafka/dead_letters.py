"""Writes undecodable records to a dead-letter topic, by aiokafka's producer."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from serde_chain.clients.dead_letters import Letter, Origin, letters, not_taken, taken
from serde_chain.config import DEAD_LETTER, ERROR_POLICY
from serde_chain.errors import ConfigError, SerializationError

_LONGEST_S: Final = 30.0


class DeadLetters:
    """A dead-letter topic and its producer.

    Attributes:
        producer: As given.
        topic: As given.

    Args:
        consumer: aiokafka's consumer; checks that the topic exists, since a producer might create it.
        producer: aiokafka's producer.
        topic: The topic.

    Raises:
        ConfigError: There is no producer.
    """

    def __init__(self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer | None, topic: str) -> None:
        if producer is None:
            raise ConfigError(
                f"{ERROR_POLICY.name} = {DEAD_LETTER} needs a producer for the dead letters",
                hint="Consumer(consumer, config, dead_letters=AIOKafkaProducer(…))",
                key=ERROR_POLICY.name,
            )
        self._consumer = consumer
        self.producer = producer
        self.topic = topic
        self._is_there = False

    async def put(self, record: Any, error: SerializationError) -> None:
        """Write a record to the topic, and wait for the broker's acknowledgement.

        Records of one partition go to one partition, in order.

        Args:
            record: The original record of aiokafka.
            error: Its error.

        Raises:
            DeadLetterError: The topic does not exist or refuses it, or the broker did not answer in time.
        """
        try:
            async with asyncio.timeout(_LONGEST_S):
                await self._put(record, error)
        except (KafkaError, TimeoutError) as failure:
            self._is_there = False
            is_transient = isinstance(failure, TimeoutError) or bool(failure.retriable)
            said = str(failure) or f"no answer within {_LONGEST_S:.0f} s"
            raise not_taken(error, self.topic, said, transient=is_transient) from failure

    async def _put(self, record: Any, error: SerializationError) -> None:
        if not self._is_there and self.topic not in await self._consumer.topics():
            raise not_taken(error, self.topic, "there is no such topic", transient=False) from error
        self._is_there = True
        has_time = record.timestamp is not None and record.timestamp >= 0
        origin = Origin(record.topic, record.partition, record.offset, record.timestamp if has_time else None)
        partitions = await self.producer.partitions_for(self.topic)
        whole = Letter(record.key, record.value, list(record.headers))
        refused: MessageSizeTooLargeError | None = None
        for letter in letters(whole, error, origin):
            try:
                await self.producer.send_and_wait(
                    self.topic,
                    letter.value,
                    letter.key,
                    partition=origin.partition % len(partitions),
                    headers=letter.headers,
                )
            except MessageSizeTooLargeError as failure:
                refused = failure
            else:
                taken(letter, origin)
                return
        if refused is not None:
            raise refused
