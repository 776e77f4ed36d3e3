"""The policy for undecodable records: ``serde.error.policy``."""

from __future__ import annotations

import logging
from typing import NamedTuple, TypeGuard

from serde_chain.config import DEAD_LETTER, DEAD_LETTER_TOPIC, ERROR_POLICY, RAISE, Config
from serde_chain.errors import ConfigError, SerializationError
from serde_chain.telemetry import ClientTelemetry

_log = logging.getLogger("serde_chain")


class ErrorPolicy(NamedTuple):
    """The policy of a reader.

    Attributes:
        name: ``raise``, ``skip`` or ``dead-letter``.
        dead_letter_topic: The topic for undecodable records; None unless the policy is ``dead-letter``.
    """

    name: str = RAISE
    dead_letter_topic: str | None = None

    @classmethod
    def of(cls, config: Config) -> ErrorPolicy:
        """Read the policy of a configuration.

        Args:
            config: Flat configuration.

        Raises:
            ConfigError: There is no such policy, or the topic does not fit it.

        Example:
            >>> ErrorPolicy.of({"serde.error.policy": "dead-letter", "serde.dead.letter.topic": "images-dead"})
            ErrorPolicy(name='dead-letter', dead_letter_topic='images-dead')
        """
        name, topic = ERROR_POLICY.read(config), DEAD_LETTER_TOPIC.read(config)
        if name == DEAD_LETTER and not topic:
            raise ConfigError(
                f"{ERROR_POLICY.name} = {DEAD_LETTER} needs a topic",
                hint=f"Name it by {DEAD_LETTER_TOPIC.name}",
                key=DEAD_LETTER_TOPIC.name,
            )
        if topic and ERROR_POLICY.name not in config:
            raise ConfigError(
                f"{DEAD_LETTER_TOPIC.name} has no effect without {ERROR_POLICY.name}",
                hint=f"Set it to {DEAD_LETTER}, or to raise or skip to leave the topic unused",
                key=ERROR_POLICY.name,
            )
        return cls(name, topic if name == DEAD_LETTER else None)

    def passes_over(self, error: Exception) -> TypeGuard[SerializationError]:
        """Whether a record with an error is skipped: only if the record itself is at fault.

        Args:
            error: The record's error.

        Example:
            >>> ErrorPolicy("skip").passes_over(OSError("disk full"))
            False
        """
        return self.name != RAISE and isinstance(error, SerializationError) and error.about_record

    def report(self, error: SerializationError, telemetry: ClientTelemetry) -> None:
        """Log and count a skipped record.

        Args:
            error: The record's error.
            telemetry: The reader's telemetry.
        """
        where = "" if self.dead_letter_topic is None else f" It is in {self.dead_letter_topic}."
        note = telemetry.skipped if self.dead_letter_topic is None else telemetry.dead_lettered
        note(error.topic or "", error)
        _log.warning("an undecodable record is skipped: %s.%s", error, where)
