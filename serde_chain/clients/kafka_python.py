"""Chains as serializers of kafka-python 3, whose clients pass topic and headers.

::

    KafkaProducer(
        bootstrap_servers="localhost:9092",
        value_serializer=Serializer({"value.serializers": "json, zstd, large-message", ...}),
    )
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import kafka.serializer

from payload_stores.errors import release
from payload_stores.options import Option, integer
from payload_stores.signals import let_through
from serde_chain.clients.client_chains import room_for_key, single_deserializer, single_serializer
from serde_chain.clients.limits import JAVA_OVERHEAD
from serde_chain.clients.topic_limits import LearntLimits, warn_of_no_question
from serde_chain.config import Config, checked
from serde_chain.errors import ContextualError, DecodeError, EncodeError
from serde_chain.record import KEY, VALUE, Headers, RecordContext

__all__ = ["Deserializer", "Serializer"]


_MAX_REQUEST: Final = Option("max.request.size", integer(1), 1_048_576, doc="kafka-python's max_request_size")


class Serializer(kafka.serializer.Serializer):  # type: ignore[misc] # it has no types
    """A serializer chain for ``key_serializer`` or ``value_serializer``.

    Payloads are uploaded in the call of ``send``. The topic's own limit is not queried, since the producer gives its
    serializers no connection; with ``large.message.threshold.bytes = auto``, a warning says so. Set
    ``max.request.size`` to the producer's ``max_request_size`` if you change the latter. The producer's ``close``
    closes the chain and its stores.

    Args:
        config: A mapping, or the path of a TOML or Java ``.properties`` file; only keys of chains, stages and stores
            are used.
        is_key: Whether the chain is for keys.

    Raises:
        ConfigError: The configuration is wrong.
        MissingDependencyError: An extra is not installed.

    Example:
        >>> Serializer({"value.serializers": "json, zstd"}).serialize("alerts", [], {"id": 1})[:4].hex()
        '28b52ffd'
    """

    def __init__(self, config: Config | str | Path, *, is_key: bool = False) -> None:
        self._field = KEY if is_key else VALUE
        resolved = checked(config)
        max_bytes = _MAX_REQUEST.read(resolved.settings)
        limits = LearntLimits(
            None, max_bytes - JAVA_OVERHEAD, setting=_MAX_REQUEST.name, room=room_for_key(is_key=is_key)
        )
        self._chain = single_serializer(resolved, limits, is_key=is_key)
        problem = "kafka-python gives serializers no connection to it"
        warn_of_no_question(self._chain.stages, problem, f"{_MAX_REQUEST.name} ({max_bytes})")

    def serialize(self, topic: str, headers: Headers | None, data: Any) -> bytes | None:
        """Serialize a key or value.

        Args:
            topic: The record's topic.
            headers: The record's headers; stages add theirs. None refuses those that would be lost.
            data: The object; None is a tombstone.

        Raises:
            SerializationError: It cannot be written, or its payload not be stored.
        """
        # Headers that a caller did not pass would be lost.
        given: Any = () if headers is None else headers
        try:
            encoded: bytes | None = self._chain(data, RecordContext(topic, self._field, given))
        except TypeError as error:  # the client would call again, without headers
            let_through(error)
            raise EncodeError(f"{type(error).__name__}: {error}", topic=topic, field=self._field) from error
        return encoded

    def close(self) -> None:
        """Close the chain and its stores."""
        self._chain.close()


class Deserializer(kafka.serializer.Deserializer):  # type: ignore[misc]
    """A deserializer chain for ``key_deserializer`` or ``value_deserializer``.

    Payloads are downloaded when ``poll`` or the iteration comes to their record.

    Args:
        config: As for :class:`Serializer`.
        is_key: Whether the chain is for keys.
        returns_errors: Return errors in place of keys and values, so that the record says where they are. Raised, they
            end ``poll`` without a position, and the next ``poll`` of kafka-python 3.0 never returns.

    Raises:
        ConfigError: The configuration is wrong.
        MissingDependencyError: An extra is not installed.

    Example:
        >>> Deserializer({"value.deserializers": "json"}).deserialize("alerts", [], b'{"id": 1}')
        {'id': 1}
    """

    def __init__(self, config: Config | str | Path, *, is_key: bool = False, returns_errors: bool = False) -> None:
        self._field = KEY if is_key else VALUE
        self._returns_errors = returns_errors
        self._chain = single_deserializer(config, is_key=is_key)

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """Deserialize a key or value.

        Args:
            topic: The record's topic.
            headers: The record's headers; those for transport are removed.
            data: The bytes; None for a tombstone.

        Returns:
            The object, or the error.

        Raises:
            SerializationError: It cannot be read, or its payload not be fetched.
            MissingDependencyError: It needs an extra that is not installed.
        """
        try:
            return self._decode(topic, headers, data)
        except ContextualError as error:  # also of a codec that is not installed, which a record names
            if not self._returns_errors:
                raise
            release(error)  # it is kept, and its traceback holds the data
            return error

    def _decode(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        try:
            return self._chain(data, RecordContext(topic, self._field, headers))
        except TypeError as error:  # the client would call again, without headers
            let_through(error)
            raise DecodeError(f"{type(error).__name__}: {error}", topic=topic, field=self._field) from error

    def close(self) -> None:
        """Close the chain and its stores."""
        self._chain.close()
