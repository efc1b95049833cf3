"""Reports as files: Markdown, CSV, LaTeX, JSON, figures, and one page of all."""
