"""Bundles: everything behind a result in one zip, and its tables rebuilt."""
