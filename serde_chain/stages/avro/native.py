"""The compiled part ``serde_chain._native``: readers and writers, used where serde-chain is built with it.

It takes ordinary schemas, bytes and values only. Everything else is passed to fastavro, which also reports all errors,
so the results are the same with and without it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final, Protocol, cast

from payload_stores.errors import MissingDependencyError
from payload_stores.options import Option, choice
from payload_stores.plugins import require
from serde_chain.errors import ConfigError
from serde_chain.schemas.part_budget import MOST_FIELDS
from serde_chain.stages.avro.decimal import logical_readers

_log = logging.getLogger(__name__)

NATIVE: Final = Option(
    "avro.native",
    choice("auto", "on", "off"),
    "auto",
    doc="the compiled reader and writer: auto (where serde-chain is built with it), on (required), or off",
)

# Hides the compiled part from a process, as if serde-chain was built without it; builds leave it out (hatch_build.py).
_SWITCH: Final = "SERDE_CHAIN_NATIVE"
_MODULE: Final = "serde_chain._native"
# The interface that this version of serde-chain uses.
_INTERFACE: Final = 3


class _Decoder(Protocol):
    def decode(self, data: Any, start: int = 0, /) -> Any: ...


class _Encoder(Protocol):
    def encode(self, data: Any, /) -> bytes: ...


class ColumnDecoder(Protocol):
    """Decodes records of one schema into Arrow."""

    def read(self, records: Any, start: int, prefix: bytes, /) -> tuple[Any, list[int]] | None:
        """Decode records, without the interpreter.

        Args:
            records: A list of bytes and None, or a ``pyarrow`` array of binary or large binary.
            start: Length of the records' framing in bytes.
            prefix: The first bytes of a record that is taken.

        Returns:
            A ``pyarrow.Array`` with a row per record, and the rows that are not taken, which are null; None if the
            records are neither list nor array.
        """


class ColumnEncoder(Protocol):
    """Encodes Arrow arrays by one schema."""

    def encode(self, schema: Any, array: Any, /) -> tuple[Any, list[int]]:
        """Encode an array, exported as two capsules."""


class _Library(Protocol):
    def keep(self, bytes_: int, /) -> None:
        """Keep at most so many bytes of freed columns for the next ones; 72 MiB by default."""

    def ColumnEncoder(  # noqa: N802, PLR0917
        self,
        schema: Any,
        prefix: bytes,
        ordered: bool,
        logical: Mapping[str, Any],
        into_arrow: Callable[..., Any],
        type_: Any,
        /,
    ) -> ColumnEncoder: ...

    def ColumnDecoder(  # noqa: N802, PLR0917
        self, writer: Any, reader: Any, type_: Any, type_as_read: Any, most: int, into_arrow: Callable[..., Any], /
    ) -> ColumnDecoder: ...

    def Decoder(  # noqa: N802, PLR0917
        self,
        writer: Any,
        reader: Any,
        logical: Mapping[str, Any],
        otherwise: Callable[..., Any],
        longest: int | None,
        parts: tuple[int, int] | None,
        /,
    ) -> _Decoder: ...

    def Encoder(  # noqa: N802
        self,
        schema: Any,
        logical: Mapping[str, Any],
        otherwise: Callable[[Any], bytes],
        prefix: bytes,
        ordered: bool,
        /,
    ) -> _Encoder: ...


class Native:
    """Compiles schemas.

    Args:
        library: The module ``serde_chain._native``.
    """

    def __init__(self, library: _Library) -> None:
        self._library = library

    def decoder(
        self,
        writer: Any,
        reader: Any,
        otherwise: Callable[..., Any],
        longest: int | None = None,
        parts: tuple[int, int] | None = None,
    ) -> Callable[..., Any]:
        """A function of a framed record and the start of its body (0 by default).

        Args:
            writer: The schema of the records in the form with which fastavro reads.
            reader: The schema to read into, likewise; None if it is the same.
            otherwise: The function for records that are not taken.
            longest: Maximum length in bytes; longer records are not taken. None for any.
            parts: Maximum number of parts of a record, by itself and for each of its bytes; None for schemas that
                bound them, which are not recursive.

        Returns:
            ``otherwise`` itself if the schema is not taken.
        """
        try:
            return self._library.Decoder(writer, reader, logical_readers(), otherwise, longest, parts).decode
        except ValueError:
            return otherwise

    def encoder(
        self, schema: Any, otherwise: Callable[[Any], bytes], prefix: bytes, *, ordered: bool
    ) -> Callable[[Any], bytes]:
        """A function of a value.

        Args:
            schema: The schema in the form with which fastavro writes.
            otherwise: The function for values that are not taken.
            prefix: The bytes in front of a record.
            ordered: Whether maps must be sorted; schemas with maps are not taken then.

        Returns:
            ``otherwise`` itself if the schema is not taken.
        """
        writers = require("fastavro.write", "avro").LOGICAL_WRITERS
        try:
            return self._library.Encoder(schema, writers, otherwise, prefix, ordered).encode
        except ValueError:
            return otherwise

    def column_decoder(self, writer: Any, reader: Any, type_: Any, type_as_read: Any) -> ColumnDecoder:
        """Compile a pair of schemas, as rewritten for Arrow.

        Args:
            writer: The writer's schema.
            reader: The reader's schema; None without resolution.
            type_: The ``pyarrow.DataType`` of the column.
            type_as_read: The same with timestamps in the schema's unit.

        Raises:
            ValueError: The schemas are not taken.
        """
        return self._library.ColumnDecoder(writer, reader, type_, type_as_read, MOST_FIELDS, _into_arrow())

    def column_encoder(self, schema: Any, prefix: bytes, *, ordered: bool) -> ColumnEncoder:
        """Compile a schema for arrays; see :meth:`encoder` for the arguments.

        Raises:
            ValueError: The schema is not taken.
        """
        binary, writers = require("pyarrow", "arrow").binary(), require("fastavro.write", "avro").LOGICAL_WRITERS
        return self._library.ColumnEncoder(schema, prefix, ordered, writers, _into_arrow(), binary)


def _into_arrow() -> Callable[..., Any]:
    # Documented for experts; its public counterpart compiles the type anew for each array.
    made: Callable[..., Any] = require("pyarrow", "arrow").Array._import_from_c  # noqa: SLF001
    return made


def native(config: Mapping[str, object]) -> Native | None:
    """The compiled part, as configured; None if it is not used.

    Raises:
        ConfigError: The environment variable that hides it has another value.
        MissingDependencyError: It is required, and not installed.
    """
    wanted = NATIVE.read(config)
    if wanted == "off":
        return None
    found = library()
    if found is None and wanted == "on":
        raise MissingDependencyError(f"{NATIVE.name} = on, but serde-chain is {absence()}", hint=remedy())
    return None if found is None else Native(found)


def absence() -> str:
    """Why :func:`library` finds nothing: how serde-chain is built or run."""
    return find()[1]


def remedy() -> str:
    """What to do about :func:`absence`."""
    if _is_hidden():
        return f"Remove the environment variable {_SWITCH}"
    return "Install a wheel for this platform, or install from source where cargo runs (Rust 1.88 or newer)"


def _is_hidden() -> bool:
    value = os.environ.get(_SWITCH, "auto")
    if value not in {"auto", "on", "off"}:
        raise ConfigError(
            f"the environment variable {_SWITCH} is {value!r}, expected off, on or auto",
            hint="Set it to off to run without the compiled part; or remove it",
        )
    return value == "off"


def library() -> _Library | None:
    """The compiled part, with the interface used here; None without it."""
    return find()[0]


@cache
def find() -> tuple[_Library | None, str]:
    """Look for the compiled part, once.

    Returns:
        The compiled part, or None; and why there is none.

    Raises:
        ConfigError: The environment variable that hides it has another value.
    """
    if _is_hidden():
        return None, f"run with {_SWITCH} = off"
    try:
        module = import_module(_MODULE)
    except ModuleNotFoundError:
        return None, "built without its compiled part"
    except ImportError as error:
        _log.warning("%s cannot be loaded, so fastavro reads and writes Avro: %s", _MODULE, error)
        return None, f"unable to load its compiled part ({error})"
    if module.INTERFACE != _INTERFACE:  # in place, of other sources
        return None, "beside a compiled part of other sources (make build)"
    return cast(_Library, module), ""
