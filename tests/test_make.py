"""`make test` runs every test once."""

from __future__ import annotations

import re

from tests.helpers import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def _streams() -> list[tuple[list[str], list[str]]]:
    """(folders, ignored folders) of every pytest command of `make test`; no folders means all."""
    streams = []
    command = r"^test-[\w-]+: \$\(PACKAGES\)\n\t.*\$\(STREAM\)(.*) \$\(ARGS\)$"
    for words in re.findall(command, MAKEFILE, re.MULTILINE):
        words = re.sub(r"\$\(wildcard (\S+)\)", _found, words)
        assert "-m" not in words.split(), "streams are folders, whatever the other marks"
        ignored = re.findall(r"--ignore=(\S+)", words)
        streams.append(([word for word in words.split() if not word.startswith("-")], ignored))
    return streams


def _found(wildcard: re.Match[str]) -> str:
    return " ".join(path.relative_to(ROOT).as_posix() for path in ROOT.glob(wildcard[1]))


def _holds(folders: list[str], place: str) -> bool:
    return any((place + "/").startswith(folder + "/") for folder in folders)


def test_every_test_file_belongs_to_one_stream():
    streams = _streams()
    names = re.search(r"^STREAMS := (.*)$", MAKEFILE, re.MULTILINE)
    assert names is not None
    assert len(streams) == len(names[1].split()) == 5
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(files) > 200
    for file in files:
        owners = [
            folders
            for folders, ignored in streams
            if (not folders or _holds(folders, file)) and not _holds(ignored, file)
        ]
        assert len(owners) == 1, (file, owners)
