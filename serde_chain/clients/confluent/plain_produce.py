"""The producer's fast path, for records without headers whose stages work on the data alone.

The stages' plain functions (:class:`serde_chain.base.SupportsPlainCalls`) run here directly, without a context per
record, and their result goes directly to the client. Where a stage needs the record, the full path continues with what
the stages before have made. If one of them raises, it runs from the beginning: errors get their place there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from payload_stores.signals import let_through
from serde_chain import base
from serde_chain.clients.confluent.outbox import advise
from serde_chain.clients.limits import SHORT_KEY
from serde_chain.clients.outgoing import Outgoing
from serde_chain.stage_calls import Begun

if TYPE_CHECKING:
    from serde_chain.chain import SerializerChain


def plain_produce(
    send: Callable[..., None],
    key_chain: SerializerChain | None,
    value_chain: SerializerChain | None,
    in_full: Any,
    last: Mapping[str, Outgoing],
) -> Callable[..., None]:
    """Make a ``produce`` that takes half the time of the full path.

    Args:
        send: The client's ``produce``.
        key_chain: The chain of keys, if there is one.
        value_chain: The chain of values, likewise.
        in_full: The producer's own ``produce``, for all other records and for failed ones.
        last: The sender's last record of each topic: records after a waiting one must wait too.
    """
    if key_chain is None and value_chain is None:
        return send
    encode_key, begun_key = _calls(key_chain)
    encode_value, begun_value = _calls(value_chain)
    if encode_key is None or encode_value is None:
        full: Callable[..., None] = in_full
        return full
    has_key = key_chain is not None
    max_unchanged = -1 if value_chain is None else value_chain.max_unchanged

    def produce(  # noqa: PLR0917, the original's signature
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        callback: Any = None,
        on_delivery: Any = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        callback = on_delivery if callback is None else callback
        if not (headers or (last and topic in last and not last[topic].is_gone)):
            try:
                # Positional: keywords cost as much as the chain of a small record, and five more arguments 60 ns.
                if key is None and type(value) is bytes and len(value) <= max_unchanged:
                    has_more = partition != -1 or callback is not None or timestamp
                    return (
                        send(topic, value, None, partition, callback, None, timestamp)
                        if has_more
                        else send(topic, value)
                    )
                try:
                    # As in the full path, the key comes first: the size of the value depends on it.
                    encoded_key = encode_key(key) if has_key and key is not None else key
                    is_short = encoded_key is None or (type(encoded_key) is not Begun and len(encoded_key) <= SHORT_KEY)
                    encoded = encode_value(value) if is_short and value is not None else None
                except Exception as error:  # noqa: BLE001  raised below, with its place
                    let_through(error)
                else:
                    if is_short and (encoded is None or type(encoded) is bytes):
                        return send(topic, encoded, encoded_key, partition, callback, None, timestamp)
                    key = None if encoded_key is None else begun_key(encoded_key)
                    value = value if encoded is None else begun_value(encoded)
            except KafkaException as error:
                advise(error, topic)
                raise
        return in_full(topic, value, key, partition, callback, None, timestamp, headers)  # type: ignore[no-any-return]

    return update_wrapper(produce, in_full)


def _calls(chain: SerializerChain | None) -> tuple[Callable[[Any], Any] | None, Callable[[Any], Any]]:
    """The plain function of a chain, and what is left to do after it."""
    return (base.untouched, base.untouched) if chain is None else (chain.plain, chain.begun)
