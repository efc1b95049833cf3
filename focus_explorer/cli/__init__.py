"""The `focus-explorer` command: one file per subcommand."""
