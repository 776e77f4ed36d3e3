"""What bytes look like that the configured chain cannot read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from serde_chain.cli.outline import as_text
from serde_chain.codecs import codec_of
from serde_chain.errors import DecodeError, MissingDependencyError

_MOST: Final = 1 << 20
_LAYERS: Final = 3
# So many values, and more than half of the others, are unreadable in a topic of another chain.
_LEAST: Final = 2


class Look(NamedTuple):
    """What some bytes look like.

    Attributes:
        stages: The chain that would read them, as far as it is known.
        text: The text in them, if they are one.
    """

    stages: tuple[str, ...]
    text: str | None

    @property
    def words(self) -> str:
        """The same for people.

        Example:
            >>> Look(("zstd", "json"), "{}").words
            'JSON, compressed with zstd'
        """
        codecs, kind = (self.stages[:-1], self.stages[-1]) if self.is_known else (self.stages, "")
        inner = {"json": "JSON", "string": "text", "avro": "an Avro container file"}.get(kind, "binary data")
        return f"{inner}, compressed with {' and '.join(codecs)}" if codecs else inner

    @property
    def is_known(self) -> bool:
        """Whether its stages would read them."""
        return self.text is not None or self.stages[-1:] == ("avro",)


def look(data: bytes) -> Look:
    """See what some bytes are, through compression of up to 1 MiB.

    Args:
        data: The bytes.
    """
    stages: list[str] = []
    while len(stages) < _LAYERS and (codec := codec_of(data)) is not None:
        stages.append(codec.name)
        try:
            codec.load()  # the configuration may not name it
            data = codec.decompressor(_MOST)(data)
        except (DecodeError, MissingDependencyError):
            return Look(tuple(stages), None)
    if data.startswith(b"Obj\x01"):
        return Look((*stages, "avro"), None)
    text = as_text(data)
    if text is None:
        return Look(tuple(stages), None)
    return Look((*stages, "json" if _is_json(text) else "string"), text)


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), (dict, list))
    except (ValueError, RecursionError):
        return False


class Misfit(NamedTuple):
    """A topic of another chain.

    Attributes:
        text: A sentence that names what its values look like.
        stages: The chain that would read them, by comma; empty if it is not known.
    """

    text: str
    stages: str


def misfit(looks: Sequence[Look], read: int) -> Misfit | None:
    """Whether values are of another chain; None if most are read.

    Args:
        looks: What the unreadable values look like.
        read: The number of the others.
    """
    by_words = {each.words: each for each in looks}
    counts = Counter(each.words for each in looks)
    if counts.total() < _LEAST or counts.total() <= read:
        return None
    common = by_words[counts.most_common(1)[0][0]]
    text = f"This configuration does not fit this topic. Its values look like {common.words}"
    return Misfit(text, ", ".join(common.stages) if common.is_known else "")
