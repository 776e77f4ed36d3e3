"""Light curves and cut-outs of a survey's alerts, out of Kafka and through Spark: the code of docs/alerts.md.

Starts a Kafka broker and Spark, draws the pictures into a folder, and stops both:

    pip install '.[services,avro,compression]' matplotlib
    python examples/alerts.py FOLDER

It is outside the packages, since it is meant to be read and changed rather than imported. The tests run it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from pyspark.sql import DataFrame, SparkSession, functions

from serde_chain import Producer
from serde_chain.spark import decode
from serde_chain.testing.alerts import ALERT_SCHEMA, alert, demo_sizes
from serde_chain.testing.services import KafkaBroker, spark_session


def configuration(bootstrap_servers: str, payloads: str) -> dict[str, Any]:
    """One configuration for the producer and for Spark."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "value.serializers": "avro, zstd, large-message",
        "value.deserializers": "large-message, zstd, avro",
        "avro.schema": ALERT_SCHEMA,
        "large.message.payload.store.class": "local",
        "local.path": payloads,
    }


def produce_alerts(config: dict[str, Any], topic: str, count: int) -> None:
    """Produce alerts of 1 KB to 20 MB; what is above the broker's limit goes to the payload store."""
    with Producer(config) as producer:
        for number, size in enumerate(demo_sizes(count)):
            producer.produce(topic, alert(number, size))
        producer.flush(60)


def read_alerts(spark: SparkSession, config: dict[str, Any], topic: str) -> DataFrame:
    """Read a topic's alerts, a row each."""
    source = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", config["bootstrap.servers"])
        .option("subscribe", topic)
        .option("includeHeaders", "true")  # references to payloads are marked by headers
    )
    return source.load().transform(decode(config)).select("value.*")


def detections(alerts: DataFrame) -> DataFrame:
    """Make a row of each detection, its brightness as an AB magnitude."""
    return (
        alerts.where("size(light_curve) > 100")
        .select("object_id", functions.explode("light_curve").alias("point"))
        .select("object_id", "point.*")
        .where("flux > 5 * flux_error")
        .withColumn("magnitude", functions.expr("31.4 - 2.5 * log10(flux)"))
        .withColumn("magnitude_error", functions.expr("2.5 / ln(10) * flux_error / flux"))
        .drop("flux", "flux_error")
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
    brightest = curves.groupby("object_id")["magnitude"].min().nsmallest(4).index
    figure = Figure(figsize=(6.4, 5.2), dpi=150, layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    for axis, name in zip(axes.flat, brightest, strict=True):
        curve = curves[curves["object_id"] == name]
        for band, (colour, marker) in BANDS.items():
            points = curve[curve["band"] == band]
            axis.errorbar(
                points["mjd"],
                points["magnitude"],
                yerr=points["magnitude_error"],
                fmt=marker,
                color=colour,
                markersize=4,
                label=band,
            )
        axis.set_title(name, fontsize="medium")
        axis.grid(alpha=0.3)
    axes[0, 0].invert_yaxis()  # brighter is up; the four share their axes
    axes[0, 0].locator_params("x", nbins=5)
    figure.supxlabel("modified Julian date (days)")
    figure.supylabel("AB magnitude")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=5, title="band")
    return figure


def draw_cutouts(alerts: DataFrame) -> Figure:
    """Draw the images of the three alerts whose objects are brightest now, of those with large ones."""
    names = ("science", "template", "difference")
    rows = alerts.where("science.width > 60 and magnitude is not null").orderBy("magnitude").limit(3)
    figure = Figure(figsize=(6.4, 6.9), dpi=100, layout="constrained")
    axes = figure.subplots(3, 3)
    for row, line in zip(rows.select("object_id", "magnitude", *names).collect(), axes, strict=True):
        for name, axis in zip(names, line, strict=True):
            image = row[name]
            pixels = np.frombuffer(image["pixels"], "<f4").reshape(image["height"], image["width"])
            axis.imshow(pixels, cmap="gray", vmin=-3, vmax=20, origin="lower")
            axis.set_title(name, fontsize="medium")
            axis.set_xlabel(f"{image['width']} pixels")
            axis.set(xticks=[], yticks=[])
        line[0].set_ylabel(f"{row['object_id']}\n{row['magnitude']:.1f} mag")
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
