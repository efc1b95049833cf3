"""The doctor: whether an attention patch computes what it should, on any model."""
