"""What the export of a mask is called and which formats it has; importing it costs nothing."""

from __future__ import annotations

MASK = "mask"  # its name among the exports
MASK_ABOUT = (
    "Every pair of tokens that one layer's mask keeps, with its cause; --layer is needed, --head where heads differ."
)
SUFFIXES = {"parquet": ".parquet", "npz": ".npz", "csv": ".csv"}
