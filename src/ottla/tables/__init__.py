"""Topics as Iceberg tables: a worker writes them, readers join them with the live log."""
