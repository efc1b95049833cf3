"""Centroid files: found by name, checked, kept, described and compared."""
