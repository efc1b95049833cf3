"""Reports of runs as HTML and PDF."""
