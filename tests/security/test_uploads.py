"""Uploaded files lie where their server's user alone can read them, and do not stay."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from focus_explorer.web.hosting.uploads import private_uploads, sweep


def test_the_folder_is_private_and_gone_with_its_process(tmp_path):
    code = """
import os, sys
from focus_explorer.web.hosting.uploads import private_uploads
folder = private_uploads(sys.argv[1])
print(os.environ["GRADIO_TEMP_DIR"] == str(folder), oct(folder.stat().st_mode & 0o777))
"""
    environment = {name: value for name, value in os.environ.items() if name != "GRADIO_TEMP_DIR"}
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.stdout.split() == ["True", "0o700"], done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_server_left_is_swept_and_nothing_else(tmp_path, monkeypatch):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = tmp_path / f"focus-explorer-uploads-{ended.pid}-abc"
    alive = tmp_path / f"focus-explorer-uploads-{os.getpid()}-abc"
    other = tmp_path / "focus-explorer-uploads-notes"
    target = tmp_path / "mine"
    for folder in (left, alive, other, target):
        folder.mkdir()
        (folder / "file").write_text("x")
    link = tmp_path / f"focus-explorer-uploads-{ended.pid}-link"
    link.symlink_to(target)
    sweep(tmp_path)
    assert not left.exists()
    for kept in (alive, other, target, link):
        assert (kept / "file").exists()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no users here")
def test_the_users_own_choice_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "chosen"))
    made = private_uploads(tmp_path)
    assert os.environ["GRADIO_TEMP_DIR"] == str(tmp_path / "chosen")
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
