"""Named requests of the browser, one file per view."""
