"""The consumer's fast paths: ``poll`` delivers records one by one from batches, which are decoded by C maps.

Decoding is fast for records without headers whose stages work on the data alone, as in
:mod:`serde_chain.clients.confluent.plain_produce`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from itertools import compress, repeat
from operator import is_, is_not, neg
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self

import confluent_kafka
from confluent_kafka import Message

from payload_stores.signals import let_through
from serde_chain import base
from serde_chain.clients.backoff import Backoff
from serde_chain.clients.confluent.messages import DecodedMessage
from serde_chain.clients.timeouts import deadline
from serde_chain.clients.window import Window, in_use

if TYPE_CHECKING:
    from serde_chain.chain import DeserializerChain

# Longest time in seconds for which records of a batch are in hand.
_IN_HAND: Final = 0.2
# Most records of a batch, and the time in seconds in which they should be decoded.
_MOST: Final = 256
_MOMENT: Final = 0.02
# Values of more bytes, on average over some, make batches smaller: they are held here besides in the client's queue.
_LARGE: Final = 16 << 10
_SAMPLES: Final = 16
# A poll of the client that takes more seconds has waited for its record.
_WAIT: Final = 0.0001
# Fewer records are not worth a batch: they are read together with those behind them.
_FEW: Final = 8


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
        return cls(_change_of(key), _change_of(value), noted, is_idle=key is None and value is None)

    def leaves(self, messages: Sequence[Any]) -> bool:
        """Whether messages are in their final form already; so is an error, which is therefore not asked for.

        Args:
            messages: ``confluent_kafka.Message`` objects.
        """
        if self._is_idle:
            return True
        if self._key is not None or self._value is not None or not _are_bare(messages):
            return False
        return not self._noted or self._noted.keys().isdisjoint(map(id, messages))

    def decode(self, messages: Sequence[Any]) -> bool:
        """Decode messages.

        Args:
            messages: ``confluent_kafka.Message`` objects.

        Returns:
            Whether all of them are in their final form now; if not, none of them was changed.
        """
        if self.leaves(messages):
            return True
        # Not by comparison with None, which raises for confluent_kafka's errors.
        if any(map(Message.error, messages)) or not _are_bare(messages):
            return False
        if self._noted and not self._noted.keys().isdisjoint(map(id, messages)):
            return self._decode_others(messages)
        keys = None if self._key is None else [*map(Message.key, messages)]
        values = None if self._value is None else [*map(Message.value, messages)]
        try:
            decoded_keys, decoded_values = _map(self._key, keys), _map(self._value, values)
        except Exception as error:  # noqa: BLE001  raised again by the full path, with its place
            let_through(error)
            return False
        if not (_are_same(decoded_keys, keys) and _are_same(decoded_values, values)):
            keys, values = keys or [*map(Message.key, messages)], values or [*map(Message.value, messages)]
            parts = zip(messages, keys, values, decoded_keys or keys, decoded_values or values, strict=True)
            for each in parts:
                self._change(*each)
        return True

    def count_plain(self, messages: Sequence[Any]) -> int:
        """The number of messages before the first that is left to the full path anyway."""
        count = _index_of_first(map(Message.error, messages), len(messages))
        if self._is_idle:
            return count
        try:
            return _index_of_first(map(Message.headers, messages), count)
        except SystemError:  # as below
            return 0

    def _decode_others(self, messages: Sequence[Any]) -> bool:
        """Decode messages some of which an earlier call has decoded."""
        noted = [self._noted[id(message)] for message in messages if id(message) in self._noted]
        if any(decoded.timestamp is not None for decoded in noted):
            return False  # becomes another message
        is_decoded = self.decode([message for message in messages if id(message) not in self._noted])
        for decoded in noted if is_decoded else ():
            decoded.finish()  # in case that an interrupt came before
        return is_decoded

    def _change(self, message: Any, key: Any, value: Any, decoded_key: Any, decoded_value: Any) -> None:
        """Note a message's original and decoded parts, then change it."""
        decoded = DecodedMessage(message, (key, value, None), (decoded_key, decoded_value, None), None)
        self._noted[id(message)] = decoded
        decoded.finish()


class NextRecord(NamedTuple):
    """A record that is about to be delivered.

    Attributes:
        record: The message in the window.
        message: The decoded message.
    """

    record: Any
    message: confluent_kafka.Message[Any, Any]


class FullPath(Protocol):
    """The ways of a reading loop to the next record, for any state of the consumer."""

    def settle(self) -> None:
        """Note that the results of the last call were delivered, and store their offsets."""

    def take(self, timeout: float) -> NextRecord | None:
        """The next record, within a timeout in seconds; negative waits forever."""

    def take_front(self, until: float) -> NextRecord | None:
        """The first record of the window, if it can be read by a point in time."""

    def read_first(self, records: list[Any], seconds: float) -> list[Any]:
        """The decoded messages of the first records, up to one that fails or may have a payload to fetch.

        Args:
            records: The first records of the window.
            seconds: The time in which no further one is begun.
        """


def plain_poll(
    client: Any, window: Window, backoff: Backoff, decoder: PlainDecoder, in_full: FullPath
) -> Callable[[float], Any]:
    """Make a ``poll`` that delivers records one by one from batches.

    Args:
        client: confluent_kafka's consumer.
        window: The consumer's window.
        backoff: The consumer's backoff.
        decoder: Decodes messages plainly.
        in_full: The way of all other records; also of all records in unusual states, such as a backoff.
    """
    batches, monotonic = Batches(client, window, backoff, decoder, in_full), time.monotonic
    accepted: float = -1

    def poll(timeout: float = -1) -> Any:
        nonlocal accepted
        if timeout is not accepted:
            neg(timeout)  # what is no number is a TypeError, as in the client
            accepted = timeout
        # A call more would cost a tenth of a record. The step of the iterator is the delivery: no call is behind it.
        if monotonic() < batches.until:
            for message in window.in_hand:
                return message
        batches.begin(timeout)
        for message in window.in_hand:
            return message
        return None

    return poll


class Batches:
    """Batches of records which are fetched, decoded and settled at once, and delivered one by one.

    A batch is in hand for a short time: then the client is called again, which serves callbacks and keeps the group
    membership. A batch has few records at first, then more, as long as they are decoded quickly and are small.

    Args:
        client: confluent_kafka's consumer.
        window: The consumer's window.
        backoff: The consumer's backoff.
        decoder: Decodes messages plainly.
        in_full: The way of all other records.

    Attributes:
        until: How long the records of the last batch may be in hand, by ``time.monotonic``.
    """

    def __init__(self, client: Any, window: Window, backoff: Backoff, decoder: PlainDecoder, in_full: FullPath) -> None:
        self._client = client
        self._window = window
        self._backoff = backoff
        self._decoder = decoder
        self._in_full = in_full
        self._most = 1
        self._has_waited = False
        self.until = 0.0

    def begin(self, timeout: float) -> None:
        """Take the next batch in hand, if there is one within a timeout in seconds; negative waits forever."""
        window = self._window
        if window.is_in_use:
            raise in_use()
        window.is_in_use = True
        try:
            began = time.monotonic()
            self._in_full.settle()
            if self._backoff.record is not None or self._backoff.held or window.under_way or window.is_wary():
                taken = self._in_full.take(timeout)
            else:
                self._fetch(timeout)
                if not window.messages:
                    return
                records, decoded = self._decode()
                if records:
                    self.until = time.monotonic() + _IN_HAND
                    window.take_in_hand(records, decoded)
                    return
                taken = self._in_full.take_front(deadline(timeout, began))
            if taken is not None:
                window.take_in_hand([taken.record], [taken.message])
        finally:
            window.is_in_use = False

    def _fetch(self, timeout: float) -> None:
        """Let the client serve its callbacks, and add what it has; wait only if there is no record at all."""
        messages = self._window.messages
        count = len(messages)
        if messages or self._most > 1:
            self._window.fetch_several(self._client.consume, max(1, self._most - count), 0)
        self._has_waited = False
        if not messages:
            # Records that come one by one need a single call of the client.
            self._most = 1
            began = time.monotonic()
            self._window.fetch(self._client.poll, timeout)
            self._has_waited = time.monotonic() > began + _WAIT
        some = messages[count :: self._most // _SAMPLES + 1]
        if sum(map(len, some)) > len(some) * _LARGE:
            self._most = max(1, self._most // 4)

    def _decode(self) -> tuple[list[Any], list[Any]]:
        """The first records of the window, and their final form; none if the very first needs the full path."""
        if self._window.paused and self._window.count() < len(self._window.messages):
            return [], []
        records = self._window.messages[: self._most]
        began = time.monotonic()
        decoded = self._decode_first(records)
        if time.monotonic() > began + _MOMENT:
            self._most = max(1, len(decoded) // 2)
        elif len(decoded) == self._most and not self._has_waited:
            self._most = min(2 * self._most, _MOST)
        return records[: len(decoded)], decoded

    def _decode_first(self, records: list[Any]) -> list[Any]:
        if self._decoder.decode(records):
            return records
        plain = records[: self._decoder.count_plain(records)]
        if _FEW < len(plain) < len(records) and self._decoder.decode(plain):
            return plain
        return self._in_full.read_first(records, _MOMENT)


def _change_of(chain: DeserializerChain | None) -> Callable[[Any], Any] | None:
    """The plain function of a chain; None if it leaves the client's data, which is exactly ``bytes``, unchanged."""
    if chain is None or chain.plain is base.untouched:
        return None
    from serde_chain.stages.primitives import as_bytes  # not needed without chains

    return None if chain.plain is as_bytes else chain.plain


def _are_bare(messages: Iterable[Any]) -> bool:
    """Whether messages have no headers."""
    try:
        return not any(map(Message.headers, messages))
    except SystemError:  # a header name that is not UTF-8: the full path handles it
        return False


def _index_of_first(marks: Iterable[object], end: int) -> int:
    """The index of the first true mark before an end; the end without one."""
    return next(compress(range(end), marks), end)


def _map(function: Callable[[Any], Any] | None, data: list[Any] | None) -> list[Any] | None:
    if function is None or data is None:
        return data
    if not all(map(is_not, data, repeat(None))):
        return [None if item is None else function(item) for item in data]
    return [*map(function, data)]


def _are_same(decoded: list[Any] | None, data: list[Any] | None) -> bool:
    return decoded is None or data is None or all(map(is_, decoded, data))
