"""``serde-chain demo``: records through a real broker, a store and Spark.

``alerts.py`` and ``hop.py`` are the two demos, of ``steps.py`` and ``sweep.py``.
"""
