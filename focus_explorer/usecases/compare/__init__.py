"""Settings, runs and lengths compared with each other."""
