"""Which token pairs may attend to each other, and counts of them."""
