"""Stages: one entry for each name that a configuration can use, with both directions in it."""
