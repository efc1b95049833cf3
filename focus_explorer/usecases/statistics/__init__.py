"""Statistics of stored runs: measurements they need, and payloads for the page."""
