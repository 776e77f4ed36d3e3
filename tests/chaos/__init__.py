"""Chaos, seeded: processes that are killed, interrupted and replaced, and what must be true afterwards.

Each round is a function of a :class:`Cluster` and a seed. It raises :class:`ChaosError` with its kind and seed if
something is lost, comes twice, out of order or half written; the same seed makes the same records and the same faults::

    from tests.chaos import ROUNDS, Cluster

    with KafkaBroker() as broker, Cluster(broker.client_config(), folder, broker) as cluster:
        for seed in range(10):
            ROUNDS["killed producer"](cluster, seed)

``python -m tests.chaos --rounds 200`` runs all of them, one after the other, on a broker of its own.
"""

from tests.chaos.cluster import ChaosError, Cluster, Outcome
from tests.chaos.rounds import ROUNDS

__all__ = ["ROUNDS", "ChaosError", "Cluster", "Outcome"]
