"""The DuckDB store: schema, connections and the writer."""
