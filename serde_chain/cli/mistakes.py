"""All mistakes in a configuration, for ``serde-chain check-config``: a client stops at the first one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from payload_stores.errors import ContextualError
from payload_stores.plugins import require
from serde_chain import config as configuration
from serde_chain.base import Stage
from serde_chain.catalogue import StageItem, stage_type
from serde_chain.chain import DeserializerChain, SerializerChain
from serde_chain.clients.setup import MAX_BLOCK, MAX_POLL_INTERVAL, ClientSetup, error_policy
from serde_chain.config import Config
from serde_chain.errors import ConfigError

__all__ = ["mistakes"]

# librdkafka reads a configuration key by key, in order: the keys before this one are checked, and no client is
# made in any case.
_END: Final = "serde-chain.end"

_Chain = type[SerializerChain] | type[DeserializerChain]


def mistakes(config: Config) -> list[ContextualError]:
    """Look for everything that a producer or a consumer would refuse in a configuration.

    Args:
        config: Flat configuration.

    Returns:
        An error for each mistake, each once.
    """
    # One mistake may show in several chains.
    errors = {str(error): error for error in _all(config)}
    return list(errors.values())


def _all(config: Config) -> Iterator[ContextualError]:
    usable = dict(config)
    sound: list[tuple[_Chain, bool]] = []
    for chain in (SerializerChain, DeserializerChain):
        for is_key in (True, False):
            errors = list(_of_stages(config, chain, is_key=is_key))
            yield from errors
            if errors:
                form = f"{'key' if is_key else 'value'}.{chain.side.word}"
                usable = {key: value for key, value in usable.items() if key not in {form, f"{form}s"}}
            else:
                sound.append((chain, is_key))
    unknown = list(configuration.unknown_keys(usable))
    yield from unknown
    usable = {key: value for key, value in usable.items() if key not in {error.key for error in unknown}}
    clean = not unknown
    for chain, is_key in sound:
        wrong = [*_of_order(usable, chain, is_key=is_key), *_of_options(usable, chain, is_key=is_key)]
        errors = wrong or list(_of_chain(usable, chain, is_key=is_key))
        yield from errors
        clean = clean and not errors
    if clean and len(sound) == 4:
        yield from _of_limits(usable)
    yield from _of_policy(usable)
    yield from _of_client(configuration.client_config(usable))


def _of_stages(config: Config, chain: _Chain, *, is_key: bool) -> Iterator[ContextualError]:
    """Lists that are not lists, and stages that do not exist."""
    try:
        items = configuration.stage_items(config, chain.side, is_key=is_key)
    except ConfigError as error:
        yield error
        return
    for item in items:
        try:
            _options(item, chain, config)
        except ContextualError as error:
            yield error


def _options(item: StageItem, chain: _Chain, config: Config) -> tuple[Any, ...]:
    kind = stage_type(item, chain.side)
    if isinstance(kind, type) and issubclass(kind, Stage):
        return kind.options_for({**config, **item.options})
    return ()


def _of_order(config: Config, chain: _Chain, *, is_key: bool) -> Iterator[ContextualError]:
    """Stages that do not fit each other."""
    try:
        chain.check_order(configuration.stage_items(config, chain.side, is_key=is_key))
    except ContextualError as error:
        yield error


def _of_options(config: Config, chain: _Chain, *, is_key: bool) -> Iterator[ContextualError]:
    """Values that are wrong, and keys that are missing."""
    for item in configuration.stage_items(config, chain.side, is_key=is_key):
        for option in _options(item, chain, config):
            try:
                if not option.name.endswith("*"):
                    option.read({**config, **item.options})
            except ContextualError as error:
                yield error


def _of_chain(config: Config, chain: _Chain, *, is_key: bool) -> Iterator[ContextualError]:
    """Settings that contradict each other: makes the chain, which opens what a client would open."""
    try:
        chain.from_config(config, is_key=is_key).close()
    except ContextualError as error:
        yield error


def _of_limits(config: Config) -> Iterator[ContextualError]:
    """Times and sizes that do not fit the clients' own."""
    require("confluent_kafka", "kafka")
    from serde_chain.clients.confluent.producer import limited

    try:
        ClientSetup.of(config, DeserializerChain, MAX_POLL_INTERVAL).close()
    except ContextualError as error:
        yield error
    try:
        setup = ClientSetup.of(config, SerializerChain, MAX_BLOCK)
        try:
            limited(setup)
        finally:
            setup.close()
    except ContextualError as error:
        yield error


def _of_policy(config: Config) -> Iterator[ContextualError]:
    try:
        error_policy(config)
    except ContextualError as error:
        yield error


def _of_client(client: Config) -> Iterator[ContextualError]:
    """Keys and values that the Kafka client refuses."""
    kafka = require("confluent_kafka", "kafka")
    for key, value in client.items():
        if key == MAX_BLOCK.name:
            continue
        try:
            kafka.Producer({key: value, _END: ""})
        except kafka.KafkaException as error:
            text = error.args[0].str().strip()
            if _END in text:
                continue
            if "No such configuration property" in text:
                yield ConfigError(
                    f"{key!r} is not a key of a stage, a store or the Kafka client",
                    hint="See docs/configuration.md and librdkafka's CONFIGURATION.md",
                    key=key,
                )
            else:
                # A value that librdkafka repeats may be a secret, unless it is a number.
                given = str(value)
                why = f": {text}" if given not in text or given.lstrip("-").isdecimal() else ""
                yield ConfigError(f"the Kafka client refuses the value of {key!r}{why}", key=key)
        except (TypeError, ValueError) as error:
            yield ConfigError(f"the Kafka client refuses {key!r}: {error}", key=key)
