"""A public page: every visitor has a database of their own, and a share of the page's time."""
