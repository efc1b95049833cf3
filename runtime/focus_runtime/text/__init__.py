"""Text -> tokens, sequences, tags and word classes."""
