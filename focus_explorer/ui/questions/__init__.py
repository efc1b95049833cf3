"""Named questions of the browser, one file per view."""
