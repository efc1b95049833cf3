"""Where the page is served, and who may do what there."""
