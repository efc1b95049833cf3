"""The mask of one layer pair by pair, as files."""
