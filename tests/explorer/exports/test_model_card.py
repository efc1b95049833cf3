"""The card of a published centroid file: what is recorded, what a table measured, and what is absent."""

from __future__ import annotations

import json

import pytest
import yaml

from focus_explorer.exports.model_card import model_card
from focus_explorer.usecases.centroids.publish import prepare
from focus_explorer.usecases.service import Service
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from tests.helpers import ROOT, build_centroids, build_model


@pytest.fixture
def service(tmp_path):
    return Service(tmp_path / "runs.duckdb")


def metadata(card):
    """The front matter of a card."""
    front, _, _ = card.removeprefix("---\n").partition("\n---\n")
    return yaml.safe_load(front)


def test_the_shipped_files_card_has_its_recipe_and_its_domains(service):
    card = model_card(prepare(service, "default", "ada/mine", licence="apache-2.0", base_model="ada/base"))
    assert metadata(card) == {
        "base_model": "ada/base",
        "library_name": "focus-explorer",
        "license": "apache-2.0",
        "tags": ["focus-explorer", "focus-centroids", "sparse-attention"],
    }
    record = load_centroids("default")
    assert f'FocusModel.from_pretrained("ada/mine", sha256="{record.sha256}")' in card
    assert f"| fingerprint of its weights | {record.base_fingerprint} |" in card
    for row in (
        "| Groups: groups in every layer, K | 8 |",
        "by a learned factor | one for each query head |",
        "| learn | factors |",
        "| steps | 28 |",
        "| novels | 1 | 711,745 |",
    ):
        assert row in card
    groups = card.partition("The groups were trained before:")[2]
    assert "| loss | layers |" in groups
    assert "| steps | 240 |" in groups
    assert "| Sinks in the text: tokens of the text that all may see | from a cosine similarity of 0.85 |" in card
    for domain in ("novels, 1,024 tokens", "novels, 4,096 tokens"):
        held_out = record.training["budget"]["held_out"][domain]
        change, kept = held_out["relative_difference"], held_out["retained_pairs"]
        row = next(line for line in card.splitlines() if line.startswith(f"| {domain} | 2"))
        between = f"({100 * change['low']:+.1f} to {100 * change['high']:+.1f})"
        assert f"| {100 * change['value']:+.1f} % {between} | {100 * kept:.1f} % | 2 |" in row
    assert "another budget" not in card
    assert "in heads without a window of their own | 128 |" in card
    assert "| windows of single heads | 16 to 512 |" in card
    assert "**They were measured before its factors of logits were learned.**" in card
    assert "The file records no held-out perplexity of its training." in card


def test_perplexities_of_a_training_are_told(service):
    card = model_card(prepare(service, "novels", "ada/mine"))
    assert "Perplexity on 12,276 held-out tokens" in card
    assert "| full attention | 24.77 | 100 % |\n| k=1 | 25.08 | 34.0 % |\n| k=2 | 24.73 | 58.5 % |" in card
    assert "The file records no perplexities and no pairs kept by kind of text, and no table was given." in card
    assert "No licence was given with this file." in card
    assert set(metadata(card)) == {"library_name", "tags"}


def test_a_table_that_measured_the_file(service, tmp_path):
    results = json.loads((ROOT / "benchmarks" / "results" / "domains.json").read_text())
    results["files"] = {
        "default": load_centroids("default").sha256
    }  # whichever file it measured, the rows are as they are
    (tmp_path / "domains.json").write_text(json.dumps(results))
    card = model_card(prepare(service, "default", "ada/mine", table=str(tmp_path / "domains.json")))
    titles = next(line for line in card.splitlines() if "change with Focus" in line)
    assert titles.endswith("| sequences | random centroids | window and sinks alone |")
    for key, domain in results["domains"].items():
        split, name = key.split("/")
        row = next(
            line
            for line in card.splitlines()
            if line.startswith(f"| {name}{chr(92)}*" if split == "unseen" else f"| {name} |") and "%" in line
        )
        assert f"| {domain['full_perplexity']:.2f} |" in row
        assert f"{100 * domain['rows']['random as default']['relative_difference']['value']:+.1f} %" in row
    assert "Kinds with a star were kept out of the training." in card


def test_a_file_that_records_nothing_says_so_and_markup_of_a_record_is_text(service, tmp_path):
    path = tmp_path / "own.safetensors"
    centroids = build_centroids(build_model())
    centroids.training = {}
    save_centroids(centroids, path)
    card = model_card(prepare(service, str(path), "ada/mine"))
    for absent in (
        "The file records no training.",
        "| fingerprint of its weights | not recorded |",
        "| name | not recorded by a name that others could load |",
        'from_pretrained("ada/mine", model, sha256=',
    ):
        assert absent in card
    centroids.training = {
        "note": "<script>alert(1)</script> | [x](http://example.com)\n---\nlicense: mit",
        "texts": ["a|b", 3],
        "domains": [{"name": "<b>"}, "odd"],
        "validation": {"full": float("nan")},
        "budget": {"points": "none"},
    }
    save_centroids(centroids, path)
    card = model_card(prepare(service, str(path), "ada/mine"))
    assert "<script" not in card
    assert "\\[x\\](http" in card
    assert "<b>" not in card
    assert "\nlicense: mit" not in card
    assert "a\\|b, 3." in card
    assert "| &lt;b&gt; | not recorded | not recorded |" in card
