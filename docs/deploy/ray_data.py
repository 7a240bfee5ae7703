"""The pod job on Ray Data: python ray_data.py QUOTES OUT.parquet

QUOTES is a folder of Parquet files, or a URL of one. Rows of a surface go to one block, in their order.
"""

import sys

import pyarrow as pa
import pyarrow.parquet
import ray

from calibration import calibrate_table
from pricing import Heston


def fitted(quotes: pa.Table) -> pa.Table:
    return calibrate_table(quotes.sort_by("surface"), Heston)


if __name__ == "__main__":
    source, out = sys.argv[1:]
    ray.init(runtime_env={"env_vars": {"JAX_ENABLE_X64": "1"}})
    ray.data.DataContext.get_current().shuffle_strategy = "hash_shuffle"
    quotes = ray.data.read_parquet(source).repartition(8, keys=["surface"])
    fits = quotes.map_batches(fitted, batch_size=None, batch_format="pyarrow")
    table = pa.concat_tables(ray.get(fits.to_arrow_refs()))
    pyarrow.parquet.write_table(table.sort_by("id").combine_chunks(), out)
