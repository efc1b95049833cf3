"""Tables for reading compile, or keep their columns, whatever the tokens are."""

from __future__ import annotations

import re
import shutil
import subprocess

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from focus_explorer.exports.tables.latex import HEADER, ONE_PAGE, escape_latex, latex_table
from focus_explorer.exports.tables.reading import markdown_table
from focus_explorer.exports.tables.sources import TABLES
from focus_explorer.exports.tables.write import write_table
from focus_explorer.statistics.rows import StatisticRow, to_table

CHARACTERS = """%&_$#{}\\^~🙂\x00\x07\n\t\u200b\u202e"`éßﬁ–][*\ufeff"""
WORDS = ("日本", "=cmd|' /C calc'!A0", "--", "?`", "<<", " the", "‹F0 9F›", "\\end{tabular}", "\\\\", "%%", "&&")
NASTY = [*CHARACTERS, *WORDS, "👩\u200d🚀", "عربي", "a\x85b", ""]
PREAMBLE = r"""\documentclass{article}
\usepackage{booktabs,longtable,array,siunitx}
%s
\begin{document}
%s
\end{document}
"""
SETTING = {
    "run_id": "20260101-000000-abc_%",
    "model_id": "a_b&c",
    "centroids": "~/x#1.pt",
    "num_groups": 4,
    "top_k": 1,
    "window": 8,
    "num_sinks": 2,
    "assignment": "causal",
}


def with_setting(rows, **changes):
    for key, value in (SETTING | changes).items():
        rows = rows.append_column(key, pa.array([value] * rows.num_rows))
    return rows


def nasty_tokens(copies=1):
    pieces = NASTY * copies
    values = [None, -0.00001, float("inf"), 12.5] * len(pieces)
    return with_setting(
        pa.table(
            {
                "position": list(range(len(pieces))),
                "piece": pieces,
                "nll_full": values[: len(pieces)],
                "nll_focus": [0.5] * len(pieces),
                "nll_difference": [-1.25] * len(pieces),
            }
        )
    )


def compiled(engine, folder, *tables, fonts=""):
    """Compile tables; the engine's log and the PDF's text."""
    if shutil.which(engine) is None or shutil.which("pdftotext") is None:
        pytest.skip(f"{engine} is not installed")
    names = []
    for number, text in enumerate(tables):
        (folder / f"table{number}.tex").write_text(text, encoding="utf-8")
        names.append(rf"\input{{table{number}}}")
    (folder / "paper.tex").write_text(PREAMBLE % (fonts, "\n".join(names)), encoding="utf-8")
    command = [engine, "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=300)
    assert done.returncode == 0, done.stdout[-2000:]
    said = subprocess.run(["pdftotext", "-layout", "paper.pdf", "-"], cwd=folder, capture_output=True, text=True)
    return (folder / "paper.log").read_text(errors="replace"), said.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "fonts"),
    [("lualatex", ""), ("pdflatex", r"\usepackage[T1]{fontenc}"), pytest.param("pdflatex", "", marks=pytest.mark.long)],
)
def test_nasty_pieces_compile(tmp_path, engine, fonts):
    short = latex_table(nasty_tokens().slice(0, ONE_PAGE - 1), "tokens", 1000)
    long = latex_table(nasty_tokens(2), "tokens", 2 * len(NASTY))
    log, text = compiled(engine, tmp_path, short, long, fonts=fonts)
    assert "Missing character" not in log
    assert "Undefined control sequence" not in log
    assert re.search(r"Overfull .hbox", log) is None
    for shown in ("U+1F642", "\\u{202e}", "0.500", "12.500", "39 of 1,000 rows"):
        assert shown in " ".join(text.split()), shown
    if fonts or engine == "lualatex":
        plain = text.replace("’", "'").replace("”", '"')
        for piece in ("=cmd|' /C calc'!A0", "\\end{tabular}", "%%", "&&", "{", "}", "^", "~", "é", "--"):
            assert piece.replace(" ", "␣") in plain or piece in plain.replace("␣", " "), piece


@pytest.mark.long
def test_every_table_of_a_run_compiles(tmp_path, service, run_id):
    quick = [what for what in TABLES if what not in ("agreement", "statistics", "distances")]
    with service.database.read():  # opened once for all
        texts = [
            write_table(service.database, run_id, what, "latex", tmp_path / f"{what}.tex", rows=60).read_text()
            for what in quick
        ]
    log, text = compiled("lualatex", tmp_path, *texts)
    assert "Missing character" not in log
    assert all(TABLES[what].split()[0] in text for what in quick)
    assert max(map(float, re.findall(r"Overfull .hbox \(([\d.]+)pt", log)), default=0) < 1


def test_numbers_are_aligned_and_long_tables_break():
    row = {
        "scope": "layer",
        "statistic": "nmi",
        "category": "pos",
        "denominator": "tokens",
        "units": 20,
        "unit": "sentence",
    }
    rows = with_setting(
        to_table(
            [
                StatisticRow(value=0.42, low=0.4, high=0.44, count=1200, layer=3, shuffled=0.01, **row),
                StatisticRow(value=-12.0, low=-13.0, high=None, count=80, layer=11, **row),
            ]
        )
    )
    text = latex_table(rows, "statistics", 2)
    assert text.startswith(HEADER)
    # the group of a layer and what was not measured have no column
    assert (
        r"\begin{tabular}{S[table-format=2]>{\raggedright\arraybackslash}p{0.19\linewidth}lS[table-format=-2.3]cS[table-format=1.3]S[table-format=4]}"
        in text
    )
    assert r"3 & nmi & pos & 0.420 & 0.400 to 0.440 & 0.010 & 1200 \\" in text
    assert r"11 & nmi & pos & -12.000 & {\textendash{}} & {\textendash{}} & 80 \\" in text
    assert "{95 \\% interval}" in text
    assert r"\label{tab:focus-statistics-20260101-000000-abc}" in text
    long = latex_table(nasty_tokens(2), "tokens", 2 * len(NASTY))
    assert r"\endfirsthead" in long
    assert r"\begin{table}" not in long


def test_escaping_leaves_nothing_active():
    text = escape_latex("".join(NASTY))
    bare = re.sub(
        r"\\Focus(Char|Code)\{[0-9A-F]+\}(\{.\})?|\\(?:text[a-z]+|char34)\{\}|\\[{}%&#$_]|\$\\times\$", "", text
    )
    assert not set(bare) & set("%&#$_^~\\<>|`\"'")
    assert bare.count("{") == bare.count("}")
    assert escape_latex(" a ", spaces=True) == r"\textvisiblespace{}a\textvisiblespace{}"
    assert escape_latex("a-b, c--d") == "a-b, c-{}-d"


def test_markdown_keeps_its_columns():
    pieces = ["|", "a|b", "`x`", "<b>", "\n", "*", "\\|", "🙂"]
    rows = pa.table({"position": list(range(8)), "piece": pieces, "nll_full": [None, *[-0.00001] * 7]})
    rows = with_setting(rows, model_id="m|x")
    lines = markdown_table(rows, "tokens", 8).splitlines()
    body = [line for line in lines if line.startswith("| ")]
    assert len(body) == 10
    assert all(line.replace("\\|", "").count("|") == 4 for line in body)
    assert "<b>" not in "".join(lines)
    assert body[2].endswith("| – |")
    assert body[3].endswith("| 0.000 |")  # not -0.000
