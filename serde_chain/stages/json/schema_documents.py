"""References between JSON Schemas (``$ref``): all are resolved once, before the first value is validated.

A document is looked for in this order: within the schema, among the schemas that a registry says it refers to, beside
its file, if the reference is relative, and at the addresses that ``json.schema.addresses`` names. Nothing else is
opened: neither other files nor other addresses, whatever a schema says. So validation itself needs no I/O, and a
reference that leads nowhere is reported when the schema is read, not by a record.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from payload_stores.plugins import require
from serde_chain.schemas.nesting import check_depth
from serde_chain.schemas.schema_references import MOST_REFERENCES
from serde_chain.stages.json.addresses import Addresses, MissingPartError, UnresolvedError

_MOST_NESTED: Final = 400
_KEYWORDS: Final = ("$ref", "$dynamicRef", "$recursiveRef")
# Keywords that apply schemas to the same value: a cycle of these never ends.
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLE: Final = ("not", "if", "then", "else")


class Documents:
    """The documents that a schema's references may lead to, each with its address.

    Args:
        address: The schema's own; a base for relative references.
        named: Documents by the names that a registry gives them, or by their addresses.
        file: The schema's file; documents beside it are read if they are referred to.
        addresses: Fetches documents from named addresses.
        check: Raises ValueError for a document that is not a JSON Schema.

    Attributes:
        found: The documents so far, by their addresses.
    """

    def __init__(
        self,
        address: str,
        *,
        named: Mapping[str, Any] | None = None,
        file: Path | None = None,
        addresses: Addresses | None = None,
        check: Callable[[Any], None],
    ) -> None:
        self.found: dict[str, Any] = {}
        self._check = check
        self._address = address
        self._file = file
        self._addresses = addresses or Addresses(())
        self._named: dict[str, Any] = {}
        for name, document in (named or {}).items():
            for each in (name, urljoin(address, name), _own_address(document)):
                self._named.setdefault(each, document)
        self._named.pop("", None)

    def has(self, address: str) -> bool:
        """Whether the document at an address is known without opening anything."""
        return address in self.found or address in self._named

    def at(self, address: str) -> Any:
        """The document at an address.

        Raises:
            UnresolvedError: There is none, or it may not be opened.
        """
        if address not in self.found:
            if len(self.found) == MOST_REFERENCES:
                raise UnresolvedError(f"the schema refers to more than {MOST_REFERENCES} documents")
            document = self._document(address)
            try:
                check_depth(document, _MOST_NESTED)
                # First: the search for references takes the form of a schema for granted.
                self._check(document)
            except ValueError as error:
                raise UnresolvedError(f"{address[:200]}: {error}") from None
            self.found[address] = document
        return self.found[address]

    def _document(self, address: str) -> Any:
        if address in self._named:
            return self._named[address]
        place = None if self._file is None else self._beside(address)
        if place is not None and place.is_file():
            return read_file(place)
        if self._addresses.include(address):
            return self._addresses.fetch(address)
        looked = "" if place is None else f"; it was looked for at {place}"
        raise UnresolvedError(f"the document {address[:200]!r} is not known, and its address is not named{looked}")

    def _beside(self, address: str) -> Path | None:
        """The file of an address: as far from the schema's file as the address is from the schema's address."""
        own, other = urlsplit(self._address), urlsplit(address)
        if self._file is None or own[:2] != other[:2] or not other.path:
            return None
        steps = posixpath.relpath(unquote(other.path), posixpath.dirname(unquote(own.path)) or "/")
        return Path(posixpath.normpath(self._file.parent.absolute() / steps))


def read_file(path: Path) -> Any:
    """The document in a file; a byte order mark is skipped.

    Raises:
        UnresolvedError: It is unreadable, or not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UnresolvedError(f"{path} cannot be read: {error}") from error


def _own_address(document: Any) -> str:
    """The address that a document gives itself; empty without one."""
    if not isinstance(document, Mapping):
        return ""
    address = document.get("$id", document.get("id"))
    return urldefrag(address).url if isinstance(address, str) else ""


def resolved(documents: Documents, address: str, *, all_of_them: bool = True) -> Any:
    """Follow all references of a schema.

    Args:
        documents: The documents; all that are needed are added to ``found``.
        address: The schema's address among them.
        all_of_them: Whether a reference that leads nowhere is an error; otherwise it is passed over.

    Returns:
        A ``referencing.Registry`` with all of them, which opens nothing.

    Raises:
        UnresolvedError: A reference leads nowhere.
    """
    referencing: Any = require("referencing", "json")
    specifications: Any = require("jsonschema_specifications", "json").REGISTRY
    root = documents.at(address)
    registry = _registry(specifications, documents)
    waiting: list[tuple[Any, Any, Any]] = [(root, registry.resolver(address), _specification(root))]
    seen: set[int] = set()
    same_value: dict[int, list[int]] = {}
    while waiting:
        contents, resolver, specification = waiting.pop()
        if not isinstance(contents, Mapping) or id(contents) in seen:
            continue
        seen.add(id(contents))
        targets = []
        for reference in (contents[keyword] for keyword in _KEYWORDS if isinstance(contents.get(keyword), str)):
            if reference.startswith("file:") and not documents.has(urldefrag(reference).url):
                raise UnresolvedError(
                    f"the reference {reference[:200]!r} leads nowhere: files are opened by relative references only"
                )
            try:
                found = resolver.lookup(reference)
            except (referencing.exceptions.Unresolvable, ValueError) as error:
                if all_of_them:
                    raise _unresolved(reference, error) from None
                continue
            if not isinstance(found.contents, (Mapping, bool)):
                raise UnresolvedError(f"the reference {reference[:200]!r} leads to what is not a JSON Schema")
            targets.append(found.contents)
            waiting.append((found.contents, found.resolver, _specification(found.contents, specification)))
        same_value[id(contents)] = [id(part) for part in (*targets, *_applied(contents)) if isinstance(part, Mapping)]
        try:
            waiting += [
                (inner.contents, resolver.in_subresource(inner), _specification(inner.contents, specification))
                for inner in specification.create_resource(contents).subresources()
            ]
        except (AttributeError, TypeError, ValueError):  # outside of the keywords that the check looks at
            raise UnresolvedError("a reference leads to what is not a JSON Schema") from None
    _check_ends(same_value)
    return specifications.combine(_registry(specifications, documents, retrieves=False))


def _registry(specifications: Any, documents: Documents, *, retrieves: bool = True) -> Any:
    referencing: Any = require("referencing", "json")
    known = [(at, _resource(document)) for at, document in documents.found.items()]
    if not retrieves:
        return referencing.Registry().with_resources(known).crawl()

    def retrieve(address: str) -> Any:
        return _resource(documents.at(address))

    return specifications.combine(referencing.Registry(retrieve=retrieve).with_resources(known))


def _resource(document: Any) -> Any:
    return _specification(document).create_resource(document)


def _specification(contents: Any, default: Any = None) -> Any:
    """The version of JSON Schema that a document says; the newest for none, or an unknown one, as when validating."""
    versions: Any = require("referencing.jsonschema", "json")
    dialect = contents.get("$schema") if isinstance(contents, Mapping) else None
    default = default or versions.DRAFT202012
    return versions.specification_with(dialect, default=default) if isinstance(dialect, str) else default


def _unresolved(reference: str, error: Exception) -> UnresolvedError:
    """The error of a reference, with the cause that :class:`Documents` has found."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, UnresolvedError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return MissingPartError(f"the reference {reference[:200]!r} leads nowhere: the document has no such part")
    return type(cause)(f"the reference {reference[:200]!r} leads nowhere: {cause}")


def _applied(contents: Mapping[str, Any]) -> Iterator[Any]:
    for name in _LISTS:
        parts = contents.get(name)
        yield from parts if isinstance(parts, list) else ()
    yield from (contents[name] for name in _SINGLE if name in contents)


def _check_ends(edges: Mapping[int, list[int]]) -> None:
    """Refuse schemas that refer to themselves for the same value: no value could be validated."""
    finished: set[int] = set()
    for start in edges:
        path: dict[int, Iterator[int]] = {} if start in finished else {start: iter(edges[start])}
        while path:
            at = next(reversed(path))
            following = next(path[at], None)
            if following is None:
                del path[at]
                finished.add(at)
            elif following in path:
                raise UnresolvedError("a reference leads back to itself, for the same value")
            elif following not in finished:
                path[following] = iter(edges.get(following, ()))
