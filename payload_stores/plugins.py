"""Find objects named in a configuration: by short name, Java class name, dotted path, or the object itself.

The same rules apply to stages and stores. Only the requested object is imported.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from payload_stores.errors import ConfigError, MissingDependencyError
from payload_stores.options import Option, nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_NEAR_ALIAS: Final = 0.9
_NAMESPACES: Final = frozenset({"google"})


class Catalogue:
    """The known names of one kind of plug-in.

    Attributes:
        kind: Kind of plug-in, for messages: ``stage``, ``payload store``.
        group: Entry point group for third-party plug-ins.
        builtins: Short name to ``module:attribute``.
        aliases: Other names (Java class names) to short names.
    """

    def __init__(
        self, *, kind: str, group: str, builtins: Mapping[str, str], aliases: Mapping[str, str] | None = None
    ) -> None:
        self.kind, self.group, self.builtins, self.aliases = kind, group, builtins, aliases or {}

    def find(self, name: str) -> object:
        """Import the object behind a name.

        Args:
            name: Short name, alias, or dotted path (``package.module.Name`` or ``package.module:Name``).

        Returns:
            The object.

        Raises:
            ConfigError: The name is unknown, or ambiguous.
        """
        name = self.aliases.get(name, name)
        registered = self._registered(name)
        if name in self.builtins:
            if registered:
                raise ConfigError(
                    f"the {self.kind} {name!r} that {registered[0].value} registers would shadow the built-in one",
                    hint="Register it under another name",
                )
            return import_object(self.builtins[name])
        if not registered:
            if "." in name or ":" in name:
                return self._import(name)
            _entry_points.cache_clear()  # a notebook may have installed the package meanwhile
            importlib.invalidate_caches()
            registered = self._registered(name)
        if not registered:
            raise self._unknown(name)
        if len({point.value for point in registered}) > 1:
            raise ConfigError(
                f"several packages register the {self.kind} {name!r}: {', '.join(point.value for point in registered)}",
                hint="Name the class by its dotted path instead",
            )
        return self._load(registered[0])

    def _registered(self, name: str) -> list[EntryPoint]:
        return [point for point in _entry_points(self.group, tuple(sys.path)) if point.name == name]

    def _load(self, point: EntryPoint) -> object:
        package = "a package" if point.dist is None else f"the package {point.dist.name}"
        where = f"the {self.kind} {point.name!r}, registered by {package} as {point.value}"
        if not point.attr:
            raise ConfigError(f"{where}, is a module", hint=f"Register an object of it: {point.value}:NAME")
        try:
            return point.load()
        except Exception as error:  # a third party's module may raise anything
            raise ConfigError(
                f"{where}, cannot be imported: {error}", hint="Install what it requires, or another version of it"
            ) from error

    def _import(self, path: str) -> object:
        try:
            return import_object(path, self.kind)
        except ConfigError as error:
            # A class name of Java's looks like a dotted path.
            if near := nearest(path, self.aliases, cutoff=_NEAR_ALIAS):
                error.hint = f"Did you mean {near}?"
            raise

    def names(self) -> Iterable[str]:
        """All short names, built-in and registered."""
        return [*self.builtins, *(point.name for point in _entry_points(self.group, tuple(sys.path)))]

    def nearest(self, name: str) -> str | None:
        """The known name that a misspelt one is closest to; None if none is close."""
        names = sorted(set(self.names()))
        return nearest(name, names) or nearest(name.lower(), names) or nearest(name, self.aliases, cutoff=_NEAR_ALIAS)

    def _unknown(self, name: str) -> ConfigError:
        names, near = sorted(set(self.names())), self.nearest(name)
        known = f"Known are {', '.join(names)}, and dotted paths"
        return ConfigError(f"there is no {self.kind} {name!r}", hint=f"Did you mean {near}? {known}" if near else known)


class PluginName:
    """A plug-in named in a configuration.

    Attributes:
        target: Short name, Java class name, dotted path, class or instance.
        options: Options of this plug-in only; they override those of the configuration.
        key: The configuration key that names it, for messages; None if it is named elsewhere.
        kind: Expected kind, for messages.
        example: A name of this kind.
    """

    kind: ClassVar[str] = "plug-in"
    example: ClassVar[str] = "name"

    def __init__(self, target: object, options: Mapping[str, object], key: str | None = None) -> None:
        self.target, self.options, self.key = target, options, key

    @classmethod
    def of(cls, item: object, key: str | None = None) -> Self:
        """Read an item of the configuration; a mapping names the plug-in under ``class``.

        Args:
            item: The item.
            key: The configuration key of the item.

        Raises:
            ConfigError: A mapping without ``class``.
        """
        if not isinstance(item, Mapping):
            return cls(item.strip() if isinstance(item, str) else item, {}, key)
        if "class" not in item:
            # Keys only: a value may be an encryption key.
            names = [str(name) for name in item]
            near = nearest("class", names)
            raise ConfigError(
                f"a {cls.kind} with the keys {', '.join(names) or '(none)'} names no class",
                hint=f"Did you mean class, not {near}?" if near else f'Write {{"class": "{cls.example}", …}}',
                key=key,
            )
        return cls(item["class"], {name: value for name, value in item.items() if name != "class"}, key)

    @property
    def label(self) -> str:
        """The name of the plug-in, for messages."""
        if isinstance(self.target, str):
            return self.target
        return str(getattr(self.target, "__name__", type(self.target).__name__))

    def check(self, options: Iterable[Option[Any]]) -> None:
        """Refuse options in the item that the plug-in does not know.

        Args:
            options: The plug-in's options.

        Raises:
            ConfigError: An option is unknown; the error names the nearest known one.
        """
        options = tuple(options)
        for key in self.options:
            if not any(option.matches(key) for option in options):
                names = [option.name for option in options]
                near = next((name for name in names if name.endswith(f".{key}")), None) or nearest(key, names)
                raise ConfigError(
                    f"{self.label} has no option {key!r}", hint=f"Did you mean {near}?" if near else None, key=key
                )


def declared(options: object, label: str) -> tuple[Option[Any], ...]:
    """The options that a plug-in declares.

    Args:
        options: Its attribute ``options``.
        label: The name of the plug-in, for messages.

    Raises:
        ConfigError: Not a tuple of options.
    """
    if isinstance(options, (tuple, list)) and all(isinstance(option, Option) for option in options):
        return tuple(options)
    raise ConfigError(
        f"{label}.options is not a tuple of options (payload_stores.options.Option)",
        hint="A tuple of one option has a comma: options = (OPTION,)",
    )


def make(cls: Callable[..., Any], label: str, arguments: Mapping[str, object], *, hint: str) -> Any:
    """Create a plug-in.

    Args:
        cls: Its class.
        label: The name of the plug-in, for messages.
        arguments: Keyword arguments.
        hint: Advice if the class does not accept these arguments.

    Raises:
        ConfigError: The class lacks a required method, or does not accept the arguments.
    """
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
        raise ConfigError(f"{label} does not implement {missing}", hint="Define it in the class")
    try:
        return cls(**arguments)
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        how = "with these" if arguments else "without"
        raise ConfigError(f"{label} cannot be made {how} arguments: {error}", hint=hint) from error


def configure(plugin: Any, label: str, *arguments: object, signature: str) -> None:
    """Call a plug-in's ``configure``.

    Args:
        plugin: The plug-in.
        label: Its name, for messages.
        *arguments: The arguments.
        signature: The expected signature, for messages.

    Raises:
        ConfigError: As the method; or it does not accept the arguments.
    """
    if inspect.iscoroutinefunction(plugin.configure):  # its call would do nothing
        raise ConfigError(f"{label}.configure is a coroutine function", hint=f"Define {signature}")
    try:
        plugin.configure(*arguments)
    except TypeError as error:
        if accepts(plugin.configure, arguments):
            raise
        raise ConfigError(
            f"{label}.configure does not accept its arguments: {error}", hint=f"Define {signature}"
        ) from error


def accepts(function: Callable[..., object], arguments: tuple[object, ...]) -> bool:
    """Whether a function accepts a number of arguments by position.

    Args:
        function: Any callable.
        arguments: As many objects.

    Returns:
        Whether it does; true if it has no signature to compare with.

    Example:
        >>> accepts(lambda data: data, (None, None))
        False
    """
    try:
        # A wrapper accepts its own arguments, whatever the function does that it wraps.
        signature = inspect.signature(function, follow_wrapped=False)
    except Exception:  # noqa: BLE001  builtins have none, and annotations that cannot be evaluated raise anything
        return True
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> Iterable[EntryPoint]:
    """The entry points of a group, cached per path: scanning all installed packages takes milliseconds."""
    if not any(_may_register(group, folder or ".") for folder in path):
        return ()
    from importlib.metadata import entry_points  # the slowest import of a chain

    return entry_points(group=group)


def _may_register(group: str, folder: str) -> bool:
    """Whether a package in a folder of ``sys.path`` may register under a group."""
    from pathlib import Path  # only plug-ins need it

    try:
        with os.scandir(folder) as entries:
            packages = [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
    except NotADirectoryError:
        return True  # an archive, which importlib.metadata can look into
    except OSError:
        return False
    name = group.encode()
    for package in packages:
        try:
            if name in Path(package, "entry_points.txt").read_bytes():
                return True
        except OSError:
            continue  # most packages register nothing
    return False


def import_object(path: str, kind: str = "object") -> object:
    """Import an object by its dotted path.

    Args:
        path: ``package.module.Name`` or ``package.module:Name``.
        kind: Expected kind, for messages.

    Raises:
        ConfigError: The module does not exist or lacks the name.
    """
    module_name, _, attribute = path.partition(":") if ":" in path else path.rpartition(".")
    if not module_name:
        raise ConfigError(
            f"the {kind} {path!r} has no module", hint=f"Write its dotted path: package.module.{attribute}"
        )
    try:
        target: object = importlib.import_module(module_name)
        for part in attribute.split("."):
            target = getattr(target, part)
    except Exception as error:  # importing a third-party module may raise anything
        raise ConfigError(
            f"the {kind} {path!r} cannot be imported: {error}",
            hint="Check the spelling, and that it is installed in this interpreter, or its folder is in PYTHONPATH",
        ) from error
    return target


def _package(missing: str, module: str) -> str:
    """The package of a missing module; the module itself if it is in a shared namespace package."""
    name = missing.partition(".")[0]
    shared = name in _NAMESPACES and module.startswith(f"{name}.")
    return ".".join(module.split(".")[:2]) if shared else name


# Completely imported: one in `sys.modules` may be half way, in another thread.
_imported: dict[str, ModuleType] = {}


def require(module: str, extra: str) -> Any:
    """Import a third-party module installed by an extra.

    Args:
        module: Dotted module name.
        extra: The ``serde-chain`` extra that installs it; several are separated by commas.

    Returns:
        The module.

    Raises:
        MissingDependencyError: Not installed; the message shows the install command.
    """
    known = _imported.get(module)
    if known is not None and sys.modules.get(module) is known:  # in a tenth of the import system's time
        return known
    try:
        _imported[module] = importlib.import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            # The module may be installed without another one of the same extra.
            f"{_package(error.name or module, module)} is not installed",
            hint=f"pip install 'serde-chain[{extra}]'",
        ) from error
    return _imported[module]
