"""A corpus: what is written equals what a single run stores; nothing fatal, nothing twice, nothing lost."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import redirect_stdout
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from focus_explorer.cli.main import main
from focus_explorer.cli.runs import describe_corpus
from focus_explorer.data.corpus import CorpusData
from focus_explorer.usecases.analyze import analyze
from focus_explorer.usecases.corpora import analyze as corpus
from focus_runtime.mask.rule import CAUSES
from focus_runtime.routing.centroid_file import save_centroids
from focus_runtime.run.folder import TABLES, CorpusFolder
from focus_runtime.store.database import Database
from tests.helpers import ROOT, build_centroids, build_model

pytestmark = pytest.mark.slow

TEXTS = {
    "a.txt": "The harbour was quiet. Déjà vu 🙂 — the cat sat on the mat & left.\n" * 3,
    "b.txt": "A second document, which is about something else entirely.\n" * 2,
    "deep/c.txt": "Short one.",
}
WRONG = {
    "binary.txt": (b"\x7fELF\0\0\0", "binary"),
    "late-nul.txt": (b"x" * 70000 + b"\0", "binary"),
    "blank.txt": (b" \n ", "empty"),
    "deep/empty.txt": (b"", "empty"),
    "latin.txt": (b"caf\xe9 au lait", "not UTF-8"),
    "one.txt": (b"a", "too short"),
}
ROWS = "SELECT * FROM read_parquet('{}/document=*/{}.parquet', hive_partitioning = true)"


def texts_in(folder):
    for name, text in TEXTS.items():
        path = folder / "texts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "texts"


@pytest.fixture
def folder(tmp_path):
    return texts_in(tmp_path)


@pytest.fixture(scope="session")
def centroid_file(tmp_path_factory):
    """For the model of `model_folder`; its potentials spare every command a balancing."""
    path = tmp_path_factory.mktemp("centroids") / "tiny.safetensors"
    save_centroids(build_centroids(build_model(vocab_size=512)), path)
    return str(path)


@pytest.fixture(scope="session")
def setting(model_folder, centroid_file):
    focus = ["--centroids", centroid_file, "--top-k", "1", "--window", "8", "--sinks", "2"]
    return ["--model", model_folder, *focus, "--threads", "1", "--json"]


@pytest.fixture(scope="module")
def analysed(tmp_path_factory, setting):
    """The summary of the texts with tags and random centroids, and the database, which tests only read."""
    place, printed = tmp_path_factory.mktemp("analysed"), io.StringIO()
    with redirect_stdout(printed):
        assert main(["analyze", str(texts_in(place)), "--db", str(place / "a.duckdb"), *setting]) == 0
    return json.loads(printed.getvalue()), place / "a.duckdb"


@pytest.fixture
def run(tmp_path, setting, capsys):
    """Run the command; the parsed summary, or standard error where it fails."""

    def command(source, *more, status=0):
        assert main(["analyze", str(source), "--db", str(tmp_path / "a.duckdb"), *setting, *more]) == status
        captured = capsys.readouterr()
        return (json.loads(captured.out), captured.err) if status == 0 else captured.err

    return command


def rows_of(place, table, *, without=("run", "model_seconds")):
    """Every row of one table of a corpus as Python values."""
    rows = duckdb.sql(ROWS.format(place, table)).to_arrow_table().to_pylist()
    plain = [{key: value for key, value in row.items() if key not in without} for row in rows]
    return sorted(plain, key=lambda row: (row["document"], row.get("layer", 0), row.get("position", 0)))


def test_a_document_has_the_numbers_of_a_run(analysed, tmp_path, model_folder, centroid_file):
    from focus_explorer.usecases.analyze import AnalyzeRequest
    from focus_explorer.usecases.service import Service

    service = Service(tmp_path / "runs.duckdb")
    summary, _ = analysed
    request = AnalyzeRequest(model=model_folder, centroids=centroid_file, top_k=1, window=8, num_sinks=2, repeats=1)
    place = summary["folder"]
    documents = {row["name"]: row for row in rows_of(place, "document")}
    assert [documents[name]["document"] for name in sorted(TEXTS)] == [0, 1, 2]
    for name in ("a.txt", "deep/c.txt"):
        text = TEXTS[name]
        number, run_id = documents[name]["document"], analyze(service, text, request)
        with service.database.read() as connection:

            def stored(sql, run_id=run_id, connection=connection):
                return connection.execute(sql, [run_id]).fetchall()

            groups = stored(
                "SELECT layer, position, membership, top_group, confidence, entropy FROM assignments "
                "WHERE run_id = ? ORDER BY layer, position"
            )
            tokens = stored(
                "SELECT token_id, piece, start_char, end_char FROM tokens WHERE run_id = ? ORDER BY position"
            )
            losses = stored("SELECT mode, position, nll FROM losses WHERE run_id = ?")
            sums = ", ".join(f"sum({cause})::BIGINT" for cause in CAUSES)
            counts = stored(f"SELECT layer, {sums} FROM masks WHERE run_id = ? GROUP BY layer ORDER BY layer")
            layers = stored("SELECT dominance, retained_pairs FROM layers WHERE run_id = ? ORDER BY layer")
        group_rows = [row for row in rows_of(place, "assignments") if row["document"] == number]
        assert [tuple(row[key] for key in ("layer", "position", "membership", "top_group")) for row in group_rows] == [
            row[:4] for row in groups
        ]
        certainty = np.array([[row["confidence"], row["entropy"]] for row in group_rows])
        np.testing.assert_allclose(certainty, np.array([row[4:] for row in groups]), rtol=1e-5, atol=1e-6)
        token_rows = [row for row in rows_of(place, "tokens") if row["document"] == number]
        assert [(row["token_id"], row["piece"], row["start_char"], row["end_char"]) for row in token_rows] == tokens
        for mode, position, nll in losses:
            assert token_rows[position][f"nll_{mode}"] == pytest.approx(nll, rel=1e-5)
        assert token_rows[0]["nll_full"] is None
        layer_rows = [row for row in rows_of(place, "layers") if row["document"] == number]
        assert [(row["layer"], *(row[cause] for cause in CAUSES)) for row in layer_rows] == counts
        shares = [(row["dominance"], row["retained_pairs"]) for row in layer_rows]
        np.testing.assert_allclose(shares, layers, rtol=1e-9)


def test_random_centroids_are_balanced_under_the_setting_as_those_of_a_run(
    analysed, tmp_path, model_folder, centroid_file
):
    from focus_explorer.data.queries import fetch_run
    from focus_explorer.usecases.analyze import AnalyzeRequest
    from focus_explorer.usecases.service import Service
    from focus_explorer.usecases.statistics import measure_random

    summary, _ = analysed
    seed = summary["settings"]["baseline_seed"]
    service = Service(tmp_path / "runs.duckdb")
    request = AnalyzeRequest(model=model_folder, centroids=centroid_file, top_k=1, window=8, num_sinks=2, repeats=1)
    run_id = analyze(service, TEXTS["a.txt"], request)
    measure_random(service, fetch_run(service.database, run_id), lambda stage, part: None, seed=seed)
    with service.database.read() as connection:
        stored = connection.execute(
            "SELECT layer, position, membership FROM baseline_assignments WHERE run_id = ? ORDER BY layer, position",
            [run_id],
        ).fetchall()
    number = next(row["document"] for row in rows_of(summary["folder"], "document") if row["name"] == "a.txt")
    rows = [row for row in rows_of(summary["folder"], "assignments") if row["document"] == number]
    assert [(row["layer"], row["position"], row["random_membership"]) for row in rows] == stored


def test_bad_documents_are_listed_and_never_fatal(run, folder):
    for name, (data, _) in WRONG.items():
        (folder / name).write_bytes(data)
    (folder / "locked.txt").symlink_to(folder / "nowhere")  # dangling: no file at all
    summary, _ = run(folder, "--no-tags", "--no-baseline")
    assert summary["documents"] == len(TEXTS)
    assert {each["name"]: each["kind"] for each in summary["skipped"]} == {n: kind for n, (_, kind) in WRONG.items()}
    assert all(each["reason"] for each in summary["skipped"])
    tokens = rows_of(summary["folder"], "tokens")
    assert {row["pos"] for row in tokens} == {row["sentence"] for row in tokens} == {None}
    assert {row["random_top_group"] for row in rows_of(summary["folder"], "assignments")} == {None}
    assert "random" not in summary["perplexity"]
    assert "6: 2 binary, 2 empty, 1" in describe_corpus(summary)


def test_nothing_to_analyse_is_one_line(run, tmp_path, folder):
    empty = tmp_path / "none"
    empty.mkdir()
    assert run(empty, status=2).count("error: ") == 1
    (empty / "a.txt").write_text("")
    error = run(empty, "--no-tags", "--no-baseline", status=2)
    assert "a.txt: the text is empty" in error
    assert error.count("error: ") == 1
    assert "matches '*.md'" in run(folder, "--glob", "*.md", status=2)
    assert "no /nowhere.parquet" in run("/nowhere.parquet", status=2)


def test_options_that_do_not_fit_are_refused(run, folder, tmp_path):
    assert "--repeats is for a single text" in run(folder, "--repeats", "2", status=2)
    assert "--engine is for a folder" in run(folder / "a.txt", "--engine", "ray", status=2)
    assert "--engine ray" in run(folder, "--workers", "2", status=2)
    assert "threads is 0" in run(folder, "--threads", "0", status=2)
    assert "max_tokens is 1" in run(folder, "--max-tokens", "1", status=2)


@pytest.mark.long
def test_jsonl_and_parquet_rows(run, tmp_path):
    lines = tmp_path / "x.jsonl"
    texts = list(TEXTS.values())
    good = [json.dumps({"id": n, "body": text}, ensure_ascii=False).encode() for n, text in enumerate(texts)]
    bad = [b"{broken", b"[1]", b'{"body": 3}', b'{"body": null}', b'{"body": "\\ud800"}', b'{"body": "\xff"}', b""]
    lines.write_bytes(b"\n".join(good + bad) + b"\n")
    assert "body" in run(lines, status=2)  # the column is named wrongly: one line says which there are
    summary, _ = run(lines, "--text-column", "body", "--no-tags", "--no-baseline")
    assert [row["name"] for row in rows_of(summary["folder"], "document")] == [f"x.jsonl:{n}" for n in range(3)]
    kinds = [(each["name"], each["kind"]) for each in summary["skipped"]]
    expected = ["not JSON", "not JSON", "not text", "empty", "not UTF-8", "not UTF-8"]
    assert kinds == [(f"x.jsonl:{n}", kind) for n, kind in enumerate(expected, start=3)]
    table = tmp_path / "x.parquet"
    pq.write_table(pa.table({"body": [*texts, None], "n": [1, 2, 3, 4]}), table, row_group_size=2)
    other, _ = run(table, "--text-column", "body", "--no-tags", "--no-baseline")
    assert [(each["name"], each["kind"]) for each in other["skipped"]] == [("x.parquet:3", "empty")]
    assert rows_of(other["folder"], "tokens") == rows_of(summary["folder"], "tokens")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing more")
    flags = ("--glob", "*.*", "--text-column", "body", "--no-tags", "--no-baseline", "--out", str(tmp_path / "out"))
    (tmp_path / "a.duckdb").rename(tmp_path / "a")  # not a document
    several, _ = run(tmp_path, *flags)
    assert several["documents"] == 6
    assert ("broken.parquet", "unreadable") in {(each["name"], each["kind"]) for each in several["skipped"]}
    assert "holds int64" in run(table, "--text-column", "n", status=2)
    assert "body, n" in run(table, status=2)


def test_interrupted_changed_added_and_removed(run, folder, monkeypatch, capsys):
    """Ctrl-C after the first document; the same command continues, and numbers stay whatever happens to the files."""
    real = corpus.work_here

    def stopping(*given):
        for count, outcome in enumerate(real(*given)):
            yield outcome
            if count == 0:
                raise KeyboardInterrupt

    flags = ("--no-tags", "--no-baseline")
    monkeypatch.setattr(corpus, "work_here", stopping)
    error = run(folder, *flags, status=130).strip().splitlines()
    assert len(error) == 1
    assert "1 of 3 documents done, which are kept; continue with: focus-explorer" in error[0]
    monkeypatch.setattr(corpus, "work_here", real)
    summary, error = run(folder, *flags)
    assert "1 of 3 documents are there already" in error
    assert (summary["this_time"]["documents"], summary["this_time"]["kept"]) == (2, 1)
    before = rows_of(summary["folder"], "tokens")
    assert len(before) == summary["num_tokens"]
    times = {number: (Path(summary["folder"]) / f"document={number}").stat().st_mtime_ns for number in range(3)}
    (folder / "b.txt").unlink()
    (folder / "deep" / "c.txt").write_text("Changed altogether, that is.")
    (folder / "aa.txt").write_text("It sorts between the others but comes last.")
    (Path(summary["folder"]) / ".part-7-dead").mkdir()
    again, error = run(folder, *flags)
    assert again["corpus_id"] == summary["corpus_id"]
    assert "1 document is no longer in the source" in error
    place = Path(again["folder"])
    assert {row["document"]: row["name"] for row in rows_of(place, "document")} == {
        0: "a.txt",
        2: "deep/c.txt",
        3: "aa.txt",
    }
    assert (place / "document=0").stat().st_mtime_ns == times[0]
    after = rows_of(place, "tokens")
    assert [row for row in after if row["document"] == 0] == [row for row in before if row["document"] == 0]
    assert "".join(row["piece"] for row in after if row["document"] == 2) == "Changed altogether, that is."
    assert not list(place.glob(".part-*"))
    other, _ = run(folder, *flags, "--window", "9")
    assert other["corpus_id"] != again["corpus_id"]


def test_a_corpus_that_is_worked_on_is_refused(run, folder):
    summary, _ = run(folder, "--no-tags", "--no-baseline", "--name", "three")
    with CorpusFolder(Path(summary["folder"])).lock():
        error = run(folder, "--no-tags", "--no-baseline", status=2)
        assert "being worked on" in error


def test_a_missing_tagger_is_said_once(run, folder, monkeypatch):
    from focus_explorer.errors import InputError
    from focus_runtime.text import tagging

    def missing():
        raise InputError("the tagger is not installed")

    monkeypatch.setattr(tagging, "check_tagger", missing)
    summary, error = run(folder, "--no-baseline")
    assert error.count("tagger is not installed") == 1
    assert summary["settings"]["tagger"] == ""


@pytest.mark.long
def test_without_ray_or_its_cluster_one_line(run, folder, monkeypatch):
    error = run(folder, "--engine", "ray", "--address", "127.0.0.1:1", "--no-tags", "--no-baseline", status=2)
    assert "nothing answers at 127.0.0.1:1" in error
    monkeypatch.setitem(sys.modules, "ray.data", None)
    assert "focus-explorer[ray]" in run(folder, "--engine", "ray", status=2)


def test_a_full_disk_ends_in_one_line_and_keeps_what_is_done(run, folder, monkeypatch):
    real, calls = pq.write_table, []

    def failing(table, where, **options):
        calls.append(where)
        if len(calls) > 6:  # the list of names, one document, and a part of the second
            raise OSError(28, "No space left on device")
        return real(table, where, **options)

    monkeypatch.setattr(pq, "write_table", failing)
    error = run(folder, "--no-tags", "--no-baseline", status=2)
    assert "No space left" in error
    monkeypatch.undo()
    summary, error = run(folder, "--no-tags", "--no-baseline")
    assert "1 of 3 documents are there already" in error
    assert len(rows_of(summary["folder"], "document")) == 3


def test_reading_back(analysed):
    """Arrays line up with the tokens, layer by layer or several at once, and pooled numbers are those of all rows."""
    summary, database = analysed
    data = CorpusData(Database(database), summary["corpus_id"])
    tokens, rows = data.tokens(), rows_of(summary["folder"], "assignments")
    assert tokens.num_rows == summary["num_tokens"] == data.num_tokens
    assert tokens["document"].to_pylist() == sorted(tokens["document"].to_pylist())
    assert {"NOUN", "PUNCT"} <= set(tokens["pos"].to_pylist())
    for at_once in (1, 10**9):
        layers = list(data.each_layer(at_once))
        assert [layer.layer for layer in layers] == data.layer_numbers == [0, 1]
        for layer in layers:
            layer_rows = [row for row in rows if row["layer"] == layer.layer]
            for name in ("membership", "top_group", "confidence", "entropy", "random_membership", "random_top_group"):
                assert getattr(layer, name).tolist() == [row[name] for row in layer_rows]
    assert data.layer(1).top_group.tolist() == layers[1].top_group.tolist()
    losses = [row for row in rows_of(summary["folder"], "tokens") if row["nll_full"] is not None]
    for mode in ("full", "focus"):
        pooled = np.exp(np.mean([row[f"nll_{mode}"] for row in losses]))
        assert summary["perplexity"][mode]["value"] == pytest.approx(pooled, rel=1e-6)
    counts = rows_of(summary["folder"], "layers")
    dropped = sum(row["dropped"] for row in counts)
    pairs = sum(row[cause] for row in counts for cause in CAUSES)
    far = sum(
        2 * max(0, i - 10) for row in rows_of(summary["folder"], "document") for i in range(row["num_tokens"])
    )  # window 8, 2 sinks, 2 layers
    assert summary["retained_pairs"]["value"] == pytest.approx(1 - dropped / pairs, rel=1e-9)
    assert summary["distant_pairs_kept"]["value"] == pytest.approx(1 - dropped / far, rel=1e-9)
    shares = [np.bincount(layer.top_group).max() / layer.top_group.size for layer in layers]
    assert summary["dominance"] == pytest.approx(np.mean(shares))


def test_the_documented_query_runs(analysed):
    page = (ROOT / "docs" / "corpora.md").read_text()
    (query,) = re.findall(r"```sql\n(.*?)```", page, re.S)
    summary, database = analysed
    answer = duckdb.sql(query.replace("'corpora/", f"'{database.parent}/corpora/")).fetchall()
    assert sum(row[2] for row in answer) == summary["num_tokens"]
    assert {"NOUN", "DET"} <= {row[0] for row in answer}


@pytest.mark.long
def test_ray_with_a_killed_worker_gives_the_same_rows(run, tmp_path, model_folder, centroid_file):
    """Two workers, one killed while it works: its documents are redone, none twice, every row as in one process."""
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(30):  # enough that both workers have done some before one is killed
        words = " ".join(f"word{(number * 37 + place * place) % 91}" for place in range(250))
        (texts / f"d{number:02d}.txt").write_text(words)
    (texts / "empty.txt").write_text("")
    one, _ = run(texts, "--no-tags", "--out", str(tmp_path / "alone"))
    words = f"--model {model_folder} --db {tmp_path / 'a.duckdb'} --centroids {centroid_file} --out {tmp_path / 'ray'}"
    words += " --threads 1 --no-tags --json --engine ray --workers 2 --top-k 1 --window 8 --sinks 2"
    command = [sys.executable, "-m", "focus_explorer.cli", "analyze", str(texts), *words.split()]
    shared = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    workers: set[int] = set()
    killed: list[int] = []
    given = (shared.pid, tmp_path / "ray", workers, killed)
    killer = threading.Thread(target=kill_a_worker, args=given, daemon=True)
    killer.start()
    out, errors = shared.communicate(timeout=400)
    killer.join(timeout=5)
    assert shared.returncode == 0, errors
    assert len(killed) == 1
    two = json.loads(out)
    assert len(workers) >= 2  # Ray may give what the killed one had done to another one's account
    assert (two["documents"], two["this_time"]["documents"], len(two["skipped"])) == (30, 30, 1)
    for table in TABLES:
        assert rows_of(two["folder"], table) == rows_of(one["folder"], table), table
    assert not list(Path(two["folder"]).glob(".part-*"))


def kill_a_worker(command: int, out: Path, workers: set[int], killed: list[int]) -> None:
    """SIGKILL the Ray worker of the command that has written most, once there are two and some documents are done."""
    while len(workers) < 2:  # found while they load the model: looking for them takes longer than a document
        time.sleep(0.2)
        workers |= {pid for pid in descendants(command) if b"MapWorker" in command_line(pid)}
    while not 6 <= len(list(out.glob("run=*/document=*"))) <= 20:
        time.sleep(0.01)
    busiest = max(workers, key=written_bytes)  # on a busy machine another one may still be loading the model
    os.kill(busiest, signal.SIGKILL)
    killed.append(busiest)


def written_bytes(pid: int) -> int:
    """What a process has written so far; 0 where it has ended."""
    try:
        return int(re.search(r"^wchar: (\d+)$", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)[1])
    except OSError:
        return 0


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def descendants(root: int) -> list[int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
    pids = {root}
    for _ in range(6):
        pids |= {pid for pid, parent in parents.items() if parent in pids}
    return sorted(pids - {root})


@pytest.mark.long
def test_distant_pairs_of_a_corpus_are_means_over_heads_as_in_its_statistics(run, folder, tmp_path, capsys):
    """Heads with a short window have most of the distant pairs, and must not count more for it."""
    (tmp_path / "budget.json").write_text(
        json.dumps(
            [{"layer": 0, "head": 0, "window": 1}, {"layer": 1, "head": 1, "full": True}, {"layer": 1, "top_k": 2}]
        )
    )
    summary, _ = run(folder, "--budget", str(tmp_path / "budget.json"))
    corpus, database = summary["corpus_id"], str(tmp_path / "a.duckdb")
    assert main(["statistics", corpus, "--db", database, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["statistics"]
    told = next(row for row in rows if row["scope"] == "run" and row["statistic"] == "distant_pairs_kept")
    kept = summary["distant_pairs_kept"]
    assert kept["value"] == pytest.approx(told["value"], rel=1e-9)
    assert kept["low"] < kept["value"] < kept["high"]
    files = list(Path(summary["folder"]).glob("document=*/layers.parquet"))
    assert len(files) == 3
    for path in files:  # as earlier versions wrote them
        pq.write_table(pq.read_table(path, partitioning=None).drop_columns("dropped_by_part"), path)
    assert main(["corpora", "show", corpus, "--db", database, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["distant_pairs_kept"] == kept


@pytest.mark.long
def test_pooled_statistics_count_each_document_by_itself(analysed, tmp_path, capsys):
    summary, database = analysed[0], str(analysed[1])
    corpus = summary["corpus_id"]
    assert main(["statistics", corpus, "--db", database, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["statistics"]
    assert {(row["unit"], row["units"]) for row in rows} == {("document", 3)}
    kept = {row["layer"]: row for row in rows if row["scope"] == "layer" and row["statistic"] == "pairs_kept"}
    causes = ("local_only", "group_only", "local_and_group", "sink_only", "dropped")
    for layer, row in kept.items():
        stored = [one for one in rows_of(summary["folder"], "layers") if one["layer"] == layer]
        pairs = sum(one[cause] for one in stored for cause in causes)
        assert row["count"] == pairs
        assert row["value"] == pytest.approx(1 - sum(one["dropped"] for one in stored) / pairs)
        assert row["random"] is not None
    out = tmp_path / "documents.csv"
    assert main(["export", corpus, "--db", database, "--what", "documents", "--out", str(out)]) == 0
    assert out.read_text().count("\n") == 4
    assert main(["export", corpus, "--db", database, "--what", "tokens", "--out", str(out)]) == 2
    assert "there is no table 'tokens' of a corpus" in capsys.readouterr().err
    assert (
        main(["figure", corpus, "--db", database, "--what", "distances", "--out", str(out.with_suffix(".html"))]) == 0
    )
    assert main(["figure", corpus, "--db", database, "--what", "map", "--out", str(out.with_suffix(".html"))]) == 2
    assert "there is no figure 'map' of a corpus" in capsys.readouterr().err
