"""The demo's alerts: the same each time, of the size that was asked for, and of one object throughout."""

import math
from datetime import UTC, datetime

import numpy as np
import pytest

from serde_chain import SerializerChain
from serde_chain.testing.alerts import ALERT_SCHEMA, alert, demo_sizes

MJD_OF_2026 = 61041


@pytest.mark.parametrize("size", [1_000, 5_000, 100_000, 5_000_000])
def test_sizes(size: int) -> None:
    with SerializerChain.from_config({"value.serializer": "avro", "avro.schema": ALERT_SCHEMA}) as avro:
        encoded = avro(alert(3, size))
    assert alert(3, size) == alert(3, size) != alert(4, size)
    assert encoded is not None
    assert len(encoded) == pytest.approx(size, rel=0.05 if size > 4096 else 0.6)
    with SerializerChain.from_config({"value.serializer": "zstd"}) as zstd:
        compressed = zstd(encoded)
    assert compressed is not None
    assert len(compressed) > 0.9 * len(encoded)
    assert list(demo_sizes(60))[50] == 20_000_000


def test_light_curves() -> None:
    for number in range(50):
        record = alert(number, 10_000)
        times, fluxes, errors = (
            [point[name] for point in record["light_curve"]] for name in ("mjd", "flux", "flux_error")
        )
        assert times == sorted(times)
        days = (record["observed_at"] - datetime(2026, 1, 1, tzinfo=UTC)).total_seconds() / 86_400
        assert times[-1] == pytest.approx(MJD_OF_2026 + days, abs=1e-6)
        assert max(fluxes) > 5 * errors[fluxes.index(max(fluxes))]
        # Before it is there, there is noise.
        assert max(fluxes[:5]) < 5 * errors[0]
        if record["magnitude"] is None:
            assert fluxes[-1] < 5 * errors[-1]
        else:
            assert record["magnitude"] == pytest.approx(31.4 - 2.5 * math.log10(fluxes[-1]), abs=1e-4)


def test_images() -> None:
    record = alert(8, 300_000)
    science, template, difference = (
        np.frombuffer(record[name]["pixels"], "<f4").reshape(record[name]["height"], record[name]["width"])
        for name in ("science", "template", "difference")
    )
    np.testing.assert_allclose(science - template, difference, atol=1e-4)
    assert template.max() > 15 > difference.max()
    assert alert(8, 4_000)["science"] is None
