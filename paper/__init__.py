"""The paper's tables and figures, measured again: `python -m paper table7`. It reads both packages; no wheel has it."""
