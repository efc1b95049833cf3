"""Tables as CSV, JSON, Parquet, LaTeX and Markdown files."""
