"""A table for reading as LaTeX: booktabs, numbers aligned by siunitx, a longtable where it is longer than a page.

`escape_latex` is the one LaTeX escape of the project.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import pyarrow as pa

from focus_explorer.exports.tables.reading import Column, number, reading_columns, setting_sentence, shown_piece
from focus_explorer.exports.tables.sources import TABLE_DESCRIPTIONS

ONE_PAGE = 40  # rows
WIDE = 7  # columns, from which on type and gaps are smaller
_COMMANDS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "%": r"\%",
    "&": r"\&",
    "#": r"\#",
    "$": r"\$",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\char34{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "×": r"$\times$",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
}
_MATHEMATICS = {"τ": r"$\tau$", "≤": r"$\leq$", "≥": r"$\geq$", "−": r"$-$"}
_LIGATURES = ("--", ",,", "?`", "!`")  # that fonts make of two characters
# Accents that every engine sets without further packages.
_ACCENTS = {"̀", "́", "̂", "̃", "̈", "̊", "̌", "̧"}
HEADER = r"""% needs \usepackage{booktabs,longtable,array,siunitx}; with pdfLaTeX also \usepackage[T1]{fontenc}.
% LuaLaTeX and XeLaTeX print every character the font has; others, and all but accented Latin under pdfLaTeX, are
% printed as their number, such as U+1F642. A longtable finds its widths in two or three runs.
"""
MACROS = r"""\providecommand{\FocusCode}[1]{{\scriptsize U+#1}}
\providecommand{\FocusChar}[2]{\ifdefined\Umathchar\iffontchar\font"#1 #2\else\FocusCode{#1}\fi\else\FocusCode{#1}\fi}
"""


def latex_table(rows: pa.Table, what: str, total: int) -> str:
    """The rows to show, of `total`, with caption and label, to be read by `\\input`."""
    shown, columns = rows.to_pylist(), reading_columns(rows, what)
    caption = escape_latex(TABLE_DESCRIPTIONS[what]) + (
        " " + escape_latex(setting_sentence(shown[0])) if shown else " No rows."
    )
    if total > len(shown):
        caption += f" The first {len(shown):,} of {total:,} rows."
    label = f"tab:focus-{what}" + (f"-{re.sub('[^A-Za-z0-9-]', '', shown[0]['run_id'])}" if shown else "")
    specification = "".join(_alignment(shown, column) for column in columns)
    heading = " & ".join("{" + escape_latex(column.title) + "}" for column in columns) + r" \\"
    body = [" & ".join(_cell(row, column) for column in columns) + r" \\" for row in shown]
    head = HEADER
    if total > len(shown):
        head += f"% only the first {len(shown)} of {total} rows; choose how many with --rows\n"
    lines_of_a_row = 3 if any(column.kind == "prose" for column in columns) else 1
    frame = _long_table if len(shown) * lines_of_a_row > ONE_PAGE else short_table
    size = r"\small" if len(columns) < WIDE else r"\footnotesize\setlength{\tabcolsep}{3pt}"
    lines = frame(specification, heading, body, f"\\caption{{{caption}}}", label, size)
    return head + MACROS + "\n".join(lines) + "\n"


def short_table(
    specification: str, heading: str, body: list[str], caption: str, label: str, size: str = ""
) -> list[str]:
    """Lines of a table that fits on a page; `heading` and the lines of `body` end with a line break."""
    return [
        r"\begin{table}",
        r"\centering",
        *([size] if size else []),
        caption,
        f"\\label{{{label}}}",
        rf"\begin{{tabular}}{{{specification}}}",
        r"\toprule",
        heading,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def _long_table(specification: str, heading: str, body: list[str], caption: str, label: str, size: str) -> list[str]:
    head = [r"\toprule", heading, r"\midrule"]
    return [
        "{" + size,
        rf"\begin{{longtable}}{{{specification}}}",
        caption,
        rf"\label{{{label}}} \\",
        *(*head, r"\endfirsthead", *head, r"\endhead"),
        r"\bottomrule",
        r"\endlastfoot",
        *body,
        r"\end{longtable}",
        "}",
    ]


def _alignment(rows: list[dict[str, Any]], column: Column) -> str:
    if column.kind == "prose":
        return r">{\raggedright\arraybackslash}p{0.36\linewidth}"
    if column.kind == "name":
        return r">{\raggedright\arraybackslash}p{0.19\linewidth}"
    if column.kind not in ("whole", "number"):
        return "c" if column.kind == "interval" else "l"
    texts = [number(row[column.name], column) for row in rows if row[column.name] is not None]
    sign = "-" if any(text.startswith("-") for text in texts) else ""
    whole = max((len(text.lstrip("-").split(".")[0]) for text in texts), default=1)
    decimals = "" if column.kind == "whole" else f".{column.digits}"
    return f"S[table-format={sign}{whole}{decimals}]"


def _cell(row: dict[str, Any], column: Column) -> str:
    value = row[column.name]
    if value is None or (column.high and row[column.high] is None):
        return r"{\textendash{}}"
    if column.kind == "interval":
        return f"{_plain(value, column)} to {_plain(row[column.high], column)}"
    if column.kind in ("whole", "number"):
        text = number(value, column)
        return text if value - value == 0 else "{" + escape_latex(text) + "}"  # siunitx takes no inf
    if column.kind == "piece":
        return r"\texttt{" + escape_latex(shown_piece(value), spaces=True) + "}"
    if column.kind == "name":
        return escape_latex(str(value).replace("_", " "))
    return escape_latex(shown_piece(str(value)) if column.kind == "word" else str(value))


def _plain(value: float, column: Column) -> str:
    """A number in running text, with a minus instead of a hyphen."""
    text = number(value, column)
    return f"$-${text[1:]}" if text.startswith("-") else text


def escape_latex(text: str, *, spaces: bool = False, mathematics: bool = False) -> str:
    """Text that LaTeX prints as it is, in every engine; it uses `MACROS` where the text is not Latin.

    With `mathematics` τ, ≤, ≥ and the minus sign are set in math mode, which every font has.
    """
    commands = _COMMANDS | _MATHEMATICS if mathematics else _COMMANDS
    written = []
    for place, character in enumerate(text):
        ligature = text[place : place + 2] in _LIGATURES
        written.append(_character(character, commands, spaces) + ("{}" if ligature else ""))
    return "".join(written)


def _character(character: str, commands: dict[str, str], spaces: bool) -> str:
    if character in commands:
        return commands[character]
    if character == " ":
        return r"\textvisiblespace{}" if spaces else " "
    if character.isascii() and character.isprintable():
        return character
    if character in "\n\t":
        return " "
    parts = unicodedata.normalize("NFD", character)
    if len(parts) == 2 and parts[0].isascii() and parts[1] in _ACCENTS:
        return character
    code = f"{ord(character):04X}"
    return rf"\FocusChar{{{code}}}{{{character}}}" if character.isprintable() else rf"\FocusCode{{{code}}}"
