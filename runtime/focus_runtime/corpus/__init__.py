"""Corpora: many documents analysed one by one and written as Parquet."""
