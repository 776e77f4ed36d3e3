"""Runs on the driver: plans and checks the work before a row is read."""
