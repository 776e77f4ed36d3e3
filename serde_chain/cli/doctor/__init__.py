"""``serde-chain doctor``: finds mismatches between a configuration, its topics, its stores and its registry.

``examine.py`` contains the function, and the list of the checks.
"""
