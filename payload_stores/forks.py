"""Clients in the child of a fork: ``os.fork``, multiprocessing's ``fork``, preloading servers.

librdkafka's threads do not survive a fork. In the child, waiting for them never ends, and destroying a client, even at
the end of the process, kills the process (SIGSEGV or SIGABRT). So the parent's clients are never destroyed in the
child, and objects around them make new ones, or refuse all calls. The fork does this once, at no cost per call.

Garbage of the parent may hold clients too. So the child's collector leaves the parent's objects alone (``gc.freeze``),
and does not run before that.
"""

from __future__ import annotations

import gc
import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn, TypeVar
from weakref import WeakKeyDictionary

from payload_stores.errors import ForkedClientError

_Owner = TypeVar("_Owner")

_CALLS: Final = frozenset({"__aenter__", "__aiter__", "__anext__", "__enter__", "__len__"})


# By object: its function for the child, and the names of its attributes.
_owners: Final[WeakKeyDictionary[Any, tuple[Callable[[Any], Iterable[object]], frozenset[str]]]] = WeakKeyDictionary()
_pid = os.getpid()
_collects = True


def watch(owner: _Owner, leaving: Callable[[_Owner], Iterable[object]]) -> None:
    """Leave an object's clients to the parent in each later fork's child.

    Args:
        owner: The object, with all attributes that its methods need; no reference to it is kept.
        leaving: Called with the object in the child, in which no other thread exists. Returns the parent's clients, and
            has the object make new ones (:func:`leave` otherwise). It must neither wait nor use a client.
    """
    _owners[owner] = leaving, frozenset(vars(owner))


def leave(client: object, base: type, inner: str, *, closing: str = "close", closed: object = None) -> None:
    """Leave an object around a client to the parent in each later fork's child: there, all its public methods raise.

    So do methods that were taken from it before the fork, such as those registered with ``atexit``: the attributes that
    they need are gone.

    Args:
        client: The object, as for :func:`watch`. It raises :class:`~payload_stores.errors.ForkedClientError`.
        base: The class that defines the methods; those that the user's subclass adds stay.
        inner: The attribute with the client.
        closing: The method that does nothing instead.
        closed: Its result.
    """

    def leaving(there: object) -> list[object]:
        left = [getattr(there, inner)]
        _refuse_calls(there, base, closing, closed)
        return left

    watch(client, leaving)


def _refuse_calls(client: object, base: type, closing: str, closed: object) -> None:
    kind: Any = type(client)
    parent = _pid

    def refuse(*_args: object, **_arguments: object) -> NoReturn:
        raise ForkedClientError(
            f"this {base.__name__} belongs to process {parent}, of which process {os.getpid()} is a fork",
            hint="Create a client in each process, after the fork; or start processes by multiprocessing's spawn",
        )

    def close(*_args: object) -> object:
        return closed

    async def close_later(*_args: object) -> object:
        return closed

    members: dict[str, Any] = {
        name: refuse
        for name, member in inspect.getmembers_static(base, inspect.isfunction)
        if not name.startswith("_") or name in _CALLS
    }
    is_async = inspect.iscoroutinefunction(inspect.getattr_static(base, closing))
    members[closing] = close_later if is_async else close
    attributes = vars(client)
    # Those that a subclass has added since stay.
    gone = {name: attributes.pop(name) for name in _owners.pop(client)[1] if name in attributes}

    def refuse_attribute(_self: object, name: str) -> NoReturn:
        if name in gone:
            refuse()
        raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")

    for name in members.keys() & gone.keys():
        _refuse_within(gone[name], refuse)
    more = {"__getattr__": refuse_attribute, "__module__": kind.__module__}
    client.__class__ = type(kind)(kind.__name__, (kind,), {**members, **more})


def _refuse_within(function: Any, refuse: Callable[..., NoReturn]) -> None:
    """Have a closure raise at its first call; it may have been taken from its object before the fork."""
    for cell in (function.__closure__ or ()) if inspect.isfunction(function) else ():
        if callable(cell.cell_contents):
            cell.cell_contents = refuse


def _before() -> None:
    global _collects  # noqa: PLW0603  for the two functions below
    _collects = gc.isenabled()
    gc.disable()
    if _owners:
        # Another thread may be importing it during the fork, for which the child would wait.
        import ctypes  # noqa: F401


def _after_in_parent() -> None:
    if _collects:
        gc.enable()


def _after_in_child() -> None:
    global _pid  # noqa: PLW0603  a fact about this process
    gc.freeze()
    _after_in_parent()
    if _owners:
        import ctypes

        for owner, (leaving, _) in list(_owners.items()):
            for client in leaving(owner):
                # One reference too many: not even the end of the interpreter destroys it.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
    _pid = os.getpid()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
