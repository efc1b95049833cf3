"""Every command and every request of the page that runs a model, where the memory suffices for short texts alone."""

from __future__ import annotations

import json
import re
import time

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from focus_explorer.cli.main import main
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.service import Service
from focus_explorer.web.requests.dispatch import dispatch
from focus_runtime.measure import memory
from focus_runtime.measure.speed import layer as layer_timing
from focus_runtime.routing.centroid_file import save_centroids
from tests.explorer.conftest import TEXT
from tests.helpers import build_centroids, build_model, build_tokenizer

pytestmark = pytest.mark.slow
LIMIT = 300  # tokens that fit; more than a warm-up reads
FITS = r"needs? more memory than there is on cpu; expected about [\d,]+ tokens or fewer"


class Site:
    """A tiny model, its text and a run of it, made before the memory was short."""

    def __init__(self, folder):
        self.model = str(folder / "model")
        build_model(vocab_size=512, max_position_embeddings=4096).save_pretrained(self.model)
        build_tokenizer().save_pretrained(self.model)
        self.text, self.db = folder / "text.txt", str(folder / "runs.duckdb")
        self.text.write_text(TEXT)
        self.folder, self.service = folder, Service(folder / "runs.duckdb")
        self.run = analyze(self.service, TEXT, AnalyzeRequest(**self.settings))

    @property
    def settings(self):
        return {"model": self.model, "centroids": "random", "window": 8, "repeats": 1}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return Site(tmp_path_factory.mktemp("memory"))


@pytest.fixture
def short_memory(monkeypatch):
    """Layers fail as on a full GPU where they read more than `LIMIT` tokens, unless those are the balancing's."""
    forward, allowed = LlamaDecoderLayer.forward, {2048}

    def limited(self, hidden_states, *args, **named):
        if hidden_states[..., 0].numel() > LIMIT and hidden_states.shape[1] not in allowed:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return forward(self, hidden_states, *args, **named)

    monkeypatch.setattr(LlamaDecoderLayer, "forward", limited)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1 << 30)
    return allowed


@pytest.fixture
def refused(capsys):
    """Runs a command that must fail with one line; returns the line."""

    def run(*words):
        code = main([str(word) for word in words])
        lines = capsys.readouterr().err.strip().splitlines()
        assert code == 2, lines
        assert lines[-1].startswith("error: "), lines
        assert "Traceback" not in "".join(lines)
        return lines[-1]

    return run


@pytest.fixture(scope="module")
def centroids(site):
    path = site.folder / "c.safetensors"
    save_centroids(build_centroids(build_model(vocab_size=512)), path)
    return path


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("analyze TEXT --db DB --model MODEL --centroids random", f"606 tokens {FITS}; set the longest text to "),
        ("compare TEXT --db DB --model MODEL --centroids random", f"606 tokens {FITS}; set the longest text to "),
        ("compare RUN --db DB --top-k 1 --window 8", f"606 tokens {FITS}; explore the text again with the longest "),
        (
            "bench MODELS --lengths 400 --layer-lengths 64 --out OUT/b",
            f"400 tokens {FITS}; leave out .* \\(--lengths\\)",
        ),
        ("train --model MODEL --text TEXT --seq-len 400 --out OUT/t.safetensors", f"{FITS}.*; set .*\\(--seq-len "),
        ("train --model MODEL --text TEXT --seq-len 160 --batch 4 --out OUT/t.safetensors", f"{FITS}.*--accumulate 2 "),
        ("finetune --model MODEL --text TEXT --seq-len 400 --out OUT/f", f"{FITS}.*--seq-len .*gradient-checkpointing"),
        ("finetune --model MODEL --text TEXT --twin --seq-len 400 --out OUT/f", f"{FITS} at a time; set .*--seq-len "),
        ("evaluate MODELS --text TEXT --seq-len 400", f"400 tokens {FITS}; .*--seq-len"),
    ],
)
def test_a_command_says_what_would_fit(command, expected, site, short_memory, refused, centroids, tmp_path):
    names = {"TEXT": site.text, "DB": site.db, "MODEL": site.model, "RUN": site.run}
    command = command.replace("MODELS", f"--model MODEL --centroids {centroids}").replace("OUT", str(tmp_path))
    line = refused(*(names.get(word, word) for word in command.split()))
    assert re.search(expected, line), line
    assert not list(tmp_path.glob("*.safetensors"))


def test_balancing_that_does_not_fit_advises_no_length(site, short_memory, refused):
    short_memory.clear()
    drawn = ("--centroids", "random", "--seed", "77")  # never balanced before
    line = refused("analyze", site.text, "--db", site.db, "--model", site.model, *drawn)
    assert re.search("to balance the groups, [0-9,]+ tokens need more memory than there is on cpu; close other", line)
    assert "--max-tokens" not in line


def test_a_corpus_goes_on_without_the_document(site, short_memory, capsys):
    docs = site.folder / "docs"
    docs.mkdir()
    (docs / "long.txt").write_text(TEXT)
    (docs / "short.txt").write_text(TEXT[:90])
    words = ["analyze", docs, "--model", site.model, "--centroids", "random", "--db", site.db, "--no-tags", "--json"]
    assert main([*map(str, words)]) == 0
    corpus = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert corpus["documents"] == 1
    (skipped,) = corpus["skipped"]
    assert (skipped["name"], skipped["kind"]) == ("long.txt", "too large")
    assert re.fullmatch(f"606 tokens {FITS}", skipped["reason"])


def test_a_gpu_that_fails_is_one_line_everywhere(site, monkeypatch, refused, centroids, tmp_path):
    def lost(*_, **__):
        raise RuntimeError("CUDA error: unspecified launch failure\nCUDA kernel errors might be reported later")

    monkeypatch.setattr(LlamaDecoderLayer, "forward", lost)
    chosen = ["--model", site.model, "--centroids", centroids]
    for words in (
        ["analyze", site.text, *chosen, "--db", site.db],
        ["compare", site.run, "--db", site.db],
        ["train", "--model", site.model, "--text", site.text, "--seq-len", "80", "--out", tmp_path / "t.safetensors"],
        ["evaluate", *chosen, "--text", site.text, "--seq-len", "80"],
    ):
        line = refused(*words)
        assert "the GPU failed: CUDA error: unspecified launch failure; start the program again" in line


class Page:
    """Requests of the page's browser about the site's run."""

    def __init__(self, site):
        self.service, self.run = site.service, site.run

    def ask(self, what, **more):
        return dispatch(self.service, {"what": what, "run": self.run, **more})

    def message_of(self, what, start, **more):
        """What the page shows once the work has failed."""
        self.ask(start, **more)
        for _ in range(600):
            answer = self.ask(what)
            job = answer.get("job", answer)
            if job["state"] not in ("waiting", "running"):
                assert job["state"] == "failed", answer
                return job.get("message") or job["problem"]
            time.sleep(0.05)
        raise AssertionError("it never ended")


@pytest.mark.parametrize(
    ("what", "start", "more", "expected"),
    [
        ("compare_grid", "compare_grid_start", {"top_k": [2], "window": [8], "repeats": 1}, "explore the text again"),
        ("compare_generation", "compare_generation_start", {"prompt": TEXT, "max_tokens": 2}, "prompt of at most"),
        ("attention", "measure_attention", {}, "explore the text again"),
        ("statistics_job", "statistics_measure", {}, "explore the text again"),
    ],
)
def test_the_page_says_it_too_and_goes_on(what, start, more, expected, site, short_memory):
    page = Page(site)
    message = page.message_of(what, start, **more)
    assert re.search(f"606 tokens {FITS}; .*{expected}", message), message
    assert "--" not in message or "(--max-tokens" in message
    short = analyze(site.service, TEXT[:60], AnalyzeRequest(**site.settings))  # the model is as it was
    assert dispatch(site.service, {"what": "compare_grid", "run": short})["cells"] == []


def test_lengths_that_fitted_are_kept(site, monkeypatch):
    attend = layer_timing.focus_forward

    def limited(module, query, key, value, mask):
        if query.shape[2] > 512:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory")
        return attend(module, query, key, value, mask)

    monkeypatch.setattr(layer_timing, "focus_forward", limited)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1 << 30)
    message = Page(site).message_of("compare_lengths", "compare_lengths_start", layer=0, seconds=60)
    assert re.fullmatch(f"in one layer, 1,024 tokens {FITS}; what was measured up to there is kept", message), message
    points = Page(site).ask("compare_lengths")["layers"]["0"]["points"]
    assert [point["tokens"] for point in points] == [256, 512]
