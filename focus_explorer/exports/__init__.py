"""Stored runs -> files for papers."""
