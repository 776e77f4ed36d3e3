"""Finds all mistakes in a configuration, for ``serde-chain check-config``: a client stops at the first one."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from payload_stores.errors import ContextualError
from payload_stores.plugins import require
from serde_chain import config as configuration
from serde_chain.base import Stage
from serde_chain.catalogue import StageItem, make_stage, stage_type
from serde_chain.chain import DeserializerChain, SerializerChain, close_all
from serde_chain.cli.findings import Finding
from serde_chain.cli.positions import lines_of
from serde_chain.clients.client_chains import MAX_BLOCK, MAX_POLL_INTERVAL, ClientChains
from serde_chain.clients.error_policy import ErrorPolicy
from serde_chain.config import Config
from serde_chain.errors import ConfigError

__all__ = ["Checked", "checked", "mistakes"]

# librdkafka reads a configuration key by key, in order: it checks the keys before this one, and never creates a
# client.
_END: Final = "serde-chain.end"

_Chain = type[SerializerChain] | type[DeserializerChain]


class Checked(NamedTuple):
    """A checked configuration.

    Attributes:
        config: The flat configuration; empty if a key cannot be translated into ours.
        mistakes: Its mistakes, without duplicates, in the order of their lines.
    """

    config: Config
    mistakes: list[Finding]


def checked(source: Config | str | Path) -> Checked:
    """Find everything that a producer or a consumer would refuse, with line numbers.

    Args:
        source: A configuration, or the path of its file, which is read once: it may be a pipe.

    Raises:
        ConfigError: The file is unreadable.
    """
    lines: dict[str, int] = {}
    if not isinstance(source, Mapping):
        path = Path(source)
        text = configuration.read(path)
        source = configuration.parse(path, text)
        lines = lines_of(path, text)
    try:
        config = configuration.load(source)
        errors = mistakes(config)
    except ConfigError as error:  # a key that cannot be translated
        config, errors = {}, [error]
    found = [Finding.mistake(error, lines.get(error.context.get("key", ""))) for error in errors]
    return Checked(config, sorted(found, key=lambda each: each.where["line"] or sys.maxsize))


def mistakes(config: Config) -> list[ContextualError]:
    """Find everything that a producer or a consumer would refuse in a configuration.

    Args:
        config: Flat configuration.

    Returns:
        An error for each mistake, without duplicates.
    """
    # Several chains may show the same mistake.
    errors = {str(error): error for error in _all(config)}
    return list(errors.values())


def _all(config: Config) -> Iterator[ContextualError]:
    usable = dict(config)
    sound: list[tuple[_Chain, bool]] = []
    unsound: list[tuple[_Chain, bool]] = []
    for chain in (SerializerChain, DeserializerChain):
        for is_key in (True, False):
            errors = list(_of_stages(config, chain, is_key=is_key))
            yield from errors
            if errors:
                form = f"{'key' if is_key else 'value'}.{chain.side.word}"
                usable = {key: value for key, value in usable.items() if key not in {form, f"{form}s"}}
                unsound.append((chain, is_key))
            else:
                sound.append((chain, is_key))
    unknown = list(configuration.unknown_keys(usable))
    yield from unknown
    usable = {key: value for key, value in usable.items() if key not in {error.key for error in unknown}}
    clean = not unknown
    for chain, is_key in unsound:
        yield from _of_options({**config, **usable}, chain, is_key=is_key)
        yield from _of_making({**config, **usable}, chain, is_key=is_key)
    for chain, is_key in sound:
        wrong = [*_of_order(usable, chain, is_key=is_key), *_of_options(usable, chain, is_key=is_key)]
        errors = [*wrong, *(_of_making if wrong else _of_chain)(usable, chain, is_key=is_key)]
        yield from errors
        clean = clean and not errors
    if clean and len(sound) == 4:
        yield from _of_limits(usable)
    yield from _of_policy(usable)
    client = configuration.client_config(usable)
    if _has_unresolved(config):
        # A key with an unknown prefix may belong to the missing stage or store, which is reported already.
        client = {key: value for key, value in client.items() if configuration.is_of_librdkafka(key)}
    yield from _of_client(client)


def _has_unresolved(config: Config) -> bool:
    """Whether a stage or store is missing whose options are therefore unknown; a misspelt built-in's are known."""
    for chain in (SerializerChain, DeserializerChain):
        for is_key in (True, False):
            with suppress(ContextualError):  # a malformed list
                items = configuration.stage_items(config, chain.side, is_key=is_key)
                if any(_is_unresolved(item, chain, item.settings(config, is_key=is_key)) for item in items):
                    return True
    return False


def _is_unresolved(item: StageItem, chain: _Chain, config: Config) -> bool:
    try:
        _options(item, chain, config)
    except ConfigError as error:
        # A dotted path, of the stage or of its store, has failed to import.
        if error.__cause__ is not None:
            return True
        return isinstance(item.target, str) and chain.side.catalogue.nearest(item.target) is None
    return False


def _of_stages(config: Config, chain: _Chain, *, is_key: bool) -> Iterator[ContextualError]:
    """Malformed lists, and unknown stages."""
    try:
        items = configuration.stage_items(config, chain.side, is_key=is_key)
    except ConfigError as error:
        yield error
        return
    for item in items:
        try:
            _options(item, chain, item.settings(config, is_key=is_key))
        except ContextualError as error:
            yield error


def _options(item: StageItem, chain: _Chain, config: Config) -> tuple[Any, ...]:
    kind = stage_type(item, chain.side)
    if isinstance(kind, type) and issubclass(kind, Stage):
        return kind.options_for(config)
    return ()


def _of_order(config: Config, chain: _Chain, *, is_key: bool) -> Iterator[ContextualError]:
    """Invalid stage orders."""
    try:
        chain.check_order(configuration.stage_items(config, chain.side, is_key=is_key))
    except ContextualError as error:
        yield error


def _of_options(config: Config, chain: _Chain, *, is_key: bool) -> Iterator[ContextualError]:
    """Invalid values and missing keys of the existing stages."""
    with suppress(ContextualError):  # already reported by _of_stages
        for item in configuration.stage_items(config, chain.side, is_key=is_key):
            yield from _of_item(item, chain, config, is_key=is_key)


def _of_item(item: StageItem, chain: _Chain, config: Config, *, is_key: bool) -> Iterator[ContextualError]:
    settings = item.settings(config, is_key=is_key)
    with suppress(ContextualError):  # likewise
        for option in _options(item, chain, settings):
            try:
                if not option.name.endswith("*"):
                    with item.named_as_written(config, is_key=is_key):
                        option.read(settings)
            except ContextualError as error:
                yield error


def _of_making(config: Config, chain: _Chain, *, is_key: bool) -> Iterator[ContextualError]:
    """Errors of individual stages in a chain that cannot be created: invalid keys, missing packages."""
    with suppress(ContextualError):  # likewise
        for item in configuration.stage_items(config, chain.side, is_key=is_key):
            if not any(_of_item(item, chain, config, is_key=is_key)):
                try:
                    close_all([make_stage(item, config, is_key=is_key, side=chain.side)])
                except ContextualError as error:
                    yield error


def _of_chain(config: Config, chain: _Chain, *, is_key: bool) -> Iterator[ContextualError]:
    """Contradictory settings: creates the chain, which opens the same resources as a client."""
    try:
        chain.from_config(config, is_key=is_key).close()
    except ContextualError as error:
        yield error


def _of_limits(config: Config) -> Iterator[ContextualError]:
    """Times and sizes that do not fit the clients' own."""
    require("confluent_kafka", "kafka")
    from serde_chain.clients.confluent.producer import limited

    try:
        ClientChains.of(config, DeserializerChain, MAX_POLL_INTERVAL).close()
    except ContextualError as error:
        yield error
    try:
        setup = ClientChains.of(config, SerializerChain, MAX_BLOCK)
        try:
            limited(setup)
        finally:
            setup.close()
    except ContextualError as error:
        yield error


def _of_policy(config: Config) -> Iterator[ContextualError]:
    try:
        ErrorPolicy.of(config)
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
                hint = "See docs/configuration.md and librdkafka's CONFIGURATION.md"
                if key != key.lower():
                    hint = f"Did you mean {key.lower()}? Keys are written in lower case"
                yield ConfigError(f"{key!r} is not a key of a stage, a store or the Kafka client", hint=hint, key=key)
            else:
                # A value repeated by librdkafka may be a secret, unless it is a number.
                given = str(value)
                why = f": {text}" if given not in text or given.lstrip("-").isdecimal() else ""
                yield ConfigError(f"the Kafka client refuses the value of {key!r}{why}", key=key)
        except (TypeError, ValueError) as error:
            yield ConfigError(f"the Kafka client refuses {key!r}: {error}", key=key)
