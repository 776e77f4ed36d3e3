"""Sizes and numbers of parts."""

from __future__ import annotations

from typing import Final

PART_BYTES: Final = 8 << 20
"""Size of parts and ranges in bytes."""
PARALLEL: Final = 8
"""Parts or ranges in flight at once."""
MAX_PARTS: Final = 10_000
"""Maximum parts per upload ("Amazon S3 multipart upload limits" in its user guide; the same for Google)."""
