"""Records that were fetched raw, through the chains of a configuration."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from serde_chain.catalogue import DESERIALIZE
from serde_chain.chain import DeserializerChain
from serde_chain.clients.client_chains import MAX_POLL_INTERVAL, ClientChains, warn_of_other_side
from serde_chain.clients.confluent.messages import decode_message
from serde_chain.clients.window_reader import prefetch_for
from serde_chain.codec import Decoder
from serde_chain.config import with_settings
from serde_chain.errors import ConfigError, SerializationError
from serde_chain.stages.large_message.options import FETCH, LAZY
from serde_chain.transfer import Transfer, finish

__all__ = ["Decoding", "Read"]

_TICK_S: Final = 0.5


class Read(NamedTuple):
    """A record that was read.

    Attributes:
        message: In its final form; as it came if it cannot be read.
        error: Why it cannot be read; None if it can.
    """

    message: Any
    error: SerializationError | None = None


class Decoding:
    """Reads records; what their placeholders stand for is fetched ahead, as by a consumer. To be closed.

    Args:
        config: Flat configuration.
        lazy: Let values be handles that are fetched later, piece by piece, where the chain can do that.

    Raises:
        ConfigError: It is wrong.
    """

    def __init__(self, config: Mapping[str, object], *, lazy: bool = False) -> None:
        self._setup = _setup(config, lazy=lazy)
        self._decoder = Decoder(self._setup.key, self._setup.value)
        self._prefetch = prefetch_for(self._setup.key, self._setup.value)

    def read(self, messages: list[Any]) -> Iterator[Read]:
        """Read some records.

        Args:
            messages: Raw records; they are changed.

        Yields:
            Each of them, in order.

        Raises:
            SerializationError: One cannot be read for a reason that is not its own: a store is down, for instance.
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
                    waiting = ahead.popleft()
                    while not self._prefetch.wait(waiting, _TICK_S):
                        pass  # its stage has a deadline; a wait that is short lets Ctrl-C through
                    done = finish(step.resume(waiting.take()))
                    del waiting
                    self._prefetch.go_on()
                else:
                    done = finish(step)
                yield Read(done.finish())
            except SerializationError as error:
                error.add_context(topic=message.topic(), partition=message.partition(), offset=message.offset())
                if not error.about_record:
                    raise
                yield Read(message, error)

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
        return ClientChains.of(settings, DeserializerChain, MAX_POLL_INTERVAL)
    except ConfigError:
        if not lazy:
            raise
        return _setup(config, lazy=False)  # the chain needs its bytes; what else is wrong is told now
