"""The paper's tables, figures and baselines: a reader of the runtime and the explorer, beside them."""
