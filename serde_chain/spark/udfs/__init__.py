"""Functions that Spark ships to its workers: how the driver makes them, and what a worker process needs."""
