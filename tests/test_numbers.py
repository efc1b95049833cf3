"""The page of numbers to quote says what the raw results say, and so does the README."""

from __future__ import annotations

import json
import math
import re

import pytest

from benchmarks.domains import as_short_table
from tests.helpers import ROOT

PAGE = (ROOT / "docs" / "numbers.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
KINDS = {"default": "default", "default-quality": "default-quality", "random centroids": "random as default"}
MACHINES = {"AMD EPYC (Zen 5)": "amd-zen5", "Intel Xeon (AMX)": "intel-amx"}
PRECISIONS = {"fp32": "float32", "bf16": "bfloat16"}


def result(name):
    return json.loads((ROOT / "benchmarks" / "results" / name).read_text(encoding="utf-8"))


def cells(text, start):
    """The cells after the first of the only table row that begins so."""
    [row] = [line for line in text.splitlines() if line.startswith(f"| {start}")]
    return [cell.strip() for cell in row.strip("| ").split("|")][1:]


def span(text):
    return [float(number.replace("−", "-")) for number in re.findall(r"[+−]?\d+\.?\d*", text)]


def speeds(machine, precision, measure):
    rows = {
        row["tokens"]: f"{row[measure]:.1f}"
        for row in result(f"{MACHINES[machine]}/attention_cpu.json")["speed"]
        if (row["num_groups"], row["top_k"], row["window"], row["num_sinks"]) == (8, 1, 128, 0)
        and (row["dtype"], row["backend"], row["groups"]) == (PRECISIONS[precision], "fused", "random")
    }
    return [rows.get(tokens, "") for tokens in (1_024, 4_096, 16_384, 32_768)]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_speed_of_a_layer(machine, precision):
    lines = PAGE.splitlines()
    [at] = [n for n, line in enumerate(lines) if line.startswith(f"| {machine}, {precision}")]
    same, torch = ([cell.strip() for cell in line.strip().strip("|").split("|")][2:] for line in lines[at : at + 2])
    assert same == speeds(machine, precision, "same_kernel_full_over_focus")
    assert torch == speeds(machine, precision, "full_over_focus")
    if precision == "fp32":
        column = 5 if machine.startswith("AMD") else 6
        shown = [
            re.split(r"\s*\|\s*", line)[column + 1] for line in README.splitlines() if "× |" in line and "%" in line
        ]
        assert [cell.rstrip("×") for cell in shown] == same[:3]


@pytest.mark.parametrize("kind", KINDS)
def test_perplexity_of_the_shipped_centroids(kind):
    domains = result("domains.json")["domains"]
    found = {}
    for split in ("validation", "unseen"):
        rows = [domain["rows"][KINDS[kind]] for name, domain in domains.items() if name.startswith(split)]
        found[split] = [round(100 * row["relative_difference"]["value"], 1) for row in rows]
        found[split + " pairs"] = [round(100 * row["retained_pairs"]) for row in rows]
    start = "random centroids" if kind.startswith("random") else f"`{kind}`, about"
    seen, unseen = cells(PAGE, start)[:2]
    assert span(seen) == [min(found["validation"]), max(found["validation"])]
    assert span(unseen) == [min(found["unseen"]), max(found["unseen"])]
    pairs, perplexity = cells(README, "random centroids" if kind.startswith("random") else f"`{kind}` |")[:2]
    every = [*found["validation pairs"], *found["unseen pairs"]]
    assert span(pairs) == [min(every), max(every)]
    every = [*found["validation"], *found["unseen"]]
    assert span(perplexity) == [min(every), max(every)]


def test_every_kind_of_text_is_in_the_readme_with_times():
    domains = result("domains.json")
    assert len(domains["domains"]) == 17
    assert set(domains["times"]) == {"1024", "8192"}
    assert as_short_table(domains) in README


def test_perplexity_by_length():
    summary = result("length_factors.json")["summary"]
    for file in ("default", "default-quality"):
        values = [100 * math.expm1(one["value"]) for one in summary[file]["all"]["by_length"]]
        shown = [span(cell)[0] for cell in cells(PAGE.partition("## Perplexity by length")[2], f"`{file}` |")]
        assert shown == pytest.approx(values, abs=0.051)


def test_choices_of_auto_and_the_whole_model():
    for folder, least, slower in (("amd-zen5", "2.19", 68), ("intel-amx", "1.13", 81)):
        verdict = result(f"{folder}/auto_cpu.json")["verdict"]
        chosen = [one for name, one in verdict.items() if name.endswith("auto")]
        without = [one for name, one in verdict.items() if name.endswith("without_compiler")]
        assert sum(one["settings"] for one in chosen) == 108
        assert all(one["worst_time_over_fastest"] == 1 for one in chosen)
        assert f"{min(one['slowest_against_full'] for one in chosen):.2f}" == least
        assert sum(one["slower_than_full_by_over_5_percent"] for one in without) == slower
        assert least in PAGE
        assert f"{slower} (" in PAGE
    rows = [row for row in result("amd-zen5/linear_cpu.json")["rows"] if row["what"] == "pass"]
    seconds = {kind: [row["onednn"] for row in rows if row["attention"] == kind] for kind in ("full", "focus")}
    ratios = [full / focus for full, focus in zip(seconds["full"], seconds["focus"], strict=True)]
    assert [float(cell) for cell in cells(PAGE, "times as fast |")] == pytest.approx(ratios, abs=0.006)


def test_the_page_under_load():
    load = result("load.json")["all"]
    assert f"{sum(kind['requests'] for kind in load['times'].values()):,} requests none failed" in PAGE
    assert load["failures"] == {}
    assert f"within {load['times']['open a stored run']['p95']:.2f} s" in PAGE
    assert f"{load['memory_mib']['most']:,} MiB" in PAGE
    assert f"one took {load['times']['explore a short text']['median']:.0f} s" in PAGE


def test_every_section_names_its_setting_and_where_its_numbers_are():
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    quoted = [section for section in sections if "\n> " in section]
    assert len(quoted) >= 8
    for section in quoted:
        assert "- Setting: " in section
        assert "Command: `" in section
        assert re.search(r"AMD|Intel|NVIDIA|nothing is timed", section)
        files = re.findall(r"`([\w/-]+\.json)`", section)
        assert files
        for file in files:
            assert (ROOT / "benchmarks" / "results" / file).is_file(), file
