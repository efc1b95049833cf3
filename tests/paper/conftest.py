"""A tiny model and a laboratory of the smallest scale."""

from __future__ import annotations

import dataclasses

import pytest

from paper.lab.lab import Lab
from paper.lab.scale import SCALES
from tests.helpers import build_model, build_tokenizer

NAMES = ("Anne", "Emma", "Jane")
SENTENCES = [
    f"On day {n} the letter from {NAMES[n % 3]} said that matter {n * 7 % 90} was at an end now." for n in range(90)
]
TEXT = " ".join(SENTENCES)
PEOPLE = ("Anne", "Emma", "Jane", "Lucy")
REPEATED = " ".join(  # long passages whose last word occurred before
    f"{a}, as it was, saw {a}. And after some long while there came {b} with a great many letters and thanked {a}."
    for _ in range(30)
    for a in PEOPLE
    for b in PEOPLE
    if a != b
)
UNIT = dataclasses.replace(
    SCALES["tiny"],
    dtype="float32",
    seq_len=96,
    window=8,
    steps=2,
    weight_steps=1,
    scratch_steps=1,
    curve_steps=3,
    seeds=(0,),
    val_sequences=3,
    study_steps=2,
    study_len=32,
    sweep_steps=1,
    gate_steps=1,
    layer_tokens=128,
    speed_lengths=(64, 128),
    long_lengths=(48, 96),
    task_items=3,
)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A tiny model saved with its tokenizer, as --model takes it."""
    path = tmp_path_factory.mktemp("model")
    build_model(max_position_embeddings=256, initializer_range=0.02).save_pretrained(path)
    build_tokenizer().save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def lab(folder, tmp_path_factory):
    work = tmp_path_factory.mktemp("work")
    return Lab(UNIT, str(folder), [TEXT], [TEXT[::-1] + " " + TEXT], {"train": ["a"], "val": ["b"]}, work)
