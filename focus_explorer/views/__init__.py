"""Rows -> what the browser draws; pure functions that import neither torch nor duckdb."""
