"""Runs on the executors: Spark's Python workers."""
