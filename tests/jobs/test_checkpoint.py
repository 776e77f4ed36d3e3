"""The progress of migrations in a folder, which both engines read and write."""

from collections.abc import Callable
from pathlib import Path

import pytest

from serde_chain.errors import JobError
from serde_chain.jobs.local.migrating import LocalCheckpoint
from serde_chain.jobs.migrating import Checkpoint, State
from serde_chain.jobs.migration_plan import Done
from tests.jobs.conftest import ENGINES

Opened = Callable[[Path], Checkpoint]
STATES = [State("name", "a", "b", under_way=True, done={0: Done(at), 7: Done(2 * at, 1, 1, 0)}) for at in range(12)]


@pytest.fixture(params=ENGINES)
def opened(request: pytest.FixtureRequest) -> Opened:
    """A checkpoint of either engine."""
    if request.param == "local":
        return LocalCheckpoint
    from serde_chain.spark.jobs.migrating import SparkCheckpoint

    spark = request.getfixturevalue("spark")
    return lambda path: SparkCheckpoint(spark, str(path))


def test_the_last_state_counts_whoever_wrote_it(opened: Opened, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "checkpoint"
    assert opened(folder).read() is None
    for state in STATES:  # more than nine: versions are numbers
        one = opened(folder) if state is STATES[1] else LocalCheckpoint(folder)
        one.read()
        one.write(state)
        assert LocalCheckpoint(folder).read() == state
    assert opened(folder).read() == STATES[-1]


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(JobError, match=r"cannot be written: [^/]*\. .*--checkpoint"):
        LocalCheckpoint(file).write(STATES[0])
    for content in ('{"version": 1', "[]", '{"version": "1", "state": 2}\n{"version": 1, "state": "{}"}', "{}"):
        folder = tmp_path / "folder"
        folder.mkdir(exist_ok=True)
        (folder / "part-0.json").write_text(content)
        with pytest.raises(JobError, match="cannot be read"):
            LocalCheckpoint(folder).read()


def test_a_write_that_was_killed_leaves_the_state_before(tmp_path: Path) -> None:
    checkpoint = LocalCheckpoint(tmp_path)
    checkpoint.write(STATES[0])
    (tmp_path / ".part-00002.json").write_text('{"version": 2, "st')
    assert LocalCheckpoint(tmp_path).read() == STATES[0]
