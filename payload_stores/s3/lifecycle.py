"""The lifecycle rules of a bucket, by which S3 deletes objects itself.

Rules are what boto3 returns and takes ("Lifecycle configuration elements" in Amazon's S3 User Guide). They can only be
read and written all at once: between the two, another program's change would be lost.
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
# What a rule does beside its name, state and filter.
_ABOUT: Final = frozenset({"ID", "Status", "Filter", "Prefix"})


def earliest_expiration(rules: Iterable[Rule], folder: str, now: datetime) -> timedelta | None:
    """The age at which the first objects of a folder are deleted.

    Args:
        rules: The bucket's rules.
        folder: What the keys begin with, with the slash at its end.
        now: The time, with its zone, by which rules with a date are measured.

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
    """The rules of a bucket with our rule for a folder, or without it.

    Args:
        rules: The bucket's rules; all but ours stay as they are, and ours keeps what else it does.
        folder: What the keys begin with, with the slash at its end.
        age: When objects are deleted, rounded up to whole days; None to keep them.

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
            # The old form means the same, and does not go together with the new one.
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
    """The name of our rule for a folder; two stores in one bucket may have the same topic."""
    name = f"serde-chain-{folder.rstrip('/')}"
    if len(name) <= _MAX_ID:
        return name
    return f"serde-chain-{hashlib.sha256(folder.encode()).hexdigest()}"


def _concerns(rule: Rule, folder: str) -> bool:
    """Whether a rule is about objects of a folder, be it only some: a payload that is deleted too early is lost."""
    where = rule.get("Filter") or {}
    both = where.get("And") or {}
    if "Tag" in where or both.get("Tags"):
        return False  # payloads have no tags
    prefix = where.get("Prefix") or both.get("Prefix") or rule.get("Prefix") or ""
    return folder.startswith(prefix) or prefix.startswith(folder)


def _age(expiration: Mapping[str, Any], now: datetime) -> timedelta | None:
    if expiration.get("Days"):
        return timedelta(days=int(expiration["Days"]))
    date = expiration.get("Date")
    if date is None:
        return None  # of markers that versions leave behind
    if isinstance(date, str):
        date = datetime.fromisoformat(date)
    # From that date on, objects of any age are deleted.
    return max(timedelta(0), (date if date.tzinfo else date.replace(tzinfo=UTC)) - now)
