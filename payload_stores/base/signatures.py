"""Which arguments the methods of a store take: those of ``PayloadStore``, or only those of KIP-1159's interface.

The KIP's ``publish(topic, data)`` and ``id(data)`` have no context. A method is looked at once, when its class is
defined or its store is opened; the calls of a method that takes all arguments stay as they are.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from functools import partialmethod
from types import FunctionType
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from payload_stores.base.values import PublishContext
from payload_stores.errors import ConfigError


class _Method(NamedTuple):
    """A method of the contract that the KIP has too.

    Attributes:
        required: Its required arguments, each by the names under which it may be passed.
        takes_context: Whether the context follows.
        full: The whole signature, for messages.
        short: The KIP's.
    """

    required: tuple[tuple[str, ...], ...]
    takes_context: bool
    full: str
    short: str

    @property
    def plain(self) -> tuple[str, ...]:
        """The parameters of the whole signature, as written in the contract."""
        return ("self", *(names[0] for names in self.required), *(["context"] if self.takes_context else []))


_METHODS: Final = {
    "publish": _Method(
        (("topic",), ("data",)), True, "publish(self, topic, data, context=None)", "publish(self, topic, data)"
    ),
    "download": _Method(
        (("reference", "full_path", "fullPath"),), False, "download(self, reference)", "download(self, full_path)"
    ),
    "id": _Method((("data",),), True, "id(self, data, context=None)", "id(self, data)"),
}  # fmt: skip
_BINDS: Final = (FunctionType, staticmethod, classmethod, partialmethod)


class Fit(NamedTuple):
    """How to call a function with the arguments of the contract.

    Attributes:
        names: For each required argument the name under which it is passed; None if by position.
        context: Whether, and how, the context is passed: ``position``, ``name``, or None.

    Example:
        >>> fit("publish", lambda topic, data: "memory:///alerts/1")
        Fit(names=(None, None), context=None)
    """

    names: tuple[str | None, ...]
    context: str | None

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a function without what it does not take.

        Args:
            function: The function.
            arguments: The contract's arguments by position; more are the function's own.
            named: Arguments by name.
        """
        count = len(self.names)
        context = named.pop("context", None)
        if len(arguments) > count and (arguments[count] is None or isinstance(arguments[count], PublishContext)):
            context, arguments = arguments[count], (*arguments[:count], *arguments[count + 1 :])
        positional = [value for value, name in zip(arguments, self.names, strict=False) if name is None]
        named |= {name: value for value, name in zip(arguments, self.names, strict=False) if name is not None}
        positional += arguments[count:]
        if self.context == "position":
            positional.append(context)
        elif self.context == "name":
            named["context"] = context
        return function(*positional, **named)


def fit(  # noqa: C901, PLR0912  one step for each kind of parameter
    method: str, function: Callable[..., Any], *, of_kip: bool = False
) -> Fit:
    """How to call a function as a method of the contract.

    A further positional parameter gets the context if it is required, or is meant for it by its name or annotation;
    any other one with a default keeps it.

    Args:
        method: ``publish``, ``download`` or ``id``.
        function: The function, already bound to its store. ``*args``, ``**kwargs``, and a function of C without a
            signature get all arguments.
        of_kip: Whether its class has the KIP's methods alone, so that ``*args`` hides two arguments, such as a
            decorator's: the context is passed only where a parameter is meant for it.

    Raises:
        ValueError: It cannot be called so; the text says why.

    Example:
        >>> fit("id", lambda data, *, context: "1")
        Fit(names=(None,), context='name')
    """
    contract = _METHODS[method]
    _check_kind(function)
    try:
        parameters = _parameters(function)
    except ValueError:
        passes_context = contract.takes_context and not of_kip
        return Fit((None,) * len(contract.required), "position" if passes_context else None)
    except TypeError as error:
        raise ValueError("it is not callable") from error
    positional = [each for each in parameters if each.kind in {each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD}]
    only_named = {each.name: each for each in parameters if each.kind is each.KEYWORD_ONLY}
    kinds = {each.kind for each in parameters}
    more, more_named = inspect.Parameter.VAR_POSITIONAL in kinds, inspect.Parameter.VAR_KEYWORD in kinds
    names: list[str | None] = []
    for aliases in contract.required:
        if positional:
            _check_order(positional.pop(0).name, aliases, contract.required)
            names.append(None)
        elif more:
            names.append(None)
        elif (name := next((alias for alias in aliases if only_named.pop(alias, None)), None)) is not None:
            names.append(name)
        elif more_named:
            names.append(aliases[0])
        else:
            raise ValueError(f"it does not take {aliases[0]}")
    context = None
    if contract.takes_context:
        if positional and _is_for_context(positional[0]):
            context = "position"
            positional.pop(0)
        elif only_named.pop("context", None) is not None:
            context = "name"
        elif of_kip:
            pass
        elif more and not positional:
            context = "position"
        elif more_named:
            context = "name"
    for each in (*positional, *only_named.values()):
        if each.default is each.empty:
            raise ValueError(f"it requires {each.name}, which the contract does not have")
    return Fit(tuple(names), context)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """What a function takes: of a decorated one what the decorator takes, and if that is anything, what is inside."""
    own = [*inspect.signature(function, follow_wrapped=False).parameters.values()]
    if any(each.kind in {each.VAR_POSITIONAL, each.VAR_KEYWORD} for each in own):
        return [*inspect.signature(function).parameters.values()]
    return own


def _check_kind(function: Any) -> None:
    """Refuse a function whose call runs nothing."""
    for each in (function, type(function).__call__):
        if inspect.iscoroutinefunction(each):
            raise ValueError("it is a coroutine function, and stores are called in threads")
        if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
            raise ValueError("it is a generator function, and returns neither a reference nor a payload")


def _check_order(name: str, aliases: tuple[str, ...], required: Iterable[tuple[str, ...]]) -> None:
    """Refuse a parameter that has the name of another argument: it would get the wrong one."""
    if name not in aliases and any(name in others for others in required):
        raise ValueError(f"it takes {name} in the place of {aliases[0]}")


def _is_for_context(parameter: inspect.Parameter) -> bool:
    name = parameter.name.lower()
    if parameter.default is parameter.empty or "PublishContext" in str(parameter.annotation):
        return True
    # Not ssl_context; and one with another default is not for what may be None.
    return parameter.default is None and (name.startswith("_") or name.removeprefix("publish_") in {"context", "ctx"})


# The functions made here, and how they call the class's own.
_adapted: Final[WeakKeyDictionary[FunctionType, Fit]] = WeakKeyDictionary()


def adapt_methods(cls: Any) -> None:
    """Let the methods of a store's class be called with all arguments, whichever they take.

    One that cannot be called at all stays as it is, for :func:`check_methods`.

    Args:
        cls: A subclass of ``PayloadStore``, which gets the attribute ``follows_context``.
    """
    for method, contract in _METHODS.items():
        own = next(vars(base)[method] for base in cls.__mro__ if method in vars(base))
        known = _adapted.get(own) if isinstance(own, FunctionType) else None
        if known is None:
            known = _adapt(cls, method, contract, own)
        if method == "publish" and known is not None and cls.follows_context != (known.context is not None):
            cls.follows_context = known.context is not None


def _adapt(cls: Any, method: str, contract: _Method, own: Any) -> Fit | None:
    """Replace a method that does not take all arguments; returns how it is called, None if that is unknown."""
    all_by_position = Fit((None,) * len(contract.required), "position" if contract.takes_context else None)
    if isinstance(own, FunctionType):
        code = own.__code__
        if not code.co_kwonlyargcount and code.co_varnames[: code.co_argcount] == contract.plain:
            return all_by_position  # most stores; a signature takes its time
    elif not isinstance(own, _BINDS):
        return None
    try:
        found = fit(method, own.__get__(cls, cls))  # a signature does not depend on the instance
    except ValueError:
        return None
    if found != all_by_position:
        replacement = _replacement(own, found)
        _adapted[replacement] = found
        setattr(cls, method, replacement)
    return found


def _replacement(own: Any, how: Fit) -> Any:
    def adapted(self: Any, /, *arguments: Any, **named: Any) -> Any:
        return how.call(own.__get__(self, type(self)), arguments, named)

    functools.update_wrapper(adapted, own)
    del adapted.__wrapped__  # type: ignore[attr-defined]  # it takes all arguments, as inspect may see
    return adapted


def check_methods(store: object, label: str) -> None:
    """Refuse a store with a method that cannot be called.

    Args:
        store: The store.
        label: Its name, for messages.

    Raises:
        ConfigError: A method is missing, or has another signature than the contract's and the KIP's.

    Example:
        >>> from payload_stores import open_store
        >>> check_methods(open_store("memory", {}), "memory")
    """
    for method, contract in _METHODS.items():
        function = getattr(store, method)
        try:
            found = fit(method, function)
            if found.context is None and contract.takes_context:
                raise ValueError("it was set on an instance or a class and does not take the context")
            if any(found.names):
                raise ValueError("it was set on an instance or a class and does not take all arguments by position")
        except ValueError as error:
            raise refusal(label, method, str(error)) from error


def refusal(label: str, method: str, why: str) -> ConfigError:
    """The error for a method that cannot be called."""
    contract = _METHODS[method]
    return ConfigError(
        f"{label}.{method} cannot be called as the method of a payload store: {why}",
        hint=f"Define {contract.full}, or as in KIP-1159 {contract.short}",
    )
