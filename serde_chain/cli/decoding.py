"""Decodes raw records with a configuration's chains."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from serde_chain.catalogue import DESERIALIZE
from serde_chain.chain import DeserializerChain
from serde_chain.clients.client_chains import ClientChains, warn_of_other_side
from serde_chain.clients.confluent.messages import decode_message
from serde_chain.clients.window_reader import prefetch_for
from serde_chain.codec import Decoder
from serde_chain.config import with_settings
from serde_chain.errors import ConfigError, SerializationError
from serde_chain.stages.large_fields.options import FETCH as FIELDS_FETCH
from serde_chain.stages.large_message.options import FETCH, LAZY
from serde_chain.transfer import Transfer, finish


class DecodedRecord(NamedTuple):
    """A record after decoding.

    Attributes:
        message: In its final form; unchanged if undecodable.
        error: The reason; None if it was decoded.
    """

    message: Any
    error: SerializationError | None = None


class Decoding:
    """Decodes records, and prefetches their payloads, like a consumer. Must be closed.

    Args:
        config: Flat configuration.
        lazy: Return handles that fetch their payloads later, piece by piece, if the chain supports it.
        lazy_fields: Put such handles into the fields that are in the store, whose values must be able to hold them.

    Raises:
        ConfigError: The configuration is wrong.
    """

    def __init__(self, config: Mapping[str, object], *, lazy: bool = False, lazy_fields: bool = False) -> None:
        # Whatever the configuration says: a handle does not show whether its field is text.
        self._setup = _setup(
            with_settings(config, {FIELDS_FETCH.name: LAZY if lazy_fields else FIELDS_FETCH.default}), lazy=lazy
        )
        self._decoder = Decoder(self._setup.key, self._setup.value)
        self._prefetch = prefetch_for(self._setup.key, self._setup.value)

    def read(self, messages: list[Any]) -> Iterator[DecodedRecord]:
        """Decode some records.

        Args:
            messages: Raw records; they are modified.

        Yields:
            Each of them, in order.

        Raises:
            SerializationError: A record cannot be decoded through no fault of its own: a store is down, for example.
        """
        steps = [self._begin(message) for message in messages]
        transfers = [step for step in steps if isinstance(step, Transfer)]
        ahead = deque(() if self._prefetch is None else self._prefetch.add(transfers))
        del transfers
        for message, step in zip(messages, steps, strict=True):
            try:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, Transfer) and self._prefetch is not None:
                    done = self._prefetch.finish(ahead.popleft())
                    self._prefetch.go_on()
                else:
                    done = finish(step)
                yield DecodedRecord(done.finish())
            except SerializationError as error:
                error.add_context(topic=message.topic(), partition=message.partition(), offset=message.offset())
                if not error.about_record:
                    raise
                yield DecodedRecord(message, error)

    def _begin(self, message: Any) -> Any:
        try:
            return decode_message(message, self._decoder)
        except SerializationError as error:
            return error  # raised at its turn

    def warn_of_other_side(self) -> None:
        """See :func:`serde_chain.clients.client_chains.warn_of_other_side`."""
        warn_of_other_side(self._setup, DESERIALIZE)

    def close(self) -> None:
        """Close the chains."""
        self._setup.close()


def _setup(config: Mapping[str, object], *, lazy: bool) -> ClientChains[DeserializerChain]:
    try:
        settings = with_settings(config, {FETCH.name: LAZY}) if lazy else config
        return ClientChains.of_reader(settings)
    except ConfigError:
        if not lazy:
            raise
        return _setup(config, lazy=False)  # the chain needs bytes; any other mistake is reported now
