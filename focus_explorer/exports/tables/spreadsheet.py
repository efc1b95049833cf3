"""Text cells that a spreadsheet would run as a formula get an apostrophe in front, which it shows as text.

A token can be any text, so `=cmd|...` in a document would otherwise reach whoever opens the exported file.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

STARTS = ("=", "+", "-", "@", "\t", "\r")
_PATTERN = "^[=+@\\t\\r-]"


def escape_formulas(rows: pa.Table) -> pa.Table:
    """The table with an apostrophe before every text cell that starts with one of `STARTS`; numbers stay."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            column = rows.column(place)
            risky = pc.match_substring_regex(column, _PATTERN)
            if pc.any(risky).as_py():
                quoted = pc.binary_join_element_wise(pa.scalar("'", field.type), column, pa.scalar("", field.type))
                rows = rows.set_column(place, field, pc.if_else(risky, quoted, column))
    return rows
