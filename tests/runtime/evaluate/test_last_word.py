"""Last-word passages: what every item promises, and a folder that appears whole or not at all."""

from __future__ import annotations

import itertools
import json
import random
import re

import pytest

from focus_runtime.errors import InputError, TextError
from focus_runtime.evaluate.last_word import last_word_passages, write_last_word_tasks

NAMES = ["Harbour", "Lantern", "Margaret", "Thornton", "Whitby"]


def novel(seed=0, sentences=500):
    """Sentences of made-up filler, each ending with one of five names."""
    generator = random.Random(seed)
    filler = ["".join(generator.choices("abcdefghijklm", k=generator.randint(2, 7))) for _ in range(400)]
    lines = []
    for _ in range(sentences):
        words = generator.choices(filler, k=generator.randint(2, 4))
        lines.append(f"{' '.join(words).capitalize()} {generator.choice(NAMES)}.")
    return " \n".join(lines)


@pytest.fixture(scope="module")
def texts():
    return [("one.txt", novel(1)), ("two.txt", novel(2))]


def occurrences(word, text):
    return [match.start() for match in re.finditer(rf"(?<![^\W\d_]){word}(?![^\W\d_])", text, re.I)]


@pytest.mark.parametrize("length", [60, 300])
def test_every_passage_keeps_its_promises(texts, tokenizer, length):
    window = 80
    passages = last_word_passages(texts, tokenizer, length=length, items=20, window=window)
    assert len(passages) == 20
    flat = {name: " ".join(text.split()) for name, text in texts}
    for passage in passages:
        whole = passage.context + passage.target
        assert whole in flat[passage.source]
        assert re.fullmatch(r" [^\W\d_]{4,}", passage.target)
        assert flat[passage.source][flat[passage.source].index(whole) + len(whole)] == "."
        assert length / 2 <= passage.tokens <= length
        assert passage.tokens == len(tokenizer(whole, add_special_tokens=False).input_ids)
        assert whole[0].isupper()
        word = passage.target.strip()
        latest = occurrences(word, passage.context)[-1]
        # one token for each character: the blank before the word is predicted from the character before it
        assert passage.distance == len(passage.context) - 1 - (latest + len(word) - 1)
        if length > window:
            assert passage.distance > window
            assert not occurrences(word, passage.context[-window:])


def test_passages_do_not_overlap(texts, tokenizer):
    passages = last_word_passages(texts, tokenizer, length=200, items=1000, window=50)
    assert 20 < len(passages) < 1000
    assert passages == last_word_passages(texts, tokenizer, length=200, items=1000, window=50)
    assert passages != last_word_passages(texts, tokenizer, length=200, items=1000, window=50, seed=4)
    for name, text in texts:
        flat = " ".join(text.split())
        spans = sorted((start := flat.index(p.context), start + len(p.context)) for p in passages if p.source == name)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_common_words_in_lower_case_are_no_targets(tokenizer):
    text = " ".join(f"Nobody saw the boat {name} again. Then came {name}." for name in NAMES * 4)
    passages = last_word_passages([("a", text)], tokenizer, length=200, items=50, window=300)
    assert passages
    assert {passage.target.strip() for passage in passages} <= set(NAMES)


def test_titles_and_possessives(tokenizer):
    """Mr. ends no sentence; Darcy's brings Darcy back to mind."""
    text = "Here came Darcy. We all saw how tall he was and how well he danced with Mr. Darcy's sister and Darcy."
    (passage,) = last_word_passages([("a", text)], tokenizer, length=150, items=9, window=200)
    assert passage.target == " Darcy"
    assert passage.context.endswith("sister and")
    assert passage.distance == len("'s sister and")


def test_the_folder_is_what_lm_eval_reads(texts, tokenizer, tmp_path):
    out = tmp_path / "new" / "tasks"
    about = write_last_word_tasks(texts, tokenizer, out, lengths=(60, 200), items=5, window=80, tokenizer_name="bytes")
    names = sorted(path.name for path in out.iterdir())
    assert names == [f"last_word{end}" for end in (".json", "_200.jsonl", "_200.yaml", "_60.jsonl", "_60.yaml")]
    assert json.loads((out / "last_word.json").read_text()) == about
    assert about["tasks"]["last_word_200"]["items"] == 5
    assert about["tasks"]["last_word_200"]["distance"][0] > 80
    rows = [json.loads(line) for line in (out / "last_word_60.jsonl").read_text().splitlines()]
    assert [set(row) for row in rows] == [{"context", "target", "tokens", "distance", "source"}] * 5
    assert "test: last_word_60.jsonl" in (out / "last_word_60.yaml").read_text()
    again = tmp_path / "again"
    write_last_word_tasks(texts, tokenizer, again, lengths=(200, 60), items=5, window=80, tokenizer_name="bytes")
    assert all((again / name).read_bytes() == (out / name).read_bytes() for name in names)


def test_a_folder_in_use_and_a_text_too_short_leave_nothing(texts, tokenizer, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="in use"):
        write_last_word_tasks(texts, tokenizer, kept, lengths=(60,), items=2)
    with pytest.raises(InputError, match="in use"):
        write_last_word_tasks(texts, tokenizer, kept / "mine.txt", lengths=(60,), items=2)
    with pytest.raises(InputError, match="cannot write"):
        write_last_word_tasks(texts, tokenizer, kept / "mine.txt" / "x", lengths=(60,), items=2)
    with pytest.raises(TextError, match=r"no passage of 4000 tokens.*more than 128 tokens back"):
        write_last_word_tasks([("a", novel(3, 40))], tokenizer, tmp_path / "b", lengths=(60, 4000), items=2)
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "mine.txt"]


@pytest.mark.parametrize("settings", [{"lengths": ()}, {"lengths": (8,)}, {"items": 0}, {"window": -1}])
def test_settings_out_of_range(settings, texts, tokenizer, tmp_path):
    with pytest.raises(InputError, match=next(iter(settings))):
        write_last_word_tasks(texts, tokenizer, tmp_path / "a", **settings)
