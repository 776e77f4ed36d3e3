"""A minute of chaos; `make chaos` has more."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from serde_chain.testing.services import KafkaBroker
from tests.chaos import ROUNDS, ChaosError, Cluster
from tests.chaos.cluster import payload, payload_number

QUICK = [
    "killed producer",
    "killed transactions",
    "interrupted producer",
    "interrupted consumer",
    "signalled consumer",
    "changing limit",
]
SERVICES = ["killed relay", "killed offload server"]
GROUPS = ["member leaves", "member killed"]


@pytest.fixture
def cluster(broker: KafkaBroker, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(broker.client_config(), tmp_path) as cluster:
        yield cluster


@pytest.mark.full
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", QUICK)
def test_nothing_is_lost(cluster: Cluster, kind: str, seed: int) -> None:
    outcome = ROUNDS[kind](cluster, seed)
    assert outcome.acknowledged <= outcome.records
    assert outcome.leftovers == 0 or outcome.killed


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
def test_a_producer_that_is_fenced(cluster: Cluster, seed: int) -> None:
    outcome = ROUNDS["fenced producer"](cluster, seed)
    assert outcome.acknowledged < outcome.records


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", SERVICES)
def test_services_come_back(cluster: Cluster, kind: str, seed: int) -> None:
    outcome = ROUNDS[kind](cluster, seed)
    assert 0 < outcome.acknowledged == outcome.records
    assert outcome.leftovers >= 0


@pytest.mark.full
@pytest.mark.parametrize("kind", GROUPS)
def test_groups_hand_everything_over(cluster: Cluster, kind: str) -> None:
    assert ROUNDS[kind](cluster, 1).acknowledged == 120


@pytest.mark.full
def test_a_broker_that_comes_back(tmp_path: Path) -> None:
    """A broker of its own, which is started twice."""
    with KafkaBroker() as broker, Cluster(broker.client_config(), tmp_path, broker) as cluster:
        assert ROUNDS["killed broker"](cluster, 1).records == 40


def test_a_broker_that_cannot_be_killed(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="can be killed"):
        ROUNDS["killed broker"](cluster, 1)


def test_every_round_is_tried() -> None:
    assert {*QUICK, *SERVICES, *GROUPS, "fenced producer", "killed broker"} == ROUNDS.keys()


def test_values_tell_whether_they_are_whole() -> None:
    for large in (True, False):
        value = payload(7, 3, large=large)
        assert payload_number(value) == 3
        assert value == payload(7, 3, large=large)
        with pytest.raises(ChaosError, match="record 3 is damaged"):
            payload_number(value + b"x")


def test_a_failure_names_its_seed() -> None:
    error = pickle.loads(pickle.dumps(ChaosError("lost", "killed producer", 42)))  # noqa: S301  our own
    assert str(error) == "lost [killed producer, seed 42]"
