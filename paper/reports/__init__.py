"""The paper's tables and figures, measured again: one function a table, from a `Lab` to a `Report`."""
