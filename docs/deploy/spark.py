"""The pod job on Spark 4: spark-submit spark.py QUOTES OUT

QUOTES is a folder of Parquet files, or a URL of one. A bucket of surfaces is one Arrow table.
"""

import sys

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import crc32
from pyspark.sql.pandas.types import from_arrow_schema

from calibration import calibrate_table
from pricing import Heston


def fitted(quotes: pa.Table) -> pa.Table:
    import jax  # on the executor

    jax.config.update("jax_enable_x64", True)
    order = [(name, "ascending") for name in ("surface", "expiry", "strike")]
    return calibrate_table(quotes.sort_by(order), Heston)


if __name__ == "__main__":
    source, out = sys.argv[1:]
    spark = SparkSession.builder.appName("calibrate").getOrCreate()
    quotes = spark.read.parquet(source)
    of_none = fitted(pa.table({name: [] for name in quotes.columns}))
    buckets = quotes.groupBy((crc32("surface") % 64).alias("bucket"))
    fits = buckets.applyInArrow(fitted, from_arrow_schema(of_none.schema))
    fits.coalesce(1).orderBy("id").write.mode("overwrite").parquet(out)
