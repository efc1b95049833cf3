"""Named read-only SQL -> Arrow, for runs and corpora."""
