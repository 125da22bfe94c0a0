"""The data source `odradek_iceberg`: writes rows to an Iceberg table, by pyiceberg and without a JAR.

As in `source`, PySpark creates an object in a short-lived process per step, so each method imports what only it needs.
"""

import sys
from typing import Any

from pyspark.sql.datasource import DataSource

from odradek.model import ConfigurationError
from odradek.spark.brief_errors import brief_errors
from odradek.spark.source import COMMITS


class OdradekIcebergDataSource(DataSource):  # type: ignore[misc]
    """An Iceberg table as a sink."""

    @classmethod
    def name(cls) -> str:
        return "odradek_iceberg"

    @brief_errors()
    def schema(self) -> Any:
        """Refuse to read: other readers of Iceberg tables are faster."""
        raise ConfigurationError(
            "odradek_iceberg only writes: read the table with DuckDB, Polars, pyiceberg, or Spark with Iceberg's JAR"
        )

    @brief_errors()
    def writer(self, schema: Any, overwrite: bool) -> Any:  # noqa: FBT001
        """Return a batch writer. Raise `ConfigurationError` for mode `overwrite`."""
        if overwrite:
            raise ConfigurationError(
                'odradek_iceberg replaces no table: write with .mode("append"); the option mode = upsert replaces rows'
            )
        from odradek.spark.tables.options import parse_table_options
        from odradek.spark.tables.writers import TableBatchWriter

        return TableBatchWriter(parse_table_options(self.options), schema)

    @brief_errors()
    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802, FBT001
        """Return a stream writer. Raise `ConfigurationError` for the output mode `complete`."""
        if overwrite:
            raise ConfigurationError("odradek_iceberg replaces no table: the output mode complete is not for it")
        from odradek.spark.tables.options import parse_table_options
        from odradek.spark.tables.writers import TableStreamWriter

        return TableStreamWriter(parse_table_options(self.options), schema, with_plan=COMMITS not in sys.modules)
