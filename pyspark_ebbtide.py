"""The name by which Spark finds the data source: it imports every installed ``pyspark_*`` (Spark >= 4.1).

What fails to import here would fail every other data source as well: nothing is imported but what every
installation of ours has, and what Spark needs itself.
"""

from ebbtide.fleet.spark import DefaultSource

__all__ = ["DefaultSource"]
