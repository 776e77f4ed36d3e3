"""Benchmarks: every figure is a ratio of medians, measured side by side in one run. See ``python -m benchmarks -h``."""
