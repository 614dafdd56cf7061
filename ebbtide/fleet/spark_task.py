"""What each task does in an executor of Spark's. It loads nothing: Spark imports the data source wherever it
looks for any.
"""

from __future__ import annotations

import sys
from zipimport import zipimporter


def forget_archives() -> None:
    """In a task, for the next one, which Spark begins with `importlib.invalidate_caches` (until 4.2, by its
    SPARK-54744).

    Of an archive Python 3.11 then reads the whole directory again, needed or not (CPython's gh-103200): of
    ``pyspark.zip``, which is on each executor's path, that takes a fifth of a second. A finder that is not
    there any more is made again by the next import that wants it.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
