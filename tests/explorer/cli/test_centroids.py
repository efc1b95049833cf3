"""`focus-explorer centroids check`."""

from __future__ import annotations

import json

from focus_explorer.cli.main import main
from tests.explorer.cli.conftest import one_error


def test_centroids_check(tmp_path, capsys):
    assert main(["centroids", "check", "default", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["num_groups"] == 8
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"\x10\0\0\0\0\0\0\0{broken")
    one_error(capsys, main(["centroids", "check", str(bad)]), "bad.safetensors")
