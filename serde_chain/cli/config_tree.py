"""The output of ``serde-chain check-config`` for people: chains, routes and stores as a tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.tree import Tree

from serde_chain.cli.output import plain
from serde_chain.stages.large_message.options import AUTO, THRESHOLD

_ASKED = "the topic's limit; kafka-python and bare chains cannot ask"
_NO_CHAINS = (
    "The file names no chains: keys and values are those of the Kafka client. Name a chain with "
    "value.serializers, value.deserializers and the same with key."
)


def config_tree(name: str, content: Mapping[str, Any], places: Mapping[str, Mapping[str, Any]]) -> Tree:
    """Lay out a configuration.

    Args:
        name: The file's name.
        content: The JSON output: ``chains``, ``consumer``, ``client`` and ``topics``.
        places: The destinations of large messages by topics, if they differ by topic.
    """
    tree = Tree(plain(name))
    if not any(content["chains"].values()):
        tree.add(_NO_CHAINS)
    for chain, stages in content["chains"].items():
        branch = tree.add(chain) if stages else tree
        for number, stage in enumerate(stages, 1):
            _add(branch, f"{number} {stage['stage']}: {stage['takes']} → {stage['gives']}", stage["settings"].items())
    for title, by_topic in (("large messages, by topic", places), ("these topics", content["topics"])):
        branch = tree.add(title) if by_topic else tree
        for topics, place in by_topic.items():
            route = f": route {place['route']}" if place["route"] else ""
            known = {name: place[name] for name in ("store", "threshold") if name in place} | place["settings"]
            _add(branch, f"{topics}{route}", known.items())
    for title, part in (("for the consumer", "consumer"), ("for the Kafka client", "client")):
        if content[part]:
            _add(tree, title, content[part].items())
    return tree


def _add(tree: Tree, title: str, settings: Iterable[tuple[str, object]]) -> None:
    branch = tree.add(plain(title))
    for key, value in settings:
        learns = value == AUTO and key in {"threshold", THRESHOLD.name}
        branch.add(plain(f"{key} = {AUTO} ({_ASKED})" if learns else f"{key} = {_short(value)}"))


def _short(value: object) -> str:
    text = " ".join(_text(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def _text(value: object) -> str:
    """A value on one line; a store's own options in TOML's form."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {_text(item)}" for name, item in value.items()) + "}"
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)
