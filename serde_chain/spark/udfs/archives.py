"""Finders of modules in archives: Spark makes each read its archive again before every task."""

from __future__ import annotations

import sys
from zipimport import zipimporter

from pyspark import SparkFiles, TaskContext


def forget_archives() -> None:
    """Forget the finders of modules in archives; those in archives added to the session stay, since these may change.

    Before every task, Spark calls ``importlib.invalidate_caches``. Since Python 3.10 each finder then reads the
    directory of its archive again: of ``pyspark.zip``, once for each of its packages, and of ``spark-core.jar``, with
    its thousands of classes. That takes 0.17 s of CPU time per task. Python makes a finder anew when an import
    requires one, from the directory already read.
    """
    if TaskContext.get() is None:  # the driver's own finders
        return
    added = SparkFiles.getRootDirectory()
    for place, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and not place.startswith(added):
            del sys.path_importer_cache[place]
