"""Corpora: what a user requests, its analysis, and the register of those analysed."""
