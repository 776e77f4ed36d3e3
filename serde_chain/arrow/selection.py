"""Some columns of a batch: names of fields, or dotted paths through structs and lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from payload_stores.options import nearest
from payload_stores.plugins import require
from serde_chain.arrow.columns import with_children, with_items
from serde_chain.errors import ConfigError

# The fields below a field by their names; none for a field that is named as a whole.
Tree: TypeAlias = "dict[str, Tree]"


class Columns:
    """The columns of a result.

    Args:
        names: Names of fields, or dotted paths (``diaSource.psfFlux``).

    Attributes:
        names: The names.
        tree: The same as a tree.

    Raises:
        ConfigError: They are no names, or there are none.

    Example:
        >>> Columns(["id", "source.flux"]).has(("source", "flux")), Columns(["id"]).has(("flux",))
        (True, False)
    """

    def __init__(self, names: Sequence[str]) -> None:
        if isinstance(names, str) or not names or not all(names):
            raise ConfigError(f"columns are {names!r}", hint='Give a list of names, such as ["id", "source.flux"]')
        self.names = tuple(names)
        self.tree: Tree = {}
        for name in names:
            tree = self.tree
            *above, last = name.split(".")
            for step in above:
                if tree.get(step) == {}:
                    break  # named as a whole, which includes this one
                tree = tree.setdefault(step, {})
            else:
                tree[last] = {}

    def has(self, path: Iterable[str | int]) -> bool:
        """Whether a field is in one of the columns; positions in lists do not count."""
        tree = self.tree
        for step in path:
            if isinstance(step, int):
                continue
            if step not in tree:
                return False
            tree = tree[step]
            if not tree:
                return True
        return False

    def of(self, column: Any) -> Any:
        """A typed column with only these fields.

        Args:
            column: ``pyarrow`` array of structs.

        Raises:
            ConfigError: It has no fields, or lacks one of them.
        """
        return _selected(column, self.tree, "")


def _selected(array: Any, tree: Mapping[str, Tree], above: str) -> Any:
    types: Any = require("pyarrow.types", "arrow")
    kind = array.type
    if not tree:
        return array
    if types.is_list(kind) or types.is_large_list(kind):
        return with_items(array, _selected(array.values, tree, above))
    if not types.is_struct(kind):
        what = (
            f"the column {above.removesuffix('.')} has no fields: it is"
            if above
            else "the values have no fields: they are"
        )
        raise ConfigError(f"columns were given, and {what} {kind}", hint="Name columns of records")
    known = [field.name for field in kind]
    children: dict[str, Any] = {}
    for name, below in tree.items():
        if name not in known:
            near = nearest(name, known)
            raise ConfigError(
                f"there is no column {above}{name}",
                hint=f"Did you mean {above}{near}?" if near else f"Known: {', '.join(known[:20])}",
            )
        children[name] = _selected(array.field(name), below, f"{above}{name}.")
    return with_children(array, children)
