"""Files and folders written whole or not at all."""

from __future__ import annotations

import os
import stat

import pytest

from focus_runtime.errors import CentroidFileError, InputError
from focus_runtime.files import (
    PART,
    cannot_write,
    check_writable,
    check_writable_folder,
    remove_parts,
    replacing,
    replacing_folder,
)


def permissions(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def failing_rename(monkeypatch):
    def fail(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("focus_runtime.files.os.replace", fail)
    monkeypatch.setattr("focus_runtime.files.os.rename", fail)


def test_a_file_appears_when_the_block_ends_and_not_before(tmp_path):
    target = tmp_path / "new" / "folder" / "a.csv"
    with replacing(target) as part:
        assert part.parent == target.parent
        assert part.suffix == ".csv"
        part.write_text("whole")
        assert not target.exists()
    assert target.read_text() == "whole"
    assert os.listdir(target.parent) == ["a.csv"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError("no"), OSError(28, "No space left on device")])
def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path, error):
    target = tmp_path / "a.csv"
    target.write_text("old")

    def interrupted():
        with replacing(target) as part:
            part.write_text("ha")
            raise error

    with pytest.raises((KeyboardInterrupt, ValueError)):
        interrupted()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.csv"]


def test_permissions_are_the_requested_ones(tmp_path):
    with replacing(tmp_path / "public"):
        pass
    with replacing(tmp_path / "private", mode=0o600):
        pass
    with replacing_folder(tmp_path / "folder"):
        pass
    with replacing_folder(tmp_path / "own", mode=0o700):
        pass
    modes = {path.name: permissions(path) for path in tmp_path.iterdir()}
    assert modes == {"public": 0o644, "private": 0o600, "folder": 0o755, "own": 0o700}


def test_a_synchronised_write_reaches_the_disk_before_the_rename(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr("focus_runtime.files.os.fsync", lambda handle: (calls.append("fsync"), fsync(handle)))
    monkeypatch.setattr("focus_runtime.files.os.replace", lambda a, b: (calls.append("replace"), replace(a, b)))
    with replacing(tmp_path / "a", sync=True) as part:
        part.write_text("kept")
    assert calls == ["fsync", "replace"]
    with replacing(tmp_path / "b"):
        pass
    assert calls == ["fsync", "replace", "replace"]


def test_the_caller_chooses_type_and_words_of_the_error(tmp_path, failing_rename):
    target = tmp_path / "a"
    default = r"cannot write .*a: Permission denied; choose a writable folder with space"
    with pytest.raises(InputError, match=default), replacing(target):
        pass
    explain = cannot_write("free some space", CentroidFileError, problem="cannot keep")
    words = r"cannot keep .*a: Permission denied; free some space"
    with pytest.raises(CentroidFileError, match=words), replacing(target, explain=explain):
        pass
    with pytest.raises(PermissionError), replacing(target, explain=None):
        pass
    with pytest.raises(CentroidFileError, match="cannot keep"), replacing_folder(target, explain=explain):
        pass
    assert os.listdir(tmp_path) == []


def enter(context):
    with context:
        pass


@pytest.mark.parametrize(
    "write",
    [
        lambda path: enter(replacing(path)),
        lambda path: enter(replacing_folder(path)),
        check_writable,
        lambda path: check_writable_folder(path.parent),
    ],
)
def test_where_nothing_can_be_written_it_is_reported(write, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot write"):
        write(tmp_path / "file" / "a")
    if os.geteuid() != 0:  # root may write anywhere
        tmp_path.chmod(0o500)
        try:
            with pytest.raises(InputError, match="Permission denied"):
                write(tmp_path / "a")
        finally:
            tmp_path.chmod(0o700)
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_in_place_of_a_file_is_reported(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"cannot write .*folder: it is a folder"):
        check_writable(tmp_path / "folder")
    with pytest.raises(InputError, match=r"cannot write .*folder: "):
        enter(replacing(tmp_path / "folder"))
    assert os.listdir(tmp_path) == ["folder"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "new" / "a"
    with replacing_folder(target) as part:
        (part / "x").write_text("1")
        assert not target.exists()
    assert os.listdir(target.parent) == ["a"]

    def interrupted():
        with replacing_folder(tmp_path / "b") as part:
            (part / "x").write_text("1")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.listdir(tmp_path) == ["new"]


def test_an_empty_folder_is_replaced_and_one_with_content_is_not(tmp_path):
    target = tmp_path / "a"
    target.mkdir()
    with replacing_folder(target) as part:
        (part / "x").write_text("1")
    with pytest.raises(InputError, match="cannot write"), replacing_folder(target) as part:
        (part / "x").write_text("2")
    assert (target / "x").read_text() == "1"
    assert os.listdir(tmp_path) == ["a"]


def test_an_occupied_folder_is_cleared_as_often_as_another_process_is_faster(tmp_path):
    target, cleared = tmp_path / "a", []

    def clear():
        cleared.append((target / "x").read_text())
        target.rename(tmp_path / f"old-{len(cleared)}")
        if len(cleared) == 1:
            target.mkdir()
            (target / "x").write_text("another process")

    target.mkdir()
    (target / "x").write_text("earlier")
    with replacing_folder(target, clear=clear) as part:
        (part / "x").write_text("new")
    assert (target / "x").read_text() == "new"
    assert cleared == ["earlier", "another process"]


def test_a_folder_that_stays_occupied_is_an_error(tmp_path):
    target = tmp_path / "a"
    target.mkdir()
    (target / "x").touch()
    occupied = pytest.raises(InputError, match="is written to by somebody else")
    with occupied, replacing_folder(target, clear=lambda: None):
        pass
    assert os.listdir(tmp_path) == ["a"]


def test_a_check_makes_the_folder_and_leaves_it_empty(tmp_path):
    check_writable_folder(tmp_path / "new" / "folder")
    assert os.listdir(tmp_path / "new" / "folder") == []
    check_writable(tmp_path / "other" / "a.json")
    assert os.listdir(tmp_path / "other") == []


def test_parts_of_killed_processes_are_removed(tmp_path):
    (tmp_path / f"{PART}1").mkdir()
    (tmp_path / f"{PART}1" / "x").touch()
    (tmp_path / f"{PART}2").touch()
    (tmp_path / "kept").touch()
    remove_parts(tmp_path)
    assert os.listdir(tmp_path) == ["kept"]
