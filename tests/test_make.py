"""`make test` runs every test once."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.helpers import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
MARKS = ("browser", "slow", "model", "gpu")
PLACES = ("tests/explorer/exports", "tests/explorer/services", "tests/browser", "tests/runtime", "tests")


def _streams() -> list[tuple[str, list[str], list[str]]]:
    """(marker expression, folders, ignored folders) of every pytest command of `make test`; no folders means all."""
    command = r"^(test-[\w-]+): setup\n\t.*-m pytest -m (\"[^\"]+\"|\w+)(.*) \$\(ARGS\)$"
    streams = []
    for _, expression, rest in re.findall(command, MAKEFILE, re.MULTILINE):
        words = rest.split()
        ignored = [word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")]
        streams.append((expression.strip('"'), [word for word in words if not word.startswith("-")], ignored))
    return streams


def _combinations() -> Iterator[dict[str, bool]]:
    for bits in range(2 ** len(MARKS)):
        yield {mark: bool(bits >> place & 1) for place, mark in enumerate(MARKS)}


def _holds(folders: list[str], place: str) -> bool:
    return any((place + "/").startswith(folder + "/") for folder in folders)


def test_a_test_of_any_marks_in_any_folder_belongs_to_one_stream():
    streams = _streams()
    names = re.search(r"^STREAMS := (.*)$", MAKEFILE, re.MULTILINE)
    assert names is not None
    assert len(streams) == len(names[1].split()) == 3
    for marked in _combinations():
        for place in PLACES:
            if marked["browser"] and place not in ("tests/browser", "tests/explorer/exports"):
                continue  # the next test
            owners = [
                expression
                for expression, folders, ignored in streams
                if eval(expression, {}, marked)
                and (not folders or _holds(folders, place))
                and not _holds(ignored, place)
            ]
            assert len(owners) == 1, (place, marked, owners)


def test_browser_tests_lie_where_their_stream_looks():
    [folders] = [folders for expression, folders, _ in _streams() if expression == "browser"]
    marked = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"mark\.browser\b", path.read_text(encoding="utf-8")) and path.name != "test_make.py"
    ]
    assert marked
    assert [path for path in marked if not _holds(folders, path)] == []
