"""Fields in values: which ones a configuration names, and values with other contents in some fields.

Values are dictionaries, Protobuf messages and dataclasses, with lists between them.
"""

from __future__ import annotations

import copy
import dataclasses
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import product
from typing import Any, Final, NamedTuple

from payload_stores.options import nearest
from serde_chain.base import ANYTHING, FieldType
from serde_chain.schemas.part_budget import MOST_FIELDS
from serde_chain.wire.large_fields import MAX_STEPS, Path

MISSING: Final = object()

_STEP: Final = re.compile(r"([^.\[\]]+)((?:\[\])*)(\.|\Z)")
_UNNAMEABLE: Final = re.compile(r"[.\[\]\ud800-\udfff]")
_LONGEST_NAME: Final = 1000
_IMMUTABLE: Final = frozenset({str, bytes, int, float, bool, type(None)})
_MOST_LEVELS: Final = 64
_REMEMBERED: Final = 4096


class _Step(NamedTuple):
    """One name of a pattern.

    Attributes:
        name: A name or glob.
        is_glob: Which of the two.
        arrays: Levels of arrays below it.
    """

    name: str
    is_glob: bool
    arrays: int


class Pattern:
    """Names fields: ``cutout*``, ``document.body``, ``diaSources[].stamp``.

    Args:
        text: The pattern.

    Attributes:
        name: The name of a single field at the top of a value; None for all other patterns.

    Raises:
        ValueError: It is malformed.

    Example:
        >>> find({"cutoutScience": b"abc", "id": 7}, [Pattern("cutout*")])
        {('cutoutScience',): b'abc'}
    """

    def __init__(self, text: str) -> None:
        self.text = text
        steps: list[_Step] = []
        at = 0
        while match := _STEP.match(text, at):
            steps.append(_Step(match[1], any(mark in match[1] for mark in "*?"), len(match[2]) // 2))
            at = match.end()
            if not match[3]:
                break
        else:
            raise ValueError(f"the path {text!r} is malformed: write names between dots, and [] after arrays")
        if sum(1 + step.arrays for step in steps) > MAX_STEPS:
            raise ValueError(f"the path {text[:100]!r} has more than {MAX_STEPS} names and positions")
        self.steps = tuple(steps)
        first = steps[0]
        self.name = first.name if len(steps) == 1 and not first.is_glob and not first.arrays else None

    def find(self, value: Any) -> Iterator[tuple[Path, Any]]:
        """The fields of a value that it names, with their contents."""
        return self._find(value, 0, ())

    def _find(self, node: Any, at: int, path: Path) -> Iterator[tuple[Path, Any]]:
        if at == len(self.steps):
            yield path, node
            return
        name, is_glob, arrays = self.steps[at]
        fields = _fields(_inner(node))
        if fields is None:
            return
        if not is_glob:
            found = [(name, fields[name])] if name in fields else []
        else:
            found = [(key, child) for key, child in fields.items() if isinstance(key, str) and _matches(key, name)]
        for key, child in found:
            yield from self._into(child, arrays, at + 1, (*path, key))

    def _into(self, node: Any, arrays: int, at: int, path: Path) -> Iterator[tuple[Path, Any]]:
        if not arrays:
            yield from self._find(node, at, path)
        elif _is_list(node):
            for position, item in enumerate(node):
                yield from self._into(item, arrays - 1, at, (*path, position))

    def types(self, root: FieldType) -> list[tuple[Path, FieldType]]:
        """The fields of a type that it names; positions in arrays are -1."""
        level: list[tuple[Path, FieldType]] = [((), root)]
        for name, is_glob, arrays in self.steps:
            below: list[tuple[Path, FieldType]] = []
            for path, kind in level:
                fields = kind.fields()
                names = [key for key in fields if _matches(key, name)] if is_glob else [name] if name in fields else []
                if kind.is_open and (is_glob or not names):
                    names.append(name)
                for key in names:
                    child: FieldType | None = fields.get(key, ANYTHING)
                    for _ in range(arrays):
                        child = child.items() if child is not None and child.items is not None else None
                    if child is not None:
                        below.append(((*path, key, *(-1,) * arrays), child))
            level = below
        return level

    def names(self, path: Path) -> bool:
        """Whether it names a path of :func:`leaves`.

        Example:
            >>> Pattern("diaSources[].stamp*").names(("diaSources", -1, "stampData"))
            True
        """
        at = 0
        for name, is_glob, arrays in self.steps:
            own, *positions = path[at : at + 1 + arrays] or ("",)
            if not isinstance(own, str) or not (_matches(own, name) if is_glob else own == name):
                return False
            if len(positions) < arrays or not all(isinstance(position, int) for position in positions):
                return False
            at += 1 + arrays
        return at == len(path)

    def exact(self, root: FieldType) -> list[Pattern]:
        """The same fields of a type, by patterns without globs but for open records."""
        return [
            Pattern(template(path))
            for path, kind in self.types(root)
            if (kind.holds_bytes or kind.holds_text) and not _has_unnameable(path)
        ]

    def problem(self, root: FieldType) -> tuple[str, str | None] | None:
        """Why it names no field that can be moved, and the nearest one that can; None if it does.

        Example:
            >>> stamps = FieldType(items=lambda: FieldType(holds_bytes=True))
            >>> Pattern("stamps").problem(FieldType(fields=lambda: {"stamps": stamps}))
            ('stamps is an array, neither bytes nor string', 'stamps[]')
        """
        found = self.types(root)
        if any(kind.holds_bytes or kind.holds_text for _, kind in found):
            return None
        if found:
            path, kind = found[0]
            what = "an array, " if kind.items is not None else "a record, " if kind.fields() else ""
            below = next((template((*path, *inner)) for inner, _ in leaves(kind)), None)
            return f"{self.text} is {what}neither bytes nor string", below
        known = [template(path) for path, _ in leaves(root)]
        return f"{self.text} is not in the schema", nearest(self.text, known, cutoff=0.3)


def _matches(name: str, pattern: str) -> bool:
    return 0 < len(name) <= _LONGEST_NAME and _fits(name, pattern)


@lru_cache(_REMEMBERED)
def _fits(name: str, pattern: str) -> bool:
    # Names that a path cannot contain stay in the record.
    return fnmatchcase(name, pattern) and not _UNNAMEABLE.search(name)


def _has_unnameable(path: Path) -> bool:
    return any(isinstance(step, str) and _UNNAMEABLE.search(step) for step in path)


def template(path: Path) -> str:
    """A path as a pattern: positions become ``[]``.

    Example:
        >>> template(("diaSources", -1, "stamp"))
        'diaSources[].stamp'
    """
    return "".join("[]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def leaves(root: FieldType) -> Iterator[tuple[Path, FieldType]]:
    """The fields of bytes and strings in a type; a recursive type is entered once. Positions in arrays are -1."""
    waiting: list[tuple[Path, FieldType, tuple[FieldType, ...]]] = [((), root, ())]
    for _ in range(MOST_FIELDS):
        if not waiting:
            return
        path, kind, above = waiting.pop()
        if path and (kind.holds_bytes or kind.holds_text):
            yield path, kind
        if kind in above or len(path) >= _MOST_LEVELS:
            continue
        above = (*above, kind)
        if kind.items is not None:
            waiting.append(((*path, -1), kind.items(), above))
        fields = kind.fields()
        waiting += [((*path, name), fields[name], above) for name in reversed(list(fields))]


def find(value: Any, patterns: Iterable[Pattern]) -> dict[Path, Any]:
    """The fields of a value that patterns name, each once, with their contents."""
    found: dict[Path, Any] = {}
    for pattern in patterns:
        if pattern.name is not None and type(value) is dict:  # most patterns, at a tenth of the time
            if (content := value.get(pattern.name)) is not None:
                found[(pattern.name,)] = content
        else:
            found.update(pattern.find(value))
    return found


def child_type(kind: FieldType | None, step: str | int) -> tuple[str | int, FieldType | None]:
    """The type below a step of a path, and the step by the name in effect; None if there is none."""
    if kind is None:
        return step, None
    if isinstance(step, int):
        return step, None if kind.items is None else kind.items()
    fields = kind.fields()
    if step not in fields:
        step = kind.renamed().get(step, step)
    return step, fields.get(step, ANYTHING if kind.is_open else None)


def type_at(root: FieldType, path: Path) -> tuple[Path, FieldType | None]:
    """A path by the names in effect, and the type there; None if the type leaves it out."""
    kind: FieldType | None = root
    steps: list[str | int] = []
    for step in path:
        own, kind = child_type(kind, step)
        steps.append(own)
    return tuple(steps), kind


def spellings(root: FieldType, path: Path) -> Iterator[Path]:
    """A path by all the names that its fields have and had, first by those in effect: what :func:`type_at` undoes.

    Args:
        root: The type of the values.
        path: A path of :func:`leaves`.
    """
    kind: FieldType | None = root
    names: list[list[str | int]] = []
    for step in path:
        former = {} if kind is None or isinstance(step, int) else kind.renamed()
        names.append(
            [step, *(other for other, own in former.items() if own == step and child_type(kind, other)[0] == own)]
        )
        _, kind = child_type(kind, step)
    return product(*names)


def look_up(value: Any, path: Path) -> Any:
    """The content of a field; :data:`MISSING` if it is not there."""
    node = value
    for step in path:
        if isinstance(step, int):
            if not _is_list(node) or step >= len(node):
                return MISSING
            node = node[step]
        else:
            node = _field(_inner(node), step)
            if node is MISSING:
                return MISSING
    return node


def snapshot(value: Any) -> Any:  # noqa: PLR0911  one for each form of a value
    """A value that its caller's later changes do not reach; files and views are shared.

    Example:
        >>> value = {"id": 7, "fluxes": [1.0]}
        >>> kept = snapshot(value)
        >>> value["fluxes"].append(2.0)
        >>> kept
        {'id': 7, 'fluxes': [1.0]}
    """
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, Mapping):
        return {name: content if type(content) in _IMMUTABLE else snapshot(content) for name, content in value.items()}
    if type(value) is tuple:  # possibly with the name of a union's branch
        return tuple(map(snapshot, value))
    if _is_message(value):
        return _copied(value)
    if _is_list(value):
        return [item if type(item) in _IMMUTABLE else snapshot(item) for item in value]
    if _is_dataclass(value):
        return _replaced(value, {name: snapshot(content) for name, content in (_fields(value) or {}).items()})
    return value


def with_contents(value: Any, contents: Mapping[Path, Any]) -> Any:
    """A value with other contents in some fields; the rest is shared, messages are copied.

    Args:
        value: The value; not changed.
        contents: The contents by path; each path is there.

    Example:
        >>> value = {"id": 7, "cutouts": [b"a", b"b"]}
        >>> with_contents(value, {("cutouts", 1): b"c"}), value["cutouts"]
        ({'id': 7, 'cutouts': [b'a', b'c']}, [b'a', b'b'])
    """
    if () in contents:
        return contents[()]
    below: dict[str | int, dict[Path, Any]] = {}
    for path, content in contents.items():
        below.setdefault(path[0], {})[path[1:]] = content
    if _is_tagged(value):
        return value[0], with_contents(value[1], contents)
    if _is_list(value):
        return [with_contents(item, below[at]) if at in below else item for at, item in enumerate(value)]
    if _is_message(value):
        return _changed_message(value, contents)
    fields = _fields(value) or {}
    changed = {name: with_contents(fields[name], inner) for name, inner in below.items() if isinstance(name, str)}
    if isinstance(value, Mapping):
        return {**value, **changed}
    return _replaced(value, changed)


def _replaced(value: Any, changed: Mapping[str, Any]) -> Any:
    """A dataclass with other fields. Not ``dataclasses.replace``: a ``__post_init__`` would see references."""
    made = copy.copy(value)
    for name, content in changed.items():
        object.__setattr__(made, name, content)  # frozen ones too
    return made


def _copied(value: Any) -> Any:
    message = type(value)()
    message.CopyFrom(value)
    return message


def _changed_message(value: Any, contents: Mapping[Path, Any]) -> Any:
    message = _copied(value)
    for path, content in contents.items():
        node = message
        for step in path[:-1]:
            node = node[step] if isinstance(step, int) else getattr(node, step)
        last = path[-1]
        if isinstance(last, int):
            node[last] = content
        else:
            setattr(node, last, content)
    return message


def _is_tagged(node: Any) -> bool:
    """Whether a value names the branch of a union that it belongs to, as fastavro accepts it."""
    return type(node) is tuple and len(node) == 2 and isinstance(node[0], str)


def _inner(node: Any) -> Any:
    return node[1] if _is_tagged(node) else node


def _is_list(node: Any) -> bool:
    if isinstance(node, (str, bytes, bytearray, memoryview)) or _is_tagged(node):
        return False
    return isinstance(node, (list, Sequence))


def _fields(node: Any) -> Mapping[Any, Any] | None:
    """The fields of a value; None if it has none. Absent fields of a message are left out."""
    if isinstance(node, Mapping):
        return node
    if _is_message(node):
        return {field.name: content for field, content in node.ListFields()}
    if _is_dataclass(node):
        return {field.name: getattr(node, field.name) for field in dataclasses.fields(node)}
    return None


def _field(node: Any, name: str) -> Any:
    """The content of one field; :data:`MISSING` without it. Other fields of a message are not copied."""
    if _is_message(node):
        field = node.DESCRIPTOR.fields_by_name.get(name)
        if field is None or (field.has_presence and not node.HasField(name)):
            return MISSING
        return getattr(node, name)
    return (_fields(node) or {}).get(name, MISSING)


def _is_message(node: Any) -> bool:
    library: Any = sys.modules.get("google.protobuf.message")
    return library is not None and isinstance(node, library.Message)


def _is_dataclass(node: Any) -> bool:
    return dataclasses.is_dataclass(node) and not isinstance(node, type)
