"""Public names of a package that are loaded on first use, so that each import costs only what it uses."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(
    package: str, modules: Mapping[str, str], needs: tuple[str, str] | None = None
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """A package's ``__all__``, ``__getattr__`` and ``__dir__``.

    Not for type checkers: ``__getattr__`` would let them accept any misspelt name. They read the package's imports
    under ``TYPE_CHECKING``, which a test compares with the table.

    Args:
        package: The package.
        modules: The table: public names, separated by spaces, by module, as in an import.
        needs: A distribution's module that all names require, and the extra that installs it.

    Example:
        >>> names, load, _ = lazy_names("payload_stores", {".registry": "open_store read_config"})
        >>> names, load("open_store").__module__
        (['open_store', 'read_config'], 'payload_stores.registry')
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}
    public = sorted(module_of)

    def load(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if needs is not None:
            from payload_stores.plugins import require

            require(*needs)
        found: object = getattr(import_module(module_of[name], package), name)
        vars(sys.modules[package])[name] = found  # the next use is no call
        return found

    return public, load, lambda: public
