"""The consumer's fast paths, for records without headers whose stages work on the data alone.

The mirror of :mod:`serde_chain.clients.confluent.plain_produce`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from functools import partial
from operator import is_, is_not
from typing import Any, Final, NamedTuple, Self

import confluent_kafka
from confluent_kafka import Message

from serde_chain.base import untouched
from serde_chain.chain import DeserializerChain
from serde_chain.clients.backoff import Backoff
from serde_chain.clients.confluent.messages import DecodedMessage
from serde_chain.clients.timeouts import deadline
from serde_chain.clients.window import Window, in_use
from serde_chain.signals import let_through

__all__ = ["PlainDecoder", "Taken", "plain_poll"]

_IS_THERE: Final = partial(is_not, None)
_NOTHING: Final[Sequence[Any]] = []


class PlainDecoder:
    """Decodes messages without headers, for stages that work on the data alone (``SupportsPlainCalls``).

    No context is made, and only the stages' own functions are Python. Other messages are left unchanged for the full
    path.

    Args:
        key: The plain function of the key chain; None leaves keys as they are.
        value: The plain function of the value chain, likewise.
        noted: Gets the decoded parts of changed messages, by the messages' identity.
        is_idle: Whether there are no chains, so that messages need no decoding.
    """

    def __init__(
        self,
        key: Callable[[Any], Any] | None,
        value: Callable[[Any], Any] | None,
        noted: MutableMapping[int, DecodedMessage],
        *,
        is_idle: bool = False,
    ) -> None:
        self._key = key
        self._value = value
        self._noted = noted
        self._is_idle = is_idle

    @classmethod
    def of(
        cls, key: DeserializerChain | None, value: DeserializerChain | None, noted: MutableMapping[int, DecodedMessage]
    ) -> Self | None:
        """The decoder of two chains; None if one of them needs a context."""
        if any(chain is not None and chain.plain is None for chain in (key, value)):
            return None
        of_key, of_value = (
            None if chain is None or chain.plain is untouched else chain.plain for chain in (key, value)
        )
        return cls(of_key, of_value, noted, is_idle=key is None and value is None)

    def decode(self, messages: Sequence[Any]) -> bool:
        """Decode messages.

        Args:
            messages: ``confluent_kafka.Message`` objects.

        Returns:
            Whether all of them are decoded now; if not, none of them was changed.
        """
        if self._is_idle:
            return True
        # Not by comparison with None, which raises for confluent_kafka's errors.
        try:
            if any(map(_IS_THERE, map(Message.error, messages))) or any(map(Message.headers, messages)):
                return False
        except SystemError:  # a header name that is not UTF-8: the full path handles it
            return False
        if self._noted and not self._noted.keys().isdisjoint(map(id, messages)):
            return False  # an interrupted call has decoded some of them
        keys, values = [*map(Message.key, messages)], [*map(Message.value, messages)]
        try:
            decoded_keys, decoded_values = _map(self._key, keys), _map(self._value, values)
        except Exception as error:  # noqa: BLE001  raised again by the full path, with its place
            let_through(error)
            return False
        if not (all(map(is_, decoded_keys, keys)) and all(map(is_, decoded_values, values))):
            for message, *parts in zip(messages, keys, values, decoded_keys, decoded_values, strict=True):
                self._change(message, *parts)
        return True

    def one(self) -> Callable[[Any], bool] | None:  # noqa: C901  a call more within would cost a tenth of a poll
        """Make a function that decodes one message, in a third of the time of :meth:`decode`.

        Returns:
            The function; None if messages need no decoding.
        """
        if self._is_idle:
            return None
        key, value, noted, change = self._key, self._value, self._noted, self._change
        if key is None and value is None:

            def is_final(message: Any) -> bool:
                try:
                    return not (message.headers() or noted)
                except SystemError:  # as above
                    return False

            return is_final

        def decode_one(message: Any) -> bool:
            came = decoded = came_key = decoded_key = None
            try:
                if message.error() is not None or message.headers() or (noted and id(message) in noted):
                    return False
                if value is not None and (came := message.value()) is not None:
                    decoded = value(came)
                if key is not None and (came_key := message.key()) is not None:
                    decoded_key = key(came_key)
            except Exception as error:  # noqa: BLE001  as above
                let_through(error)
                return False
            if decoded is not came or decoded_key is not came_key:
                if value is None:
                    came = decoded = message.value()
                if key is None:
                    came_key = decoded_key = message.key()
                change(message, came_key, came, decoded_key, decoded)
            return True

        return decode_one

    def _change(self, message: Any, key: Any, value: Any, decoded_key: Any, decoded_value: Any) -> None:
        """Note a message's original and decoded parts, then change it."""
        decoded = DecodedMessage(message, (key, value, None), (decoded_key, decoded_value, None), None)
        self._noted[id(message)] = decoded
        decoded.finish()


class Taken(NamedTuple):
    """A record that is about to be delivered.

    Attributes:
        record: The message in the window.
        message: The decoded message.
    """

    record: Any
    message: confluent_kafka.Message[Any, Any]


def plain_poll(  # noqa: C901, PLR0915  a call more within would cost a tenth of it
    client: Any,
    window: Window,
    backoff: Backoff,
    decoder: PlainDecoder,
    *,
    stores_offsets: bool,
    take: Callable[[float], Taken | None],
    take_front: Callable[[float], Taken | None],
    waits: bool,
) -> Callable[[float], Any]:
    """Make a ``poll`` that takes a third of the time of the full path, for a window with only the last record in it.

    Args:
        client: confluent_kafka's consumer.
        window: The consumer's window.
        backoff: The consumer's backoff.
        decoder: Decodes messages plainly.
        stores_offsets: Whether offsets of delivered records are stored.
        take: The full path to the next record, for unusual states: several records in the window, a backoff.
        take_front: The full path to the first record of the window, if it can be read by a point in time.
        waits: Whether there may be transfers to wait for.
    """
    messages, decoded, decode_one = window.messages, window.decoded, decoder.one()
    client_poll, store = client.poll, client.store_offsets
    handed: Sequence[Any] = _NOTHING  # the only record in the window, delivered last
    fetched_within = -1.0
    fetched: Iterator[Any] = map(client_poll, itertools.repeat(fetched_within))
    topic: str | None = None  # of the previous record, and its taken offsets
    offsets: dict[int | None, int] = {}

    def poll(timeout: float = -1) -> Any:  # noqa: C901, PLR0912, PLR0915  as above
        nonlocal handed, fetched, fetched_within, topic, offsets
        if window.is_in_use:
            raise in_use()
        window.is_in_use = True
        try:
            began: float | None = None
            # Between two calls of this function, others may have changed ``given`` or dropped the record.
            is_usual = is_next = window.given is handed and len(messages) == 1 and messages[0] is handed[0]
            if not is_usual:
                is_usual = backoff.record is None and not backoff.held and not window.is_wary()
                # After a seek, a delivered record is not in the window, but its offset must still be stored.
                if is_usual and (messages or window.given):
                    handed = _record_of(window.given) or _NOTHING  # its own object, unlike ()
                    is_usual = is_next = len(messages) == len(handed) == 1 and handed[0] is messages[0]
                elif waits:
                    began = time.monotonic()  # records in sequence do not wait for the broker
            if is_next:
                (message,) = handed
                name = message.topic()
                if name != topic:
                    topic, offsets = name, window.taken[name]
                offsets[message.partition()] = message.offset()
                if stores_offsets:
                    try:
                        store(message)
                    except confluent_kafka.KafkaException:
                        is_usual = False  # the full path retries and interprets the error
            if is_usual:
                if decoded:
                    decoded.clear()
                if timeout != fetched_within:
                    fetched, fetched_within = map(client_poll, itertools.repeat(timeout)), timeout
                # The loop takes the iterator's result without a point at which a signal handler could run, so that the
                # message is in the window before anything is raised. The same holds up to the next call.
                try:
                    for message in fetched:
                        if messages:
                            messages[0] = message  # a third of the time of the other way
                        else:
                            messages[:] = (message,)
                        window.given = ()
                        handed = _NOTHING
                        break
                except BaseException:
                    window.torn += 1
                    window.be_wary()
                    handed = _NOTHING  # so that the next call checks ``torn``
                    raise
                if message is None:
                    messages.clear()
                    return None
                if decode_one is None or decode_one(message):
                    window.given = handed = (message,)
                    return message
                found = take_front(deadline(timeout, began))
            else:
                found = take(timeout)
            if found is None:
                return None
            window.given, message = (found[0],), found[1]
            return message
        finally:
            window.is_in_use = False

    return poll


def _record_of(given: Sequence[Any]) -> Sequence[Any]:
    """The delivered messages, if they are one record and no event."""
    return given if len(given) == 1 and given[0].error() is None else ()


def _map(function: Callable[[Any], Any] | None, data: list[Any]) -> list[Any]:
    if function is None:
        return data
    if None in data:
        return [None if item is None else function(item) for item in data]
    return [*map(function, data)]
