"""`make test` runs every test once, and fails when one does."""

from __future__ import annotations

import os

import pytest

from tests.__main__ import LONGEST, folders, start
from tests.helpers import ROOT


def test_every_test_file_belongs_to_one_folder():
    files = [file for found in folders().values() for file in found]
    assert len(files) > 200
    assert sorted(files) == sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/test_*.py"))
    assert all((ROOT / folder).is_dir() for folder in LONGEST)


@pytest.mark.slow
@pytest.mark.parametrize(("body", "code"), [("assert True", 0), ("assert False", 1), ("1 +", 2)])
def test_a_failure_is_the_exit_code_of_its_folder(tmp_path, body, code):
    (tmp_path / "test_one.py").write_text(f"def test_one():\n    {body}\n")
    process = start("tests", [str(tmp_path / "test_one.py")], ["-p", "no:cacheprovider"], tmp_path / "output")
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == code
