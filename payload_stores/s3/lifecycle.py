"""The lifecycle rules of a bucket, which make S3 delete objects.

Rules have boto3's form ("Lifecycle configuration elements" in Amazon's S3 User Guide). They can only be read and
written all at once: another program's change in between would be lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from payload_stores.base import Lifetimes

Rule: TypeAlias = Mapping[str, Any]

_DAY: Final = timedelta(days=1)
# S3 accepts days up to 2**31 - 1, more than a timedelta has.
_FOREVER: Final = timedelta(days=timedelta.max.days)
_MAX_ID: Final = 255
# Objects of a multipart upload; the store writes no larger ones.
_MAX_BYTES: Final = 5 << 40
# Maximum number of rules to describe: a bucket may have a thousand.
_MAX_SHOWN: Final = 5
# Actions of a rule, besides its name, state and filter.
_ABOUT: Final = frozenset({"ID", "Status", "Filter", "Prefix"})


def lifetimes(rules: Iterable[Rule], folder: str, now: datetime) -> Lifetimes:
    """The ages at which objects of a folder are deleted, or hidden in a bucket with versions.

    Args:
        rules: The bucket's rules.
        folder: Prefix of the keys, with the trailing slash.
        now: The current time, with its zone, for rules with a date.

    Example:
        >>> rules = [{"ID": "a", "Status": "Enabled", "Filter": {"Prefix": "pre/"}, "Expiration": {"Days": 9}}]
        >>> lifetimes(rules, "pre/alerts/", datetime.now(UTC)).longest
        datetime.timedelta(days=9)
    """
    found = (_Applied.of(rule, folder, _ages(rule.get("Expiration") or {}, now)) for rule in rules)
    applied = sorted((each for each in found if each is not None), key=lambda each: each.shortest)
    return Lifetimes(applied[0].shortest if applied else None, _age_of_all(applied), _texts(applied))


def with_versions(found: Lifetimes, rules: Iterable[Rule], folder: str) -> Lifetimes:
    """The ages in a bucket with versions, where an expired object becomes a noncurrent version.

    Args:
        found: Those of current versions, which readers see.
        rules: The bucket's rules.
        folder: Prefix of the keys, with the trailing slash.

    Example:
        >>> rules = [{"ID": "a", "Status": "Enabled", "Filter": {"Prefix": "pre/"}, "Expiration": {"Days": 9}}]
        >>> with_versions(lifetimes(rules, "pre/alerts/", datetime.now(UTC)), rules, "pre/alerts/").longest is None
        True
    """
    if found.longest is None:
        return found
    applied = [
        each
        for rule in rules
        if (each := _Applied.of(rule, folder, _ages_of_noncurrent(rule.get("NoncurrentVersionExpiration") or {})))
    ]
    age, texts = _age_of_all(applied), (*found.rules, *_texts(applied))
    if age is not None:
        return replace(found, longest=found.longest + min(age, _FOREVER - found.longest), rules=texts)
    texts += ("the bucket keeps versions, and no rule deletes all noncurrent ones",)
    hint = f"Add NoncurrentVersionExpiration, without NewerNoncurrentVersions, to a rule for the prefix {folder!r}"
    return replace(found, longest=None, rules=texts, hint=hint)


def with_expiration(rules: Iterable[Rule], folder: str, age: timedelta | None) -> list[dict[str, Any]]:
    """A bucket's rules with our rule for a folder added, changed or removed.

    Args:
        rules: The bucket's rules; other rules stay unchanged, and ours keeps its other actions.
        folder: Prefix of the keys, with the trailing slash.
        age: Age for deletion, rounded up to whole days; None to keep objects.

    Example:
        >>> with_expiration([], "alerts/", timedelta(hours=30))
        [{'ID': 'serde-chain-alerts', 'Status': 'Enabled', 'Filter': {'Prefix': 'alerts/'}, 'Expiration': {'Days': 2}}]
    """
    name = _rule_id(folder)
    kept: list[dict[str, Any]] = []
    ours: dict[str, Any] = {}
    for rule in rules:
        if rule.get("ID") == name:
            ours = {key: value for key, value in rule.items() if key not in _ABOUT and key != "Expiration"}
        elif "Filter" not in rule and "Prefix" in rule:
            # The old form of the filter, equivalent but incompatible with the new one.
            filtered = {"Filter": {"Prefix": rule["Prefix"]}}
            kept.append({key: value for key, value in rule.items() if key != "Prefix"} | filtered)
        else:
            kept.append(dict(rule))
    if age is not None:
        ours["Expiration"] = {"Days": max(1, -(-age // _DAY))}
    if ours:
        kept.append({"ID": name, "Status": "Enabled", "Filter": {"Prefix": folder}, **ours})
    return kept


def _rule_id(folder: str) -> str:
    """The name of our rule for a folder; two stores in a bucket may share a topic."""
    name = f"serde-chain-{folder.rstrip('/')}"
    if len(name) <= _MAX_ID:
        return name
    return f"serde-chain-{hashlib.sha256(folder.encode()).hexdigest()}"


@dataclass(frozen=True, slots=True)
class _Applied:
    """An enabled rule that deletes objects of a folder.

    Attributes:
        shortest: The lowest age at which it deletes objects.
        longest: The highest, among those that it covers.
        smallest: Size in bytes of the smallest object that it covers.
        largest: Size in bytes of the largest.
        is_whole: Whether its prefix covers the folder.
        text: The rule, for people.
    """

    shortest: timedelta
    longest: timedelta
    smallest: int
    largest: int
    is_whole: bool
    text: str

    @classmethod
    def of(cls, rule: Rule, folder: str, ages: _Ages | None) -> _Applied | None:
        """A rule with the ages of its action, as it applies to a folder; None if it deletes none of its objects."""
        where = rule.get("Filter") or {}
        where = {**where, **(where.get("And") or {})}
        prefix = where.get("Prefix") or rule.get("Prefix") or ""
        if ages is None or rule.get("Status") != "Enabled" or "Tag" in where or where.get("Tags"):
            return None  # payloads have no tags
        if not (folder.startswith(prefix) or prefix.startswith(folder)):
            return None
        parts = [f"rule {rule.get('ID', '')!r} ({ages.text})"]
        if not (is_whole := folder.startswith(prefix)):
            parts.append(f"only keys that begin with {prefix!r}")
        smallest, largest = 0, _MAX_BYTES
        # Both bounds are exclusive.
        if (more_than := where.get("ObjectSizeGreaterThan")) is not None:
            smallest = int(more_than) + 1
            parts.append(f"only objects of more than {more_than} bytes")
        if (less_than := where.get("ObjectSizeLessThan")) is not None:
            largest = int(less_than) - 1
            parts.append(f"only objects of less than {less_than} bytes")
        return cls(ages.shortest, ages.longest, smallest, largest, is_whole, ", ".join(parts))


def _texts(rules: Sequence[_Applied]) -> tuple[str, ...]:
    """The rules, for people."""
    texts = tuple(rule.text for rule in rules[:_MAX_SHOWN])
    return texts if len(rules) <= _MAX_SHOWN else (*texts, f"{len(rules) - _MAX_SHOWN} more rules")


def _age_of_all(rules: Sequence[_Applied]) -> timedelta | None:
    """The age at which rules have deleted every object of a folder; None if they leave some.

    Rules for different sizes cover it together. Prefixes of parts of it do not: an id may begin with any letter.
    """
    whole = [rule for rule in rules if rule.is_whole]
    for age in sorted({rule.longest for rule in whole}):
        uncovered = 0  # the smallest size without a rule
        for rule in sorted(whole, key=lambda each: each.smallest):
            if rule.longest <= age and rule.smallest <= uncovered:
                uncovered = max(uncovered, rule.largest + 1)
        if uncovered > _MAX_BYTES:
            return age
    return None


class _Ages(NamedTuple):
    """The lowest and the highest age at which an action deletes objects; the action, for people."""

    shortest: timedelta
    longest: timedelta
    text: str


def _ages(expiration: Mapping[str, Any], now: datetime) -> _Ages | None:
    if expiration.get("Days"):
        age = _days(expiration["Days"])
        return _Ages(age, age, f"after {age.days} day{'' if age.days == 1 else 's'}")
    date = expiration.get("Date")
    if date is None:
        return None  # for delete markers of buckets with versions
    if isinstance(date, str):
        date = datetime.fromisoformat(date)
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    # From that date on, objects are deleted at any age: those written just before as well.
    return _Ages(timedelta(0), max(timedelta(0), date - now), f"from {date:%Y-%m-%d} on, at any age")


def _ages_of_noncurrent(expiration: Mapping[str, Any]) -> _Ages | None:
    if not expiration.get("NoncurrentDays") or expiration.get("NewerNoncurrentVersions"):
        return None  # the newest noncurrent versions stay, and a payload has only one
    age = _days(expiration["NoncurrentDays"])
    return _Ages(age, age, f"noncurrent versions after {age.days} day{'' if age.days == 1 else 's'}")


def _days(days: object) -> timedelta:
    return min(int(str(days)), _FOREVER.days) * _DAY
