"""Rows -> Plotly figures for print, one figure per file; pure functions."""
