"""Stages: one entry for each name that a configuration can give, with both directions in it."""
