"""``serde-chain doctor``: what is wrong between a configuration, its topics, its stores and its registry.

``examine.py`` has the function, and the list of the checks.
"""
