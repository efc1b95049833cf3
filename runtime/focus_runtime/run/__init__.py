"""One text run under full attention and Focus."""
