"""Changes made to a stored run: measured, saved as a run of their own, repeated, refused in words."""

from __future__ import annotations

import base64
import json
import threading

import numpy as np
import pytest

from focus_explorer.cli.main import main
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import Cancelled, InputError
from focus_explorer.exports.bundle.manifest import describe_run
from focus_explorer.exports.bundle.read import Run
from focus_explorer.exports.bundle.rerun import recorded_models, run_again
from focus_explorer.usecases.compare.costs import measure_heads
from focus_explorer.usecases.compare.jobs import Comparisons
from focus_explorer.usecases.compare.settings import measure_again
from focus_explorer.usecases.compare.what_if import WhatIfs, repeated_by, save_changed
from focus_explorer.usecases.run_payload import layer_cells
from focus_explorer.usecases.service import Service
from focus_explorer.web.requests.dispatch import dispatch

pytestmark = pytest.mark.slow

CHANGES = ["move:0:60:B", "see:1:100:3", "silence:1:A", "k:0:1=2"]


@pytest.fixture(scope="module")
def saved(two_runs):
    """(service, a run, the same run saved with `CHANGES`)."""
    service, first, _ = two_runs
    return service, first, save_changed(service, first, CHANGES, command=repeated_by(first, CHANGES))


def losses(service, run_id):
    return np.array(fetch(service.database, "focus_losses", run_id=run_id)["nll"].to_pylist())


def test_a_saved_run_has_the_losses_that_were_measured(saved):
    service, first, changed = saved
    found = service.part(WhatIfs).measure(first, CHANGES)
    differences = np.frombuffer(base64.b64decode(found["changes"]), dtype=np.float32)
    expected = losses(service, changed) - losses(service, first)
    np.testing.assert_allclose(differences[1:], expected, atol=2e-5)
    assert found["nll_after"] == pytest.approx(losses(service, changed).mean(), abs=1e-5)
    assert found["difference"]["mean"] == pytest.approx(expected.mean(), abs=1e-6)
    kept = {
        row["layer"]: row["retained_pairs"] for row in fetch(service.database, "layers", run_id=changed).to_pylist()
    }
    assert {layer["layer"]: layer["kept_after"] for layer in found["layers"]} == pytest.approx(kept)


def test_it_says_what_it_is_and_how_to_make_it(saved):
    service, first, changed = saved
    run = fetch_run(service.database, changed)
    assert json.loads(run["changes"]) == CHANGES
    assert (
        run["command"] == f"focus-explorer what-if {first} " + " ".join(f"--set {text}" for text in CHANGES) + " --save"
    )
    assert f"Changed by hand: {', '.join(CHANGES)}." in json.loads(run["notes"])
    assert run["name"].startswith("What if: move:0:60:B")
    assert json.loads(fetch_run(service.database, first)["changes"]) == []


def test_the_stored_pairs_have_the_link(saved):
    service, _, changed = saved
    with service.database.read() as connection:
        query = "SELECT cause FROM pairs WHERE run_id = ? AND layer = 1 AND query = 100 AND key = 3"
        assert set(connection.execute(query, [changed]).fetchall()) == {("group_only",)}
    cells = layer_cells(service.database, changed, 1)
    bits = np.frombuffer(base64.b64decode(cells["membership"]), dtype=f"u{cells['width']}")
    assert bits[100] & bits[3]
    assert not (bits & 1).any()  # group A is silent


def test_changes_of_a_changed_run_add_up(saved):
    service, first, changed = saved
    found = service.part(WhatIfs).measure(changed, ["silence:0:C"])
    once = service.part(WhatIfs).measure(first, [*CHANGES, "silence:0:C"])
    assert found["nll_after"] == pytest.approx(once["nll_after"], abs=1e-6)
    assert found["nll_before"] == pytest.approx(losses(service, changed).mean(), abs=1e-5)


def test_what_is_measured_of_a_changed_run_has_its_changes(saved):
    service, _, changed = saved
    run, expected = fetch_run(service.database, changed), losses(service, changed).mean()
    assert measure_heads(service, changed, verify=0)["nll_focus"] == pytest.approx(expected, abs=1e-5)
    own = json.loads(run["config"])
    cells = [("focus", own["top_k"], own["window"])]
    cell = measure_again(service, changed, cells, progress=lambda stage, part: None)[0]
    assert np.log(cell["perplexity_focus"]) == pytest.approx(expected, abs=1e-5)


def test_a_bundle_makes_it_again(saved, tmp_path):
    service, _, changed = saved
    entry, text = describe_run(service, service.database, changed, with_text=True)
    assert entry["changes"] == CHANGES
    run = Run.model_validate(entry | {"tables": []})
    here = Service(tmp_path / "again.duckdb", models=recorded_models(run))
    run_again(here, run, iter([("text", text)]), "random", progress=lambda stage, part: None)
    np.testing.assert_allclose(losses(here, changed), losses(service, changed), atol=1e-6)
    assert fetch_run(here.database, changed)["changes"] == json.dumps(CHANGES)


def test_the_command_line_measures_and_saves(saved, tmp_path, capsys):
    service, first, _ = saved
    words = ["what-if", first, "--set", CHANGES[0], "--set", CHANGES[1], "--db", str(service.database.path)]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["set"] == CHANGES[:2]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert f"{np.exp(found['nll_after']):.3f} with them" in printed
    assert main([*words, "--save", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)["saved"]
    assert losses(service, made).mean() == pytest.approx(found["nll_after"], abs=1e-5)


def test_analyze_takes_changes(saved, model_folder, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("The harbour was quiet. " * 8)
    words = ["analyze", str(text), "--model", model_folder, "--centroids", "random", "--window", "4", "--repeats", "1"]
    words += ["--db", str(tmp_path / "runs.duckdb"), "--json"]
    assert main(words) == main([*words, "--set", "silence:0:A", "--set", "full:1"]) == 0
    plain, changed = map(json.loads, capsys.readouterr().out.splitlines())
    assert changed["changes"] == ["silence:0:A", "full:1"]
    assert changed["perplexity"]["full"] == plain["perplexity"]["full"]
    assert changed["perplexity"]["focus"] != plain["perplexity"]["focus"]
    assert main([*words, "--set", "silence:9:A"]) == 2
    assert "layer 9 does not run Focus" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["move:0:60:Z"], "there is no group Z"),
        (["move:7:60:A"], "layer 7 does not run Focus"),
        (["see:0:3:60"], "cannot see a later one"),
        (["silence:0:A", "what"], "'what' is no change"),
        (["move:0:120:A"], "no token 120; expected 0 to 119"),
    ],
)
def test_what_is_impossible_is_refused_before_anything_starts(two_runs, changes, said):
    service, first, _ = two_runs
    for what in ("what_if_start", "what_if_save"):
        with pytest.raises(InputError, match=said):
            dispatch(service, {"what": what, "run": first, "changes": changes})
    job = service.part(Comparisons).status()
    assert job is None or job["state"] != "running"


def test_the_same_may_be_asked_for_twice_at_once(two_runs, monkeypatch):
    service, first, _ = two_runs
    go_on = threading.Event()
    monkeypatch.setattr(WhatIfs, "measure", lambda *_, **__: go_on.wait(30))
    request = {"what": "what_if_start", "run": first, "changes": ["silence:0:D"]}
    try:
        assert dispatch(service, request)["job"]["state"] == dispatch(service, request)["job"]["state"] == "waiting"
        with pytest.raises(InputError, match="another comparison"):
            dispatch(service, request | {"changes": ["silence:0:C"]})
    finally:
        go_on.set()


def test_of_a_long_text_the_beginning_is_read(two_runs, monkeypatch):
    service, first, _ = two_runs
    monkeypatch.setattr("focus_explorer.usecases.compare.what_if.MOST_TOKENS", 50)
    own = WhatIfs(service)
    found = own.measure(first, ["silence:1:A"])
    assert found["num_tokens"] == 50
    assert found["nll_before"] == pytest.approx(losses(service, first)[:49].mean(), abs=1e-5)
    with pytest.raises(InputError, match="expected a token from 0 to 49"):
        own.measure(first, ["move:1:50:A"])


def test_stopped_it_keeps_nothing(two_runs, monkeypatch):
    service, first, _ = two_runs
    own = WhatIfs(service)
    with monkeypatch.context() as patch:
        patch.setattr("focus_explorer.usecases.compare.what_if.stop_requested", lambda: True)
        with pytest.raises(Cancelled):
            own.measure(first, ["silence:1:B"])
    assert own.measured(first, ["silence:1:B"], 1, 3) == {"result": None, "pairs": None, "prediction": None}
    assert own.measure(first, ["silence:1:B"])["layers"]
