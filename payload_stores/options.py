"""Configuration keys, declared once: parser, default, and whether the value is secret.

Stores and stages list their :class:`Option` objects. Reading, misspelling checks, ``check-config`` and the masking of
secrets all use these lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

from payload_stores.errors import ConfigError

__all__ = [
    "CLIENT_PREFIXES",
    "UNDECLARED",
    "Option",
    "boolean",
    "choice",
    "content",
    "integer",
    "listing",
    "nearest",
    "path_or_content",
    "text",
    "without_login",
]

T = TypeVar("T")

_UNITS: Final = {"bytes": "bytes", "ms": "milliseconds"}
_NUMBER: Final = r"\bwhole number( of(?= at least)|)"

# First segments of librdkafka's keys. A key with such a prefix may be the client's, so only near misses of an
# option are refused. With any other prefix that an option owns, every unknown key is refused.
CLIENT_PREFIXES: Final = frozenset({
    "acks", "allow", "api", "auto", "batch", "bootstrap", "broker", "check", "client", "compression", "connections",
    "coordinator", "debug", "default", "delivery", "enable", "enabled", "error", "error_cb", "fetch", "group",
    "heartbeat", "https", "interceptor", "internal", "isolation", "linger", "log", "log_cb", "log_level", "logger",
    "max", "message", "metadata", "oauth_cb", "oauthbearer", "offset", "on_commit", "on_delivery", "opaque",
    "partition", "partitioner", "partitions", "plugin", "produce", "queue", "queued", "rebalance", "receive",
    "reconnect", "request", "resolve", "retries", "retry", "sasl", "security", "session", "share", "socket", "ssl",
    "ssl_ca", "ssl_certificate", "ssl_engine_callback_data", "ssl_key", "statistics", "stats", "stats_cb", "sticky",
    "throttle", "throttle_cb", "topic", "transaction", "transactional",
})  # fmt: skip


class Option(Generic[T]):  # a named tuple takes ten times as long to define, in each process, and a data class longer
    """One configuration key. Not to be changed, since others share it: :meth:`changed` makes a copy.

    Attributes:
        name: Dotted key. A trailing ``*`` matches any suffix, for keys passed on to a library
            (``schema.registry.*``); such options are not read but selected with :meth:`select`.
        parse: Converts the configured value to the option's type; raises ValueError naming the expected form.
        default: Used if the key is absent.
        required: Whether an absent key is an error.
        secret: Whether to mask the value everywhere.
        file: Whether the value is the path of a file, read on the configuring machine. If the work runs elsewhere, as
            in Spark, the file's content is sent instead of its path: :func:`path_or_content` parses both. A function
            makes the content, if it is more than the file's own.
        of_client: Whether it belongs to the client, so that it cannot be set for keys or values alone.
        of_producer: Whether the Kafka producer has the same key: it gets the value too, unless a stage that writes
            takes it.
        doc: One line for ``check-config`` and the documentation.

    Example:
        >>> seconds = Option("demo.seconds", integer(minimum=1), 10, doc="how long to wait")
        >>> seconds.read({}), seconds.read({"demo.seconds": "30"})
        (10, 30)
    """

    __slots__ = ("default", "doc", "file", "name", "of_client", "of_producer", "parse", "required", "secret")

    def __init__(  # noqa: PLR0917  by name, but for the first three
        self,
        name: str,
        parse: Callable[[object], T],
        default: T,
        required: bool = False,
        secret: bool = False,
        file: bool | Callable[[str], bytes] = False,
        of_client: bool = False,
        of_producer: bool = False,
        doc: str = "",
    ) -> None:
        self.name = name
        self.parse = parse
        self.default = default
        self.required, self.secret, self.file = required, secret, file
        self.of_client, self.of_producer = of_client, of_producer
        self.doc = doc

    def changed(self, **changes: Any) -> Option[Any]:
        """An option with some other attributes.

        Example:
            >>> Option("demo.text", text, "none").changed(default="some").read({})
            'some'
        """
        return Option(**dict(zip(Option.__slots__, self._values(), strict=True)) | changes)

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in Option.__slots__)

    def __eq__(self, other: object) -> bool:
        # A class that is pickled by value, as by Spark, brings copies.
        return self._values() == other._values() if isinstance(other, Option) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def read(self, config: Mapping[str, object]) -> T:
        """Read the option from a configuration.

        Args:
            config: Flat mapping of dotted keys.

        Returns:
            The parsed value, or the default.

        Raises:
            ConfigError: The value does not parse, or a required key is missing.

        Example:
            >>> Option("demo.text", text, "none").read({"demo.text": "some"})
            'some'
        """
        value = config.get(self.name)
        if value is None:
            if self.required:
                raise ConfigError(f"{self.name} is required", hint=self._what_it_is(), key=self.name)
            return self.default
        try:
            return self.parse(value)
        except ValueError as error:
            shown = f" = {value!r}" if not self.secret and _is_plain(value) else ""
            problem = self._in_units(str(error))
            raise ConfigError(f"{self.name}{shown}: {problem}", key=self.name) from (None if self.secret else error)

    def _in_units(self, problem: str) -> str:
        """The text of a parser's error with the unit of the key, such as bytes for 2MB."""
        unit = _UNITS.get(self.name.rpartition(".")[2])
        return (
            problem
            if unit is None
            else re.sub(_NUMBER, lambda found: f"whole number of {unit}{found[1] and ','}", problem)
        )

    def _what_it_is(self) -> str | None:
        """A hint for a missing key; a ``doc`` beginning with a capital letter is already an instruction."""
        return f"Set it: {self.doc}" if self.doc[:1].islower() else self.doc or None

    def matches(self, key: str) -> bool:
        """Whether a key belongs to this option.

        Example:
            >>> Option("schema.registry.*", text, None).matches("schema.registry.url")
            True
        """
        return key == self.name or (self.name.endswith("*") and key.startswith(self.name[:-1]))

    def select(self, config: Mapping[str, object]) -> dict[str, object]:
        """For a ``prefix.*`` option: the matching keys without the prefix.

        Example:
            >>> Option("schema.registry.*", text, None).select({"schema.registry.url": "http://localhost:8081"})
            {'url': 'http://localhost:8081'}
        """
        prefix = self.name.removesuffix("*")
        return {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}


def _is_plain(value: object) -> bool:
    """Whether a value may be shown: a mapping may contain secrets declared elsewhere."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return isinstance(value, (str, int, float)) or value is None


def without_login(address: str, key: str) -> str:
    """Refuse an address that contains a user or password: libraries repeat it in their error messages.

    Args:
        address: The address of a server; may be empty.
        key: The option it comes from.

    Returns:
        The address.

    Raises:
        ConfigError: The address contains a user; the error does not show the address.

    Example:
        >>> without_login("https://s3.example.org", "s3.endpoint.url")
        'https://s3.example.org'
    """
    if "@" in address:
        raise ConfigError(
            f"{key} has a user or a password in it, which would be in errors and logs",
            hint="Write the server alone; keys have options of their own",
            key=key,
        )
    return address


def text(value: object) -> str:
    """Parse a non-empty string.

    Example:
        >>> text(" alerts ")
        'alerts'
    """
    if not isinstance(value, str):
        raise ValueError("expected a string")
    if not value.strip():
        raise ValueError("expected a non-empty string")
    return value.strip()


def path_or_content(value: object) -> str | bytes:
    """Parse a file's path, or its content as bytes: the two forms of an option with ``file``.

    Example:
        >>> path_or_content("alert.avsc"), path_or_content(b"{}")
        ('alert.avsc', b'{}')
    """
    return value if isinstance(value, bytes) else text(value)


def content(source: str | bytes, key: str) -> bytes:
    """The content of a file, from a value of :func:`path_or_content`.

    Args:
        source: The path, or the content.
        key: The key that names it, for errors.

    Raises:
        ConfigError: The file is unreadable; the message says where it was looked for.

    Example:
        >>> content(b"{}", "avro.schema.file")
        b'{}'
    """
    if isinstance(source, bytes):
        return source
    from pathlib import Path  # needed only for files

    try:
        return Path(source).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        hint = None
        if isinstance(error, FileNotFoundError):
            # Not resolved: a link's target is not what the user wrote.
            hint = f"It was looked for at {Path(source).absolute()}"
        raise ConfigError(f"{key} = {source!r} cannot be read: {reason}", hint=hint, key=key) from error


# Stands for the keys of a store that declares none, since it alone knows them. No key has this name.
UNDECLARED: Final[Option[str]] = Option("", text, "", doc="keys of a store that declares none")


def integer(minimum: int | None = None, maximum: int | None = None) -> Callable[[object], int]:
    """Make a parser for whole numbers, given as numbers or text, within inclusive bounds.

    Example:
        >>> integer(minimum=1)("30")
        30
    """
    if minimum is not None and maximum is not None:
        expected = f"expected a whole number from {minimum} to {maximum}"
    elif minimum is not None:
        expected = f"expected a whole number of at least {minimum}"
    else:
        expected = "expected a whole number"

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise ValueError(expected)
        try:
            number = int(value)
        except ValueError:
            raise ValueError(expected) from None
        if (minimum is not None and number < minimum) or (maximum is not None and number > maximum):
            raise ValueError(expected)
        return number

    return parse


def boolean(value: object) -> bool:
    """Parse ``True``/``False`` or the text ``true``/``false`` in any case.

    Example:
        >>> boolean("True")
        True
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
        return value.strip().lower() == "true"
    raise ValueError("expected true or false")


def choice(*allowed: str) -> Callable[[object], str]:
    """Make a parser for one of several words, case-insensitive.

    Example:
        >>> choice("gcm", "siv")("SIV")
        'siv'
    """

    def parse(value: object) -> str:
        if isinstance(value, str) and value.strip().lower() in allowed:
            return value.strip().lower()
        near = nearest(str(value), allowed)
        raise ValueError(f"expected one of {', '.join(allowed)}" + (f"; did you mean {near}?" if near else ""))

    return parse


def listing(value: object) -> tuple[str, ...]:
    """Parse comma-separated text or a list of strings.

    Example:
        >>> listing("same, alerts")
        ('same', 'alerts')
    """
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in items):
        raise ValueError("expected a list of strings or comma-separated text")
    return tuple(item.strip() for item in items if item.strip())


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word closest to a misspelt one, or None if none reaches the cutoff (0 to 1).

    Example:
        >>> nearest("compresion.type", ["compression.type", "compression.level"])
        'compression.type'
    """
    import difflib  # for messages only

    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return matches[0] if matches else None
