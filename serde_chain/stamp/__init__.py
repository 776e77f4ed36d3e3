"""PIP-70's broker role, which Kafka's brokers lack: timestamp and gap-free index for each record.

:func:`stamp` relays a topic and puts the frame of :mod:`serde_chain.wire.entry_metadata` in front of every value,
:func:`check` finds gaps, repeats and times going backwards, :func:`offset_at` finds a record by its timestamp.
"""

from serde_chain.stamp.check import Finding, FrameChecker, Report, check
from serde_chain.stamp.relay import stamp
from serde_chain.stamp.seek import offset_at

__all__ = ["Finding", "FrameChecker", "Report", "check", "offset_at", "stamp"]
