"""Centroid files: looked up by name, checked, kept, described and compared."""
