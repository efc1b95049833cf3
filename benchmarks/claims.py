"""The table of claims and verdicts in a log, made again from the rows that `python -m paper` wrote.

The table stands between two comments, which are made at the end of the file where there are none:

    PYTHONPATH=runtime:. python benchmarks/claims.py --reports reproduced/small --log LOG.md
"""

from __future__ import annotations

import argparse
from pathlib import Path

from focus_runtime.files import replacing
from paper.output.page import claims_table

START, END = "<!-- claims: made by benchmarks/claims.py -->", "<!-- end of claims -->"


def with_claims(text: str, table: str) -> str:
    """A log with its table of claims replaced, or with one at its end."""
    if START not in text:
        return f"{text.rstrip()}\n\n{START}\n{table}{END}\n"
    before, rest = text.split(START, 1)
    return f"{before}{START}\n{table}{END}{rest.split(END, 1)[1]}"


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", required=True, type=Path, help="folder that `python -m paper` wrote to")
    parser.add_argument("--log", required=True, type=Path, help="Markdown file")
    arguments = parser.parse_args()
    text = arguments.log.read_text(encoding="utf-8")
    with replacing(arguments.log) as part:
        part.write_text(with_claims(text, claims_table(arguments.reports)), encoding="utf-8")


if __name__ == "__main__":
    main()
