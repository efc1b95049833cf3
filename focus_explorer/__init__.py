"""Focus Explorer: a dashboard and command line over the Focus runtime."""
