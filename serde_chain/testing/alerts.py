"""Alert-like records of a sky survey: nested Avro with light curves and image cut-outs, from 1 KB to 20 MB.

For the demo, the example in docs/alerts.md, and tests. A seed determines everything. Each alert shows a supernova
beside its galaxy; like real ones, its pixels are mostly noise, which compression cannot shrink much.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

__all__ = ["ALERT_SCHEMA", "alert", "demo_sizes"]

_CUTOUT: Final = {
    "type": "record",
    "name": "Cutout",
    "fields": [
        {"name": "width", "type": "int"},
        {"name": "height", "type": "int"},
        {"name": "format", "type": {"type": "enum", "name": "PixelFormat", "symbols": ["UINT8", "UINT16", "FLOAT32"]}},
        {"name": "pixels", "type": "bytes", "doc": "row by row, little-endian, the sky subtracted"},
    ],
}

ALERT_SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Alert",
    "namespace": "survey.example",
    "fields": [
        {"name": "alert_id", "type": "long"},
        {"name": "object_id", "type": "string"},
        {"name": "observed_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "position",
            "type": {
                "type": "record",
                "name": "Position",
                "fields": [
                    {"name": "ra", "type": "double", "doc": "degrees"},
                    {"name": "dec", "type": "double", "doc": "degrees"},
                ],
            },
        },
        {
            "name": "magnitude",
            "type": ["null", "float"],
            "default": None,
            "doc": "AB magnitude of the last measurement; null if that is no detection",
        },
        {"name": "host_galaxy", "type": ["null", "string"], "default": None},
        {
            "name": "light_curve",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Detection",
                    "fields": [
                        {"name": "mjd", "type": "double", "doc": "modified Julian date, in days"},
                        {"name": "flux", "type": "float", "doc": "nJy, above that of the template"},
                        {"name": "flux_error", "type": "float", "doc": "nJy, one standard deviation"},
                        {
                            "name": "band",
                            "type": {"type": "enum", "name": "Band", "symbols": ["u", "g", "r", "i", "z"]},
                        },
                    ],
                },
            },
        },
        {"name": "scores", "type": {"type": "map", "values": "float"}},
        {"name": "science", "type": ["null", _CUTOUT], "default": None},
        {"name": "template", "type": ["null", "Cutout"], "default": None},
        {"name": "difference", "type": ["null", "Cutout"], "default": None},
    ],
}

_FIRST_NIGHT: Final = datetime(2026, 1, 1, tzinfo=UTC)
_FIRST_MJD: Final = 61041.0
_BYTES_PER_DETECTION: Final = 17
_AB_ZERO_POINT: Final = 31.4  # magnitude of 1 nJy
_SKY_NJY: Final = 1500.0
_DETECTED: Final = 5  # standard deviations
# By band: peak brightness, and the days after which it has fallen by a factor of e.
_BANDS: Final = {"u": (0.5, 12.0), "g": (1.0, 18.0), "r": (0.9, 28.0), "i": (0.7, 38.0), "z": (0.6, 45.0)}
_RISE_DAYS: Final = 3.0


def alert(number: int, size: int) -> dict[str, Any]:
    """Create one alert.

    Args:
        number: Its number; the same number and size give the same alert.
        size: Approximate size in Avro, in bytes.

    Returns:
        A record of :data:`ALERT_SCHEMA`.
    """
    source = random.Random(number)  # noqa: S311, reproducible test data
    detections = max(min(size // 3, 3000) // _BYTES_PER_DETECTION, 1)
    seconds = 39 * number + source.random()
    light_curve = _light_curve(source, detections, until=_FIRST_MJD + seconds / 86_400)
    brightness = light_curve[-1]["flux"] / _SKY_NJY
    pixels = max(size - detections * _BYTES_PER_DETECTION - 150, 0) // 3
    science, template, difference = _cutouts(number, pixels, brightness) if size > 4096 else (None, None, None)
    return {
        "alert_id": 10_000_000 + number,
        "object_id": f"SRV26{source.randrange(36**5):08d}",
        "observed_at": _FIRST_NIGHT + timedelta(microseconds=int(seconds * 1e6)),
        "position": {"ra": source.uniform(0, 360), "dec": source.uniform(-90, 90)},
        "magnitude": _magnitude(light_curve[-1]),
        "host_galaxy": source.choice([None, "NGC 4993", "M 51"]),
        "light_curve": light_curve,
        "scores": {name: _single(source.random()) for name in ("real", "supernova", "variable")},
        "science": science,
        "template": template,
        "difference": difference,
    }


def demo_sizes(count: int, seed: int = 1159) -> Iterator[int]:
    """Sizes in bytes of a stream of alerts: most small, some far above a broker's limit of a megabyte.

    Args:
        count: Number of alerts; of at least 100, one in a hundred exceeds 8 MB, and the largest has 20 MB.
        seed: The stream's seed.

    Yields:
        Sizes from 1,000 to 20,000,000. 300 of them add up to about 160 MB.
    """
    source = random.Random(seed)  # noqa: S311, reproducible test data
    for number in range(count):
        if number % 100 == 50:
            yield 20_000_000 if number < 100 else source.randrange(8_000_000, 14_000_000)
        elif number % 12 == 5:
            yield source.randrange(1_200_000, 6_000_000)
        else:
            yield int(10 ** source.uniform(3, 5.3))


def _light_curve(source: random.Random, count: int, until: float) -> list[dict[str, Any]]:
    """Measure a supernova once a night, in varying bands; the last time at ``until``, an MJD."""
    peak = 10 ** ((_AB_ZERO_POINT - source.uniform(17, 20)) / 2.5)
    begin = until - count * source.uniform(0.15, 0.6)
    measured = []
    for night in reversed(range(count)):
        mjd = until - night - (source.random() / 10 if night else 0)
        band = source.choice([*_BANDS])
        flux = peak * _brightness(mjd - begin, band)
        error = math.hypot(_SKY_NJY, 0.02 * flux)
        measured.append(
            {"mjd": mjd, "flux": _single(source.gauss(flux, error)), "flux_error": _single(error), "band": band}
        )
    return measured


def _brightness(days: float, band: str) -> float:
    """The brightness of a supernova, days after its explosion, as in Bazin et al. (2009, A&A 499, 653)."""
    peak, fall_days = _BANDS[band]
    return peak * math.exp(-max(days, 0) / fall_days) / (1 + math.exp(-days / _RISE_DAYS))


def _magnitude(measured: dict[str, Any]) -> float | None:
    if measured["flux"] < _DETECTED * measured["flux_error"]:
        return None
    return _single(_AB_ZERO_POINT - 2.5 * math.log10(measured["flux"]))


def _cutouts(number: int, size: int, brightness: float) -> list[dict[str, Any]]:
    """Create the images: supernova and galaxy, the galaxy alone, and the difference.

    Args:
        number: The alert's number.
        size: Approximate size of each image in bytes.
        brightness: The supernova's, in standard deviations of the sky.
    """
    import numpy as np

    width = max(int((size // 4) ** 0.5), 1)
    height = max(size // 4 // width, 1)
    noise = np.random.default_rng(number).standard_normal((2, height, width), np.float32)

    def spot(peak: float, x: float, y: float, width_x: float, width_y: float) -> Any:
        """A Gaussian; positions and widths are fractions of the image's size."""
        across = np.exp(-(((np.arange(width) / width - x) / width_x) ** 2) / 2)
        down = np.exp(-(((np.arange(height) / height - y) / width_y) ** 2) / 2)
        return np.outer(peak * down, across).astype(np.float32)

    galaxy = spot(20, 0.42, 0.55, 0.12, 0.07)
    template = galaxy + 0.4 * noise[0]  # a stack of many exposures has less noise
    # The brightness is measured over several pixels, so a single pixel stands out less.
    science = galaxy + spot(brightness / 3, 0.5, 0.5, 0.025, 0.025) + noise[1]
    return [
        {"width": width, "height": height, "format": "FLOAT32", "pixels": pixels.astype("<f4").tobytes()}
        for pixels in (science, template, science - template)
    ]


def _single(number: float) -> float:
    """A number rounded to a 32-bit float, so that a record equals itself after a round trip."""
    rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return rounded
