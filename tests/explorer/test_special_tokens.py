"""A model whose texts begin with BOS: what is explored, shown, exported, made again, generated and trained."""

from __future__ import annotations

import pytest
import torch

from focus_explorer.cli.main import main
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import TextError
from focus_explorer.exports.bundle import write as bundle_tables
from focus_explorer.exports.bundle.read import read_bundle
from focus_explorer.exports.bundle.rebuild import rebuild
from focus_explorer.exports.bundle.write import write_bundle
from focus_explorer.exports.tables.sources import read
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.generate import LiveTexts
from focus_explorer.usecases.run_model import request_again
from focus_explorer.usecases.run_payload import load_run_of
from focus_explorer.usecases.runs import run_summary, run_text
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import count_tokens
from focus_explorer.web.requests.dispatch import dispatch
from focus_runtime.measure.loss import final_hidden, token_nll
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroid_file import load_centroids
from tests.explorer.conftest import ran
from tests.explorer.usecases.conftest import wait_for_job
from tests.helpers import build_bos_tokenizer, build_model
from tests.runtime.text.test_special import CHAT_TEMPLATE, LINES

TEXT = "The harbour was quiet — the cat sat on the mat & left 🙂.\n" * 8
LEFT_OUT = "The text was read without <bos>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny Gemma."""
    folder = tmp_path_factory.mktemp("tiny-gemma")
    build_model("Gemma3Text", vocab_size=512, sliding_window=64).save_pretrained(folder)
    build_bos_tokenizer(chat_template=CHAT_TEMPLATE).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    return Service(tmp_path_factory.mktemp("db") / "runs.duckdb")


@pytest.fixture(scope="module")
def explore(service, folder):
    def made(text=TEXT, **settings):
        request = AnalyzeRequest(model=folder, centroids="random", window=8, num_sinks=2, repeats=1, **settings)
        return analyze(service, text, request)

    return made


@pytest.fixture(scope="module")
def run_id(explore):
    return explore()


def test_a_run_begins_with_bos_scores_all_of_its_text_and_says_so(service, folder, run_id):
    summary = run_summary(service.database, run_id)
    assert (summary["special_tokens"], summary["added_tokens"]) == ("auto", ["<bos>"])
    first = fetch(service.database, "tokens", run_id=run_id).to_pylist()[0]
    assert (first["piece"], first["start_char"], first["end_char"]) == ("<bos>", 0, 0)
    assert run_text(service.database, run_id) == TEXT
    model, tokenizer = load_model(folder)
    ids = torch.tensor([tokenizer(TEXT)["input_ids"]])
    assert summary["scored_tokens"] == ids.shape[1] - 1
    loss = token_nll(model, final_hidden(model, ids), ids).double().mean().item()
    assert summary["perplexity"]["full"] == pytest.approx(torch.tensor(loss).exp().item(), rel=1e-4)
    info = load_run_of(service, run_id)["run"]
    assert info["added_tokens"] == ["<bos>"]
    assert not any(LEFT_OUT in note for note in info["notes"])
    assert count_tokens(service, folder, TEXT) == summary["num_tokens"]


def test_a_run_without_it_says_so_and_is_explored_again_without_it(service, explore, run_id):
    without = explore(special_tokens="none")
    summary = run_summary(service.database, without)
    assert (summary["special_tokens"], summary["added_tokens"]) == ("none", [])
    assert summary["num_tokens"] == run_summary(service.database, run_id)["num_tokens"] - 1
    assert any(LEFT_OUT in note for note in summary["notes"])
    assert request_again(service, fetch_run(service.database, without)).special_tokens == "none"
    assert request_again(service, fetch_run(service.database, run_id)).special_tokens == "auto"


def test_tables_say_what_the_text_begins_with(service, explore, run_id):
    for run, choice in ((run_id, "auto"), (explore(special_tokens="none"), "none")):
        assert set(next(read(service.database, run, "losses"))["special_tokens"].to_pylist()) == {choice}


def test_a_run_of_an_older_version_says_so_when_opened(service, explore):
    old = explore(special_tokens="none")
    with service.database.write() as connection:
        columns = "special_tokens = NULL, added_tokens = NULL, notes = '[]'"
        connection.execute(f"UPDATE runs SET {columns} WHERE run_id = ?", [old])
    assert "An older version read this text without <bos>" in load_run_of(service, old)["run"]["notes"][0]
    assert request_again(service, fetch_run(service.database, old)).special_tokens == "none"


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["auto", "none"])
def test_a_bundle_is_made_again_with_the_recorded_choice(service, explore, tmp_path, monkeypatch, choice):
    monkeypatch.setattr(bundle_tables, "TABLES", ("tokens", "losses"))
    run_id = explore(special_tokens=choice)
    bundle = write_bundle(service, [run_id], tmp_path / "bundle.zip", text=True, figures=False)
    text = read_bundle(bundle).manifest.runs[0].text
    assert (text.special_tokens, text.added_tokens) == (choice, ["<bos>"] if choice == "auto" else [])
    again = rebuild(Service(tmp_path / "nothing.duckdb"), bundle, tmp_path / "again")
    assert (again.tables, again.again) == ([], [run_id])


def test_a_prompt_and_a_text_being_typed_begin_with_bos(service, run_id):
    start = {"what": "compare_generation_start", "run": run_id, "prompt": "The harbour", "max_tokens": 3}
    dispatch(service, start)
    answer = wait_for_job(lambda: dispatch(service, {"what": "compare_generation", "run": run_id}))
    assert answer["job"]["state"] == "done", answer["job"]
    assert answer["sides"]["prompt_tokens"] == 1 + len("The harbour")
    assert LiveTexts(service).read(run_id, "The", "me")["pieces"] == ["<bos>", "T", "h", "e"]


def test_a_chat_is_stored_as_its_template_writes_it(service, explore, model_folder):
    run_id = explore(LINES, chat=True)
    text = run_text(service.database, run_id)
    assert text.startswith("<bos>[user]Is it quiet?")
    assert "special tokens: <bos>, </s> ×2." in " ".join(run_summary(service.database, run_id)["notes"])
    tokens = fetch(service.database, "tokens", run_id=run_id)
    assert tokens["piece"].to_pylist()[:2] == ["<bos>", "["]
    with pytest.raises(TextError, match="the model has no chat template"):
        analyze(service, LINES, AnalyzeRequest(model=model_folder, centroids="random", chat=True))


@pytest.mark.long
@pytest.mark.slow
def test_the_commands_record_the_choice_in_what_they_write(folder, tmp_path, capsys):
    (tmp_path / "text.txt").write_text(TEXT * 4)
    out, database = tmp_path / "made.safetensors", tmp_path / "runs.duckdb"
    train = ["train", "--text", tmp_path / "text.txt", "--out", out, "--model", folder, "--steps", 2, "--groups", 4]
    ran(capsys, *train, "--seq-len", 32, "--window", 8, "--no-db", "--json")
    assert load_centroids(out).training["special_tokens"] == "auto"
    short = ["--max-tokens", 60, "--repeats", 1, "--json"]
    analyzed = ["analyze", tmp_path / "text.txt", "--model", folder, "--db", database, *short]
    assert not any("trained on texts" in note for note in ran(capsys, *analyzed, "--centroids", out)["notes"])
    out.unlink()
    ran(capsys, *train, "--seq-len", 32, "--window", 8, "--no-db", "--json", "--special-tokens", "none")
    assert load_centroids(out).training["special_tokens"] == "none"
    notes = ran(capsys, *analyzed, "--centroids", out)["notes"]
    assert any("trained on texts without <bos>" in note for note in notes)
    evaluate = ["evaluate", "--text", tmp_path / "text.txt", "--model", folder, "--centroids", out, "--seq-len", 32]
    assert "trained on texts without <bos>" in ran(capsys, *evaluate, "--json")["notes"][0]
    assert main(["runs", "--db", str(database)]) == 0
    assert "tokens with <bos>" in capsys.readouterr().out


@pytest.mark.slow
def test_documents_of_a_corpus_begin_with_bos(folder, tmp_path, capsys):
    source = tmp_path / "texts"
    source.mkdir()
    (source / "a.txt").write_text(TEXT)
    command = [
        "analyze",
        source,
        "--model",
        folder,
        "--centroids",
        "random",
        "--db",
        tmp_path / "runs.duckdb",
        "--json",
    ]
    made = ran(capsys, *command, "--no-tags", "--no-baseline")
    without = ran(capsys, *command, "--no-tags", "--no-baseline", "--special-tokens", "none")
    assert made["corpus_id"] != without["corpus_id"]
    assert (made["settings"]["special_tokens"], without["settings"]["special_tokens"]) == ("auto", "none")
    assert made["num_tokens"] == without["num_tokens"] + 1
