"""``python -m tests.native.soak [--records N] [--mutants N] [--seed N]``: what test_parity.py compares, at length."""

from __future__ import annotations

import argparse
import sys
from random import Random

from tests.native.cases import UglyWays, Ways, mutant, schema_of, value_of
from tests.stages.avro.evolution import Evolution
from tests.stages.avro.test_ugly_schemas import records as made
from tests.stages.avro.ugly import Ugly

_VALUES_PER_SCHEMA = 50
_ROWS_PER_BATCH = 37
# One mutant of so many is read with all of the stage, and so many are rows of a batch.
_IN_FULL, _ROWS = 20, 3


def main() -> None:
    """Compare, and print what was reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--mutants", type=int, default=10, help="of each record")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    random = Random(arguments.seed)
    schemas = records = written = mutants = taken = rows = columns = resolved = 0
    while records < arguments.records:
        ways = Ways(schema_of(random))
        schemas += 1
        batch: list[bytes | None] = []
        for _ in range(_VALUES_PER_SCHEMA):
            records += 1
            data = ways.compare_written(value_of(random, ways.parsed, ways.named, random.choice((0, 0, 0, 0.05))))
            if data is None:
                continue
            written += 1
            ways.compare_read(data)
            for _ in range(arguments.mutants):
                mutants += 1
                mutated = mutant(random, data)
                taken += (ways.compare_taken if mutants % _IN_FULL else ways.compare_read)(mutated)
                if mutants % _IN_FULL < _ROWS:
                    batch.append(random.choice((data, data, data, data, mutated, None)))
        for at in range(0, len(batch), _ROWS_PER_BATCH):
            array = ways.compare_columns(batch[at : at + _ROWS_PER_BATCH])
            if array is not None:
                columns += ways.compare_array_written(array) + ways.compare_array_written(array[random.randrange(9) :])
        case = Evolution(random.randrange(2**32))
        pair = Ways(case.writer, case.reader)
        good = [data for _ in range(_ROWS_PER_BATCH) if (data := pair.compare_written(case.value())) is not None]
        for data in good:
            resolved += pair.compare_read(data)
            pair.compare_read(mutant(random, data))
        pair.compare_columns([*good, *(mutant(random, data) for data in good)], case.reader)
        rows += len(batch) + 2 * len(good)
        mutants += _compare_ugly(random, arguments.mutants)
        if schemas % 100 == 0:
            counts = f"{schemas} schemas, {records} records ({written} valid), {mutants} mutants ({taken} taken)"
            sys.stdout.write(f"{counts}, {rows} rows, {columns} written, {resolved} resolved\n")
            sys.stdout.flush()


def _compare_ugly(random: Random, count: int) -> int:
    """Read records of an ugly schema, and so many mutants of each; returns the number of mutants."""
    ugly = Ugly(random.randrange(2**32))
    ways, good = UglyWays(ugly), made(ugly, _ROWS_PER_BATCH)
    damaged = [mutant(random, data) for data in good for _ in range(count)]
    for data in (*good, *damaged):
        ways.compare_read(data)
    ways.compare_columns([*good, *damaged[:_ROWS_PER_BATCH]])
    return len(damaged)


if __name__ == "__main__":
    main()
