"""The check, without a broker."""

import pytest

from serde_chain.stamp.check import GAP, MALFORMED, REPEAT, TIME, UNFRAMED, Finding, FrameChecker, Report
from serde_chain.wire.entry_metadata import frame


def looked(values: list[bytes | None]) -> list[Finding]:
    checker = FrameChecker()
    return [finding for offset, value in enumerate(values) for finding in checker.look(0, offset, value)]


def indexed(*indexes: int) -> list[bytes | None]:
    return [frame(b"", index=index) for index in indexes]


@pytest.mark.parametrize(
    ("values", "findings"),
    [
        ([], []),
        (indexed(0, 1, 2), []),
        (indexed(7, 8, 9), []),  # retention took what was before
        ([*indexed(0), None, *indexed(1)], []),
        (indexed(0, 2, 3), [Finding(GAP, 0, 1, 1, 2)]),
        (indexed(0, 1, 1, 2), [Finding(REPEAT, 0, 2, 2, 1)]),
        (indexed(0, 1, 2, 0, 1, 3), [Finding(REPEAT, 0, 3, 3, 0), Finding(REPEAT, 0, 4, 3, 1)]),
        ([*indexed(0), b"plain", *indexed(1)], [Finding(UNFRAMED, 0, 1)]),
        ([b"\x0e\x02\x00"], [Finding(MALFORMED, 0, 0)]),
        (
            [frame(b"", broker_timestamp=time) for time in (5, 5, 4, 4, 6)],
            [Finding(TIME, 0, 2, 5, 4), Finding(TIME, 0, 3, 5, 4)],
        ),
    ],
)
def test_findings(values: list[bytes | None], findings: list[Finding]) -> None:
    assert looked(values) == findings


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (Finding(GAP, 2, 7, 4, 6), "partition 2, offset 7: the index is 6, expected 4"),
        (Finding(REPEAT, 2, 7, 4, 3), "partition 2, offset 7: the index 3 is a repeat, expected 4"),
        (Finding(TIME, 2, 7, 5, 4), "partition 2, offset 7: the time is 4 ms, after 5 ms"),
        (Finding(UNFRAMED, 2, 7), "partition 2, offset 7: the record has no entry metadata"),
        (Finding(MALFORMED, 2, 7), "partition 2, offset 7: the entry metadata is malformed"),
    ],
)
def test_a_finding_in_words(finding: Finding, text: str) -> None:
    assert str(finding) == text


def test_partitions_are_apart() -> None:
    checker = FrameChecker()
    for partition in (0, 1):
        assert checker.look(partition, 0, frame(b"", index=5 * partition, broker_timestamp=9 - partition)) == []


def test_a_report_keeps_the_first_thousand() -> None:
    report = Report()
    for offset in range(1500):
        report.add([Finding(UNFRAMED, 0, offset)])
    assert (report.records, report.counts[UNFRAMED], len(report.findings)) == (1500, 1500, 1000)
