"""`focus-explorer serve` ends with an error line before it serves what cannot be used."""

from __future__ import annotations

import pytest

from focus_explorer.cli.main import main


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--port", "70000"], "port 70000"),
        (["--host", "no.such.host.invalid"], "no.such.host.invalid"),
        (["--centroids", "nowhere.safetensors"], "nowhere.safetensors"),
        (["--model", "who-knows"], "who-knows"),
        (["--repeats", "0"], "repeats is 0"),
    ],
)
def test_serve_refuses_before_it_serves(tmp_path, capsys, flags, part):
    assert main(["serve", "--db", str(tmp_path / "x.duckdb"), *flags]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert part in errors[0]
