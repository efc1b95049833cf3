"""Figures as PDF, SVG, PNG and HTML files."""
