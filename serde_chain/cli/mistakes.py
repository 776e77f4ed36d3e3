"""Finds all mistakes in a configuration, for ``serde-chain check-config``: a client stops at the first one."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from payload_stores.errors import ContextualError
from payload_stores.plugins import require
from serde_chain import config as configuration
from serde_chain.catalogue import ConfiguredStage
from serde_chain.chain import DeserializerChain, SerializerChain, close_all
from serde_chain.cli.findings import Finding
from serde_chain.cli.positions import lines_of
from serde_chain.clients.client_chains import MAX_BLOCK, ClientChains
from serde_chain.clients.error_policy import ErrorPolicy
from serde_chain.config import Config, Resolved
from serde_chain.config_paths import missing_files
from serde_chain.errors import ConfigError

# librdkafka reads a configuration key by key, in order: it checks the keys before this one, and never creates a
# client.
_END: Final = "serde-chain.end"

_Chain = type[SerializerChain] | type[DeserializerChain]


class Checked(NamedTuple):
    """A checked configuration.

    Attributes:
        config: The configuration; None if it has mistakes.
        mistakes: Its mistakes, without duplicates, in the order of their lines.
    """

    config: Resolved | None
    mistakes: list[Finding]


def check_config(source: Config | str | Path) -> Checked:
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
    resolved: Resolved | None = None
    try:
        resolved, errors = mistakes(configuration.load(source))
    except ConfigError as error:  # a key that cannot be translated
        errors = [error]
    found = [Finding.mistake(error, lines.get(error.context.get("key", ""))) for error in errors]
    found.sort(key=lambda each: each.where["line"] or sys.maxsize)
    return Checked(resolved, found)


def mistakes(config: Config) -> tuple[Resolved | None, list[ContextualError]]:
    """Find everything that a producer or a consumer would refuse in a configuration.

    Args:
        config: Flat configuration.

    Returns:
        The resolved configuration, None if it has mistakes; and an error for each mistake, without duplicates.
    """
    resolved = _resolved(config)
    # Several chains may show the same mistake.
    errors = {str(error): error for error in _all(config, resolved)}
    return None if errors else resolved, list(errors.values())


def _resolved(config: Config) -> Resolved | None:
    """The configuration, resolved; None if a list is malformed or names an unknown stage."""
    try:
        return configuration.resolve(config)
    except ContextualError:
        return None


def _all(config: Config, resolved: Resolved | None) -> Iterator[ContextualError]:
    sound = [(chain, is_key) for chain in (SerializerChain, DeserializerChain) for is_key in (True, False)]
    unsound: list[list[ConfiguredStage]] = []
    if resolved is None:
        usable = dict(config)
        for chain, is_key in tuple(sound):
            stages, errors = _of_list(config, chain, is_key=is_key)
            yield from errors
            if errors:
                form = f"{'key' if is_key else 'value'}.{chain.side.word}"
                usable = {key: value for key, value in usable.items() if key not in {form, f"{form}s"}}
                unsound.append(stages)
                sound.remove((chain, is_key))
        resolved = configuration.resolve(usable)
    unknown = list(configuration.unknown_keys(resolved))
    yield from unknown
    if unknown:
        wrong_keys = {error.key for error in unknown}
        known = {key: value for key, value in resolved.settings.items() if key not in wrong_keys}
        resolved = configuration.resolve(known)
    for stages in unsound:
        yield from _of_options(stages)
        yield from _of_making(stages)
    clean = not unknown
    for chain, is_key in sound:
        stages = resolved.of(chain.side, is_key=is_key)
        wrong = [*_of_order(chain, stages), *_of_options(stages)]
        errors = [*wrong, *(_of_making(stages) if wrong else _of_chain(chain, resolved, is_key=is_key))]
        yield from errors
        clean = clean and not errors
    if clean and len(sound) == 4:
        yield from _of_limits(resolved)
    yield from _of_policy(resolved.settings)
    client = resolved.client
    if any(_is_unresolved(stage) for stages in unsound for stage in stages):
        # A key with an unknown prefix may belong to the missing stage or store, which is reported already.
        client = {key: value for key, value in client.items() if configuration.is_of_librdkafka(key)}
    yield from _of_client(client)


def _is_unresolved(stage: ConfiguredStage) -> bool:
    """Whether a stage or store is missing whose options are therefore unknown; a misspelt built-in's are known."""
    try:
        _ = stage.options
    except ConfigError as error:
        # A dotted path, of the stage or of its store, has failed to import.
        if error.__cause__ is not None:
            return True
        target = stage.item.target
        return isinstance(target, str) and stage.side.catalogue.nearest(target) is None
    except ContextualError:  # a package is not installed: the stage is known
        return False
    return False


def _of_list(config: Config, chain: _Chain, *, is_key: bool) -> tuple[list[ConfiguredStage], list[ContextualError]]:
    """The stages of a list; and its mistakes: it is malformed, or a stage is unknown."""
    try:
        stages = configuration.stages_of(config, chain.side, is_key=is_key)
    except ConfigError as error:
        return [], [error]
    errors: list[ContextualError] = []
    for stage in stages:
        try:
            _ = stage.options
        except ContextualError as error:
            errors.append(error)
    return stages, errors


def _of_order(chain: _Chain, stages: list[ConfiguredStage]) -> Iterator[ContextualError]:
    """Invalid stage orders."""
    try:
        chain.check_order(stages)
    except ContextualError as error:
        yield error


def _of_options(stages: Iterable[ConfiguredStage]) -> Iterator[ContextualError]:
    """Invalid values and missing keys of the existing stages."""
    for stage in stages:
        with suppress(ContextualError):  # already reported by _of_list
            for option in stage.options:
                try:
                    if not option.name.endswith("*"):
                        stage.read(option)
                except ContextualError as error:
                    yield error


def _of_making(stages: Iterable[ConfiguredStage]) -> Iterator[ContextualError]:
    """Errors of individual stages in a chain that cannot be created: invalid keys, missing packages."""
    for stage in stages:
        if not any(_of_options([stage])):
            try:
                close_all([stage.make()])
            except ContextualError as error:
                yield error


def _of_chain(chain: _Chain, config: Resolved, *, is_key: bool) -> Iterator[ContextualError]:
    """Contradictory settings: creates the chain, which opens the same resources as a client."""
    try:
        chain.from_config(config, is_key=is_key).close()
    except ContextualError as error:
        yield error


def _of_limits(config: Resolved) -> Iterator[ContextualError]:
    """Times and sizes that do not fit the clients' own."""
    require("confluent_kafka", "kafka")
    from serde_chain.clients.confluent.producer import limited

    try:
        ClientChains.of_reader(config).close()
    except ContextualError as error:
        yield error
    try:
        setup = ClientChains.of_writer(config)
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
    """Keys and values that the Kafka client refuses, and files that it will not find."""
    for key, path in missing_files(client).items():
        yield ConfigError(f"{key} = {path}: there is no such file", key=key)
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
