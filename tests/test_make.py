"""`make test` runs every test once."""

from __future__ import annotations

import re

from tests.helpers import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
MARKS = ("browser", "slow", "model", "gpu")


def _streams():
    """(marker expression, folders) of every pytest command of `make test`; no folders means all."""
    commands = re.findall(
        r"^test-\w+: setup\n\t.*-m pytest -m (\"[^\"]+\"|\w+)((?: tests\S*)*) \$\(ARGS\)$", MAKEFILE, re.M
    )
    return [(expression.strip('"'), folders.split()) for expression, folders in commands]


def test_each_combination_of_marks_belongs_to_one_stream():
    streams = _streams()
    assert len(streams) == 3
    for bits in range(2 ** len(MARKS)):
        marked = {mark: bool(bits >> place & 1) for place, mark in enumerate(MARKS)}
        assert sum(bool(eval(expression, {}, marked)) for expression, _ in streams) == 1, marked


def test_a_stream_of_some_folders_has_all_tests_with_its_mark():
    limited = [(expression, folders) for expression, folders in _streams() if folders]
    assert [expression for expression, _ in limited] == ["browser"]
    marked = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"mark\.browser\b", path.read_text(encoding="utf-8")) and path.name != "test_make.py"
    ]
    assert marked
    assert [path for path in marked if not path.startswith(tuple(limited[0][1]))] == []
