"""On the executors: Spark's Python workers."""
