"""The name by which Spark finds the data source: it imports every installed ``pyspark_*`` (Spark >= 4.1).

What fails to import here would fail every other data source as well: nothing is imported but Spark.
"""

from ebbtide.fleet.spark import DefaultSource

__all__ = ["DefaultSource"]
