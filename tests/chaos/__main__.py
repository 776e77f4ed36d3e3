"""Chaos for as long as is asked: ``python -m tests.chaos --rounds 200``."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from serde_chain.testing.services import KafkaBroker
from tests.chaos import ROUNDS, ChaosError, Cluster, Outcome


def main() -> int:
    """Run rounds, one after the other, and say what came of them; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="how many, over all kinds (default: 200)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first round; the others follow (default: 0)")
    parser.add_argument("--kind", action="append", choices=[*ROUNDS], help="only rounds of this kind; may be repeated")
    arguments = parser.parse_args()
    kinds = arguments.kind or [*ROUNDS]
    logging.disable(logging.WARNING)
    failures: list[ChaosError] = []
    sums: defaultdict[str, list[Outcome]] = defaultdict(list)
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="serde-chain-chaos-") as folder,
        KafkaBroker() as broker,
        Cluster(broker.client_config(), Path(folder), broker) as cluster,
    ):
        for number in range(arguments.rounds):
            kind, seed = kinds[number % len(kinds)], arguments.seed + number // len(kinds)
            try:
                sums[kind].append(ROUNDS[kind](cluster, seed))
            except ChaosError as error:
                failures.append(error)
                _say(f"FAILED {error}")
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{number + 1} of {arguments.rounds} rounds, {len(failures)} failed ")
    if sys.stderr.isatty():
        sys.stderr.write("\n")
    _say(f"{'round':22} {'runs':>5} {'killed':>7} {'records':>8} {'acknowledged':>13} {'deleted':>8} {'leftovers':>10}")
    for kind in kinds:
        outcomes = sums[kind]
        columns = (
            sum(outcome.killed for outcome in outcomes),
            sum(outcome.records for outcome in outcomes),
            sum(outcome.acknowledged for outcome in outcomes),
            sum(outcome.deleted for outcome in outcomes),
            sum(outcome.leftovers for outcome in outcomes),
        )
        _say("{:22} {:5} {:7} {:8} {:13} {:8} {:10}".format(kind, len(outcomes), *columns))
    _say(f"{len(failures)} of {arguments.rounds} rounds failed, {time.monotonic() - begun:.0f} s")
    return 1 if failures else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":  # the processes of rounds import this module, too
    sys.exit(main())
