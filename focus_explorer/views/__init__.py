"""Rows -> what the browser draws; pure functions that know nothing of torch or of the database."""
