"""The log of librdkafka: Python's, with one line for a broker that does not answer, instead of one every second."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from typing import Any, Final

# With one of these, the user has chosen where the log goes.
_CHOSEN: Final = ("logger", "log_cb", "log_level", "log.queue", "debug")
_FOLD_S: Final = 60.0
_MOST: Final = 100
# Patterns as text: few programs need them, and each takes 0.2 ms to compile. re keeps what it has compiled.
# As in: FAIL [rdkafka#producer-1] [thrd:kafka:9092/bootstrap]: kafka:9092/bootstrap: Connect to ipv4#… failed: …
_FAILED: Final = r"(?s)FAIL \[.*?\] \[.*?\]: (?:\w+Coordinator: )?(?:\w+://)?(?P<broker>\S+?)(?:/\w+)?: (?P<what>.*)"
# Of other failures, the text itself has the reason: a login that is refused, a certificate.
_NO_ANSWER: Final = r"Connect to |Failed to resolve |Connection setup timed out"
# Of a listener that requires a login or TLS. librdkafka logs it as INFO, as it does for connections that were idle.
_CLOSED_AT_ONCE: Final = r"Disconnected: .*\(after \d\d?ms in state UP"
_AFTER: Final = r" ?\(after \d+ms in state \w+(?:, \d+ identical error\(s\) suppressed)?\)"
_ADDRESS: Final = r"ipv[46]#\S+"


class _Folded(logging.Filter):
    """Lets each failure of a connection pass once a minute, in words that say what to do."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        failed = re.fullmatch(_FAILED, record.getMessage())
        if failed is None:
            return True
        text, now = plain(failed["what"]), time.monotonic()
        # A name such as localhost may have several addresses.
        logged_at = self._seen.get(key := f"{failed['broker']} {re.sub(_ADDRESS, '', text)}")
        if logged_at is not None and now - logged_at < _FOLD_S:
            return False
        if len(self._seen) >= _MOST:
            self._seen.clear()
        self._seen[key] = now
        hint = "; check bootstrap.servers and that the broker runs" if re.match(_NO_ANSWER, text) else ""
        if re.match(_CLOSED_AT_ONCE, failed["what"]):
            hint = "; check security.protocol and its login"
        end = "" if text.endswith(("?", ".")) else "."
        record.msg, record.args = f"{failed['broker']}: {text}{hint}{end} The client keeps trying", ()
        return True


class _Log(logging.LoggerAdapter[logging.Logger]):
    """Makes a warning of a connection that the broker closes as soon as it is made."""

    def log(self, level: int, msg: object, *args: object, **more: Any) -> None:
        """Log a line of librdkafka."""
        if level == logging.INFO and re.search(_CLOSED_AT_ONCE, str(msg) % args):
            level = logging.WARNING
        super().log(level, msg, *args, **more)


def plain(text: str) -> str:
    """A failure of a connection without the time that it took, and how often it occurred."""
    return re.sub(_AFTER, "", text)


def folded_log(name: str) -> logging.LoggerAdapter[logging.Logger]:
    """A logger for clients, in which each failure of a connection is one line a minute.

    Args:
        name: The logger's name.
    """
    log = logging.getLogger(name)
    if not any(isinstance(each, _Folded) for each in log.filters):
        log.addFilter(_Folded())
    return _Log(log, {})


def with_log(client: Mapping[str, Any]) -> dict[str, Any]:
    """A client's settings with its log in the logger ``serde_chain.librdkafka``, unless they choose another one.

    The log is written by the calls ``poll``, ``flush`` and the like.
    """
    return dict(client) if _is_chosen(client) else {**client, "logger": folded_log("serde_chain.librdkafka")}


def without_log(client: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a client whose errors are raised, beside one that has the log."""
    return dict(client) if _is_chosen(client) else {**client, "log_level": 0}


def _is_chosen(client: Mapping[str, Any]) -> bool:
    return any(name in client for name in _CHOSEN)
