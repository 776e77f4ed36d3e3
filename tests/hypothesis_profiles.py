"""How many examples Hypothesis makes: few by default, more with ``full``, many with ``nightly``."""

import os

from hypothesis import settings

_FULL = 100
PROFILES = {"default": 20, "full": _FULL, "nightly": 50 * _FULL}


def load_profile() -> None:
    """Load the profile of ``HYPOTHESIS_PROFILE``; pytest's ``--hypothesis-profile`` overrides it."""
    for name, number in PROFILES.items():
        # No limit on the time of one example: machines differ, and so does their load. Only the nightly run looks for
        # new examples; the others make the same in every run.
        settings.register_profile(name, max_examples=number, deadline=None, derandomize=name != "nightly")
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def examples(full: int) -> int:
    """The number of examples of a test that makes this many in the profile ``full``."""
    return max(1, full * settings().max_examples // _FULL)
