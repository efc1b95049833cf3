"""`focus-explorer corpora`: the list, the numbers of one corpus, and its removal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from focus_explorer.cli.main import main
from focus_explorer.cli.runs import describe_corpus
from focus_explorer.usecases.corpora.register import list_corpora
from focus_explorer.usecases.service import Service
from focus_runtime.routing.centroid_file import save_centroids
from focus_runtime.run.folder import CorpusFolder
from tests.explorer.cli.conftest import one_error
from tests.helpers import build_centroids, build_model

pytestmark = pytest.mark.slow


@pytest.fixture
def corpus(tmp_path, model_folder, capsys):
    """Options that name a database with one analysed corpus, and the summary of that."""
    (tmp_path / "texts").mkdir()
    for number in range(3):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"The harbour of day {number} was quiet. " * 6)
    save_centroids(build_centroids(build_model(vocab_size=512)), tmp_path / "tiny.safetensors")
    database = ["--db", str(tmp_path / "runs.duckdb")]
    setting = ["--model", model_folder, "--centroids", str(tmp_path / "tiny.safetensors"), "--window", "8"]
    options = ["--threads", "1", "--no-tags", "--no-baseline", "--name", "three", "--json"]
    assert main(["analyze", str(tmp_path / "texts"), *setting, *options, *database]) == 0
    return database, json.loads(capsys.readouterr().out)


def test_documents_of_a_worker_that_died_have_no_known_time(corpus):
    _, summary = corpus
    assert re.search(r"s on 3 documents \([+-].*%\), ", describe_corpus(summary))
    summary["this_time"] |= {"model_seconds": 0.0, "document_seconds": 0.0}
    assert "0.0 s in forward passes of 0.0 s on 3 documents, " in describe_corpus(summary)


def test_one_document_is_one_and_has_no_interval(corpus):
    _, summary = corpus
    lines = describe_corpus(summary | {"documents": 1, "scored_tokens": 1})
    assert "   three, 1 document, " in lines
    assert "; 1 scored token\n" in lines
    assert "in brackets: no interval, for one document has none" in lines


def test_a_corpus_is_listed_shown_and_deleted(corpus, capsys):
    database, summary = corpus
    with CorpusFolder(Path(summary["folder"])).lock():
        assert main(["corpora", "delete", summary["corpus_id"], *database]) == 2
        assert "being worked on" in capsys.readouterr().err
    assert main(["corpora", "--json", *database]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["documents"], row["status"]) == ("three", 3, "complete")
    assert main(["corpora", *database]) == 0
    assert re.search(r"complete +3 documents .* three", capsys.readouterr().out)
    assert main(["corpora", "show", summary["corpus_id"], "--json", *database]) == 0
    assert len(json.loads(capsys.readouterr().out)["per_document"]) == 3
    assert main(["corpora", "show", summary["corpus_id"], *database]) == 0
    assert "in brackets: 95 % intervals over documents; 3 are too few" in capsys.readouterr().out
    assert main(["corpora", "delete", summary["corpus_id"], *database]) == 0
    assert not Path(summary["folder"]).exists()
    assert main(["corpora", "show", summary["corpus_id"], *database]) == 2
    assert summary["corpus_id"] in capsys.readouterr().err
    assert list_corpora(Service(database[1])) == []


def test_an_empty_database_and_an_unknown_corpus(tmp_path, capsys):
    database = ["--db", str(tmp_path / "new.duckdb")]
    assert main(["corpora", *database]) == 0
    assert capsys.readouterr().out.startswith("no corpora yet")
    assert main(["corpora", *database, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    for action in ("show", "delete"):
        one_error(capsys, main(["corpora", action, "nope", *database]), "nope")
    one_error(capsys, main(["corpora", "frobnicate"]), "frobnicate")
