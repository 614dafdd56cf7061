"""The name by which Spark finds the data source: it imports every installed ``pyspark_*`` (Spark 4.1 and later).

What cannot be imported here would fail every other data source as well, so that nothing is imported but Spark.
"""

from ebbtide.fleet.spark import DefaultSource

__all__ = ["DefaultSource"]
