"""Light curves and cut-outs of a survey's alerts, out of Kafka and through Spark: the code of docs/alerts.md.

Starts a Kafka broker and Spark, draws the pictures into a folder, and stops both:

    pip install '.[services,avro,compression]' matplotlib astropy
    python examples/alerts.py FOLDER

It is outside the packages, since it is meant to be read and changed rather than imported. The tests run it.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits
from matplotlib.figure import Figure
from pyspark.sql import DataFrame, SparkSession, functions

from serde_chain import Producer
from serde_chain.spark import decode
from serde_chain.testing.alerts import alert, demo_sizes
from serde_chain.testing.services import KafkaBroker, spark_session


def record(name: str, **fields: Any) -> dict[str, Any]:
    """Make the Avro schema of a record."""
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


# As in Rubin's alerts, with few of their fields.
SOURCE = record("diaSource", midpointMjdTai="double", band="string", psfFlux="float", psfFluxErr="float")
SCHEMA = record(
    "alert",
    diaSourceId="long",
    diaObject=record("diaObject", diaObjectId="long", ra="double", dec="double"),
    diaSource=SOURCE,
    prvDiaSources={"type": "array", "items": "diaSource"},
    cutoutScience=["null", "bytes"],
    cutoutTemplate=["null", "bytes"],
    cutoutDifference=["null", "bytes"],
)


def packet(number: int, size: int) -> dict[str, Any]:
    """Make an alert: measurements in nJy, and each cut-out a FITS file."""
    synthetic = alert(number, size)
    *earlier, last = (
        {"midpointMjdTai": at["mjd"], "band": at["band"], "psfFlux": at["flux"], "psfFluxErr": at["flux_error"]}
        for at in synthetic["light_curve"]
    )
    return {
        "diaSourceId": synthetic["alert_id"],
        "diaObject": {"diaObjectId": int(synthetic["object_id"][3:]), **synthetic["position"]},
        "diaSource": last,
        "prvDiaSources": earlier,
        **{f"cutout{name}": fits_file(synthetic[name.lower()]) for name in CUTOUTS},
    }


CUTOUTS = ("Science", "Template", "Difference")


def fits_file(image: dict[str, Any] | None) -> bytes | None:
    """Write an image as FITS."""
    if image is None:
        return None
    file = io.BytesIO()
    fits.PrimaryHDU(np.frombuffer(image["pixels"], "<f4").reshape(image["height"], image["width"])).writeto(file)
    return file.getvalue()


def configuration(bootstrap_servers: str, payloads: str) -> dict[str, Any]:
    """One configuration for the producer and for Spark."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "value.serializers": "large-fields, avro",
        "value.deserializers": "avro, large-fields",
        "avro.schema": SCHEMA,
        "large.fields.paths": "cutout*",
        "large.message.payload.store.class": "local",
        "local.path": payloads,
    }


def produce_alerts(config: dict[str, Any], topic: str, count: int) -> None:
    """Produce alerts of 1 KB to 20 MB; their images go to the payload store."""
    with Producer(config) as producer:
        for number, size in enumerate(demo_sizes(count)):
            producer.produce(topic, packet(number, size))
        producer.flush(60)


def read_alerts(spark: SparkSession, config: dict[str, Any], topic: str) -> DataFrame:
    """Read a topic's alerts, a row each."""
    source = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", config["bootstrap.servers"])
        .option("subscribe", topic)
        .option("includeHeaders", "true")  # a header names the fields in the store
    )
    return source.load().transform(decode(config)).select("value.*")


def detections(alerts: DataFrame) -> DataFrame:
    """Make a row of each detection, its brightness as an AB magnitude."""
    return (
        alerts.where("size(prvDiaSources) > 100")
        .select("diaObject.diaObjectId", functions.expr("explode(array_append(prvDiaSources, diaSource))").alias("at"))
        .where("at.psfFlux > 5 * at.psfFluxErr")
        .select(
            "diaObjectId",
            "at.midpointMjdTai",
            "at.band",
            functions.expr("31.4 - 2.5 * log10(at.psfFlux)").alias("magnitude"),
            functions.expr("2.5 / ln(10) * at.psfFluxErr / at.psfFlux").alias("magnitude_error"),
        )
    )


# Colour and marker of each band; the colours are told apart by the colour-blind too (Okabe and Ito, 2008).
BANDS = {
    "u": ("#56b4e9", "o"),
    "g": ("#009e73", "^"),
    "r": ("#d55e00", "v"),
    "i": ("#cc79a7", "s"),
    "z": ("black", "*"),
}


def draw_light_curves(found: DataFrame) -> Figure:
    """Draw the four objects that became brightest."""
    curves = found.toPandas()
    brightest = curves.groupby("diaObjectId")["magnitude"].min().nsmallest(4).index
    figure = Figure(figsize=(6.4, 5.2), dpi=150, layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    for axis, name in zip(axes.flat, brightest, strict=True):
        curve = curves[curves["diaObjectId"] == name]
        for band, (colour, marker) in BANDS.items():
            points = curve[curve["band"] == band]
            axis.errorbar(
                points["midpointMjdTai"],
                points["magnitude"],
                yerr=points["magnitude_error"],
                fmt=marker,
                color=colour,
                markersize=4,
                label=band,
            )
        axis.set_title(str(name), fontsize="medium")
        axis.grid(alpha=0.3)
    axes[0, 0].invert_yaxis()  # brighter is up; the four share their axes
    axes[0, 0].locator_params("x", nbins=5)
    figure.supxlabel("modified Julian date (days)")
    figure.supylabel("AB magnitude")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=5, title="band")
    return figure


def draw_cutouts(alerts: DataFrame) -> Figure:
    """Draw the images of the three brightest of the larger alerts."""
    small = alerts.where("size(prvDiaSources) > 170").select("diaSourceId", "diaSource.psfFlux")
    brightest = [row["diaSourceId"] for row in small.orderBy("psfFlux", ascending=False).limit(3).collect()]
    found = {row["diaSourceId"]: row for row in alerts.where(functions.col("diaSourceId").isin(brightest)).collect()}
    figure = Figure(figsize=(6.4, 6.9), dpi=100, layout="constrained")
    axes = figure.subplots(3, 3)
    for row, line in zip((found[each] for each in brightest), axes, strict=True):
        for name, axis in zip(CUTOUTS, line, strict=True):
            pixels = fits.getdata(io.BytesIO(row[f"cutout{name}"]))
            axis.imshow(pixels, cmap="gray", vmin=-3, vmax=20, origin="lower")
            axis.set_title(name.lower(), fontsize="medium")
            axis.set_xlabel(f"{pixels.shape[1]} pixels")
            axis.set(xticks=[], yticks=[])
        line[0].set_ylabel(f"{row['diaObject']['diaObjectId']}\n{row['diaSource']['psfFlux'] / 1000:.0f} µJy")
    return figure


def main(folder: Path) -> dict[str, Figure]:
    """Run all steps, with a separate broker and Spark session; saves the figures, and returns them."""
    folder.mkdir(parents=True, exist_ok=True)
    topic = "alerts-to-draw"
    with tempfile.TemporaryDirectory() as payloads, KafkaBroker() as broker, spark_session("alerts") as spark:
        broker.create_topic(topic)
        config = configuration(broker.bootstrap_servers, payloads)
        produce_alerts(config, topic, 60)
        alerts = read_alerts(spark, config, topic)
        figures = {"light-curves": draw_light_curves(detections(alerts)), "cut-outs": draw_cutouts(alerts)}
    for name, figure in figures.items():
        picture = folder / f"{name}.png"
        figure.savefig(picture)
        print(picture)
    return figures


if __name__ == "__main__":
    main(Path(sys.argv[1]))
