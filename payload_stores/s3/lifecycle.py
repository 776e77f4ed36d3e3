"""The lifecycle rules of a bucket, which make S3 delete objects.

Rules have boto3's form ("Lifecycle configuration elements" in Amazon's S3 User Guide). They can only be read and
written all at once: another program's change in between would be lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

__all__ = ["Rule", "earliest_expiration", "with_expiration"]

Rule: TypeAlias = Mapping[str, Any]

_DAY: Final = timedelta(days=1)
_MAX_ID: Final = 255
# Actions of a rule, besides its name, state and filter.
_ABOUT: Final = frozenset({"ID", "Status", "Filter", "Prefix"})


def earliest_expiration(rules: Iterable[Rule], folder: str, now: datetime) -> timedelta | None:
    """The lowest age at which objects of a folder are deleted.

    Args:
        rules: The bucket's rules.
        folder: Prefix of the keys, with the trailing slash.
        now: The current time, with its zone, for rules with a date.

    Returns:
        The age; None if no rule deletes them.

    Example:
        >>> rules = [{"Status": "Enabled", "Filter": {"Prefix": "pre/"}, "Expiration": {"Days": 9}}]
        >>> earliest_expiration(rules, "pre/alerts/", datetime.now(UTC))
        datetime.timedelta(days=9)
    """
    ages = (
        _age(rule.get("Expiration") or {}, now)
        for rule in rules
        if rule.get("Status") == "Enabled" and _concerns(rule, folder)
    )
    return min((age for age in ages if age is not None), default=None)


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


def _concerns(rule: Rule, folder: str) -> bool:
    """Whether a rule applies to any objects of a folder: a payload deleted too early is lost."""
    where = rule.get("Filter") or {}
    both = where.get("And") or {}
    if "Tag" in where or both.get("Tags"):
        return False  # payloads have no tags
    prefix = where.get("Prefix") or both.get("Prefix") or rule.get("Prefix") or ""
    return folder.startswith(prefix) or prefix.startswith(folder)


def _age(expiration: Mapping[str, Any], now: datetime) -> timedelta | None:
    if expiration.get("Days"):
        # S3 accepts days up to 2**31 - 1, more than a timedelta has.
        return timedelta(days=min(int(expiration["Days"]), timedelta.max.days))
    date = expiration.get("Date")
    if date is None:
        return None  # for delete markers of versioned buckets
    if isinstance(date, str):
        date = datetime.fromisoformat(date)
    # From that date, objects of any age are deleted.
    return max(timedelta(0), (date if date.tzinfo else date.replace(tzinfo=UTC)) - now)
