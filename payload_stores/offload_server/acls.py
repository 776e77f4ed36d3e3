"""Permissions to upload and download: the broker's own ACLs, or a file."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from payload_stores.errors import ConfigError, PayloadStoreUnavailableError
from payload_stores.hop.endpoint import METADATA_TOPIC
from payload_stores.offload_server.files import Watched, toml
from payload_stores.plugins import require

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

READ: Final = "READ"
WRITE: Final = "WRITE"

_ANYBODY: Final = "*"
_ANSWER_SECONDS: Final = 10.0
_FAILED_SECONDS: Final = 1.0
# A refusal does not renew answers this recent.
_FRESH_SECONDS: Final = 1.0


class Authorizer(Protocol):
    """Decides about permissions. Must be thread-safe; may block on a server."""

    def allows(self, user: str, operation: str, topic: str, address: str) -> bool:
        """Whether a user may upload to (``WRITE``) or download from (``READ``) a topic.

        Args:
            user: The authenticated user name.
            operation: ``READ`` or ``WRITE``.
            topic: The topic.
            address: The client's IP address.

        Raises:
            PayloadStoreUnavailableError: The permission cannot be determined now.
        """
        ...


@runtime_checkable
class SupportsAnyTopic(Protocol):
    """An authorizer that knows whether a user has an operation on any topic."""

    def allows_any(self, user: str, operation: str, address: str) -> bool:
        """Whether :meth:`Authorizer.allows` may return True for some topic."""
        ...


@runtime_checkable
class SupportsRefresh(Protocol):
    """An authorizer with a refreshable cache."""

    def refresh(self) -> None:
        """Refresh the cache, unless it is recent; called before a user is refused.

        Raises:
            PayloadStoreUnavailableError: No answer.
        """
        ...


@runtime_checkable
class SupportsCheck(Protocol):
    """An authorizer with a health check."""

    def check(self) -> None:
        """Raise unless it can determine permissions.

        Raises:
            PayloadStoreUnavailableError: It cannot determine them.
        """
        ...


@dataclass(frozen=True, slots=True)
class Rule:
    """One permission or prohibition, as in Kafka.

    Attributes:
        user: A name, or ``*`` for all.
        operation: ``READ``, ``WRITE`` or ``ALL``.
        topic: A topic's name or prefix; the name ``*`` is any topic.
        prefix: Whether ``topic`` is a prefix.
        allow: Whether it permits; prohibitions win.
        host: The IP address it applies to, ``*`` for any.
    """

    user: str
    operation: str
    topic: str
    prefix: bool = False
    allow: bool = True
    host: str = _ANYBODY

    def matches(self, user: str, operation: str, topic: str) -> bool:
        """Whether it applies to this user, operation and topic."""
        if self.user not in {user, _ANYBODY} or self.operation not in {operation, "ALL"}:
            return False
        return topic.startswith(self.topic) if self.prefix else self.topic in {topic, _ANYBODY}


def decide(rules: Iterable[Rule], user: str, operation: str, topic: str, address: str) -> bool:
    """The verdict of rules: users need a permission, and prohibitions win, for any address.

    A permission for one address applies only from there. Behind a proxy the client's address is the proxy's.
    """
    allowed = False
    for rule in rules:
        if rule.matches(user, operation, topic):
            if not rule.allow:
                return False
            allowed = allowed or rule.host in {_ANYBODY, address}
    return allowed


def decide_any(rules: Iterable[Rule], user: str, operation: str, address: str) -> bool:
    """Whether a rule permits an operation on a topic that may have messages; ignores prohibitions.

    Excludes the topic of announcements: all clients may read it.
    """
    return any(
        rule.allow
        and rule.topic != METADATA_TOPIC
        and rule.matches(user, operation, rule.topic)
        and rule.host in {_ANYBODY, address}
        for rule in rules
    )


class BrokerAcls:
    """The ACLs of a Kafka broker: WRITE on the topic to upload, READ to download, as for producers and consumers.

    They are read at once, and again after ``seconds``. The server's own user needs DESCRIBE on the cluster. The
    broker's ``allow.everyone.if.no.acl.found`` has no effect here.

    Args:
        config: confluent_kafka's configuration.
        super_users: Names with all permissions; the broker does not reveal its own ``super.users``.
        seconds: How long an answer is cached: a withdrawn permission may apply for that long.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        super_users: Iterable[str] = (),
        seconds: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        admin = require("confluent_kafka.admin", "hop")
        self._admin: AdminClient = admin.AdminClient(dict(config))
        self._super_users = frozenset(super_users)
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._rules: list[Rule] | PayloadStoreUnavailableError = []
        self._until = -float("inf")

    def allows(self, user: str, operation: str, topic: str, address: str) -> bool:
        """See :meth:`Authorizer.allows`."""
        if user in self._super_users:
            return True
        return decide(self._current(), user, operation, topic, address)

    def allows_any(self, user: str, operation: str, address: str) -> bool:
        """See :class:`SupportsAnyTopic`."""
        return user in self._super_users or decide_any(self._current(), user, operation, address)

    def refresh(self) -> None:
        """See :class:`SupportsRefresh`: a new permission applies at once."""
        with self._lock:
            if self._clock() >= self._until - self._seconds + _FRESH_SECONDS:
                self._until = -float("inf")
        self._current()

    def check(self) -> None:
        """See :class:`SupportsCheck`: the broker answers, or did so recently."""
        self._current()

    def _current(self) -> list[Rule]:
        with self._lock:
            if self._clock() >= self._until:
                try:
                    self._rules, seconds = self._ask(), self._seconds
                except PayloadStoreUnavailableError as error:
                    # Otherwise each request waiting for this one would wait for another timeout.
                    self._rules, seconds = error, _FAILED_SECONDS
                self._until = self._clock() + seconds
            if isinstance(self._rules, PayloadStoreUnavailableError):
                raise self._rules
            return self._rules

    def _ask(self) -> list[Rule]:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import (
            AclBindingFilter,
            AclOperation,
            AclPermissionType,
            ResourcePatternType,
            ResourceType,
        )

        anything: Any = None  # its stub does not accept None for any name
        wanted = AclBindingFilter(
            ResourceType.TOPIC,
            anything,
            ResourcePatternType.ANY,
            anything,
            anything,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        try:
            bindings = self._admin.describe_acls(wanted, request_timeout=_ANSWER_SECONDS).result(2 * _ANSWER_SECONDS)
            if not bindings:
                self._check_permission()
        except (KafkaException, TimeoutError) as error:
            raise PayloadStoreUnavailableError(
                f"the broker did not return its ACLs: {error}",
                hint="The server's own user needs DESCRIBE on the cluster",
            ) from error
        return [
            Rule(
                binding.principal.removeprefix("User:"),
                binding.operation.name,
                binding.name,
                prefix=binding.resource_pattern_type == ResourcePatternType.PREFIXED,
                allow=binding.permission_type == AclPermissionType.ALLOW,
                host=binding.host,
            )
            for binding in bindings
            if binding.principal.startswith("User:")
        ]

    def _check_permission(self) -> None:
        """Distinguish "no ACLs" from "not permitted", unlike the client."""
        from confluent_kafka.admin import AclOperation

        asked = self._admin.describe_cluster(include_authorized_operations=True, request_timeout=_ANSWER_SECONDS)
        operations = asked.result(2 * _ANSWER_SECONDS).authorized_operations
        if AclOperation.DESCRIBE not in (operations or ()):
            raise PayloadStoreUnavailableError(
                "the broker did not return its ACLs", hint="The server's own user needs DESCRIBE on the cluster"
            )


class FileAcls:
    """Permissions from a TOML file, reloaded when it changes.

    ``super-users = ["admin"]``, and for each user a table ``[users.<name>]`` (``[users."*"]`` for all) with lists
    ``read``, ``write`` and ``deny``. Items are topics; ``public.*`` is the prefix ``public.``, ``*`` is any topic.

    Args:
        path: The file.

    Raises:
        ConfigError: The file is unreadable, or not a permissions file.
    """

    def __init__(self, path: Path) -> None:
        self._file = Watched(path, _parse)

    def allows(self, user: str, operation: str, topic: str, address: str) -> bool:
        """See :meth:`Authorizer.allows`."""
        super_users, rules = self._file.get()
        return user in super_users or decide(rules, user, operation, topic, address)

    def allows_any(self, user: str, operation: str, address: str) -> bool:
        """See :class:`SupportsAnyTopic`."""
        super_users, rules = self._file.get()
        return user in super_users or decide_any(rules, user, operation, address)

    def reload(self) -> None:
        """See :class:`~payload_stores.offload_server.files.SupportsReload`."""
        self._file.reload()


_LISTS: Final = {"read": (READ, True), "write": (WRITE, True), "deny": ("ALL", False)}


def _parse(data: bytes) -> tuple[frozenset[str], list[Rule]]:
    content = toml(data)
    super_users = _names(content.pop("super-users", []), "super-users")
    users = content.pop("users", {})
    if content or not isinstance(users, dict):
        raise ConfigError("a file of permissions has super-users and tables [users.<name>], nothing else")
    rules = []
    for user, lists in users.items():
        if not isinstance(lists, dict) or lists.keys() - _LISTS:
            strange = ", ".join(sorted(map(str, lists.keys() - _LISTS))) if isinstance(lists, dict) else "no table"
            raise ConfigError(
                f"the user {user} has {strange}, where only {', '.join(_LISTS)} are known",
                hint=f'Write [users.{user}] and below it, for instance, read = ["alerts"]',
            )
        for name, topics in lists.items():
            operation, allow = _LISTS[name]
            for topic in _names(topics, f"{name} of {user}"):
                prefix = topic.endswith("*") and topic != _ANYBODY
                rules.append(Rule(user, operation, topic.removesuffix("*") if prefix else topic, prefix, allow))
    return frozenset(super_users), rules


def _names(value: Any, what: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise ConfigError(f"{what} is not a list of names")
    return value
