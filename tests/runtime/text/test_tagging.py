"""Tags and classes of words handed to the model's tokens, and texts put together again from their pieces."""

from __future__ import annotations

import random

import pytest

from focus_runtime.errors import TextError
from focus_runtime.text.tagging import CLASSES, POS, WORDS, classify, tag
from focus_runtime.text.tokens import joined_text, tokenize
from tests.helpers import build_tokenizer

TEXT = 'Mr. Darcy looked at\nher quickly. "Why," said she,  "I am not\ntired!"\n\nThe rain had stopped.'


BYTES = build_tokenizer()


def spans(text, *words):
    ranges, place = [], 0
    for word in words:
        start = text.index(word, place)
        ranges.append((start, start + len(word)))
        place = start + len(word)
    return [list(ends) for ends in zip(*ranges, strict=True)]


@pytest.mark.slow
def test_words_have_the_tags_a_reader_would_give():
    starts, ends = spans(TEXT, "Mr.", " Darcy", " looked", " at", "\n", "her", " quickly", ".", " tired"[1:], " rain")
    tags = tag(TEXT, starts, ends)
    assert tags.pos == ["PROPN", "PROPN", "VERB", "ADP", "SPACE", "PRON", "ADV", "PUNCT", "ADJ", "NOUN"]
    assert tags.dep[1] == "nsubj"
    assert tags.dep[3] == "prep"
    assert tags.dep[4] == "SPACE"
    assert tags.sentence.tolist() == [0, 0, 0, 0, 0, 0, 0, 0, 1, 2]
    assert "spaCy" in tags.tagger
    assert "en_core_web_sm 3.8.0" in tags.tagger


@pytest.mark.slow
def test_parts_of_one_word_share_its_tag_and_a_piece_of_two_takes_the_longer():
    text = "The grandmothers sang."
    starts, ends = [0, 3, 9, 16, 17], [3, 9, 16, 17, 22]
    tags = tag(text, starts, ends)
    assert tags.pos[:4] == ["DET", "NOUN", "NOUN", "SPACE"]
    assert tags.pos[4] == "VERB"


@pytest.mark.slow
def test_a_long_text_is_tagged_in_parts_without_losing_its_place():
    sentence = "The old dog barked at seven cats. "
    text = sentence * 400
    starts = [place * len(sentence) + 8 for place in range(400)]
    tags = tag(text, starts, [start + 3 for start in starts])
    assert set(tags.pos) == {"NOUN"}
    assert set(tags.pos) <= set(POS)
    assert tags.sentence.tolist() == list(range(400))


RANGES = ((1, 128), (1, 0x300), (0x300, 0x370), (0x4E00, 0xA000), (0x1F300, 0x1FAFF), (1, 0xD800), (0xE000, 0x110000))


def test_pieces_add_up_to_the_text_again(fresh_seed):
    for _ in range(100):
        text = "".join(chr(random.randrange(*random.choice(RANGES))) for _ in range(random.randint(2, 40)))
        try:
            tokens = tokenize(BYTES, text)
        except TextError:
            continue
        assert joined_text(tokens.pieces, tokens.starts, tokens.ends) == tokens.text


def test_brackets_of_the_text_are_not_taken_for_bytes():
    assert joined_text(["‹F0›", " x"], [0, 4], [4, 6]) == "‹F0› x"
    with pytest.raises(TextError, match="do not add up"):
        joined_text(["‹F0›", "‹9F›"], [0, 0], [1, 1])


LABELLED = [
    ("It", "pronoun"),
    (" was", "auxiliary"),
    (" Mr", "function"),
    (".", "punctuation"),
    (" Dar", "name"),
    ("cy", "continuation"),
    (" who", "pronoun"),
    (" said", "content"),
    (":", "punctuation"),
    (" “", "punctuation"),
    ("Noth", "pronoun"),
    ("ing", "continuation"),
    (" in", "preposition"),
    (" the", "determiner"),
    (" 18", "number"),
    ("13", "number"),
    (" rooms", "content"),
    (".”", "punctuation"),
    ("\n\n", "whitespace"),
    ("Ro", "content"),
    ("oms", "continuation"),
    (" and", "conjunction"),
    (" Dar", "name"),
    ("cy", "continuation"),
    ("’s", "function"),
    (" don", "content"),
    ("'", "punctuation"),
    ("t", "function"),
    (" ", "whitespace"),
    ("‹F0 9F›", "other"),
    (".", "punctuation"),
    (" Darcy", "name"),
    (" never", "function"),
    (" CHAP", "content"),
]


def test_pieces_get_the_class_a_reader_would_give_them():
    classified = classify([piece for piece, _ in LABELLED])
    assert list(zip([piece for piece, _ in LABELLED], classified.classes, strict=True)) == LABELLED
    assert classified.words[4:6] == ["Darcy", ""]
    assert classified.words[10] == "Nothing"


def test_a_capital_counts_only_where_no_sentence_begins():
    sentence = ["He", " met", " Emma", ".", " Emma", " laughed", ".", " Suddenly", " rain", " fell", "."]
    classes = classify(sentence).classes
    assert classes[2] == classes[4] == "name"
    assert classes[7] == "content"


def test_every_listed_word_has_its_class_and_classes_are_complete():
    for name, words in WORDS.items():
        for word in words.split():
            assert classify(["so", " " + word]).classes[1] == next(n for n in WORDS if word in WORDS[n].split()), word
        assert name in CLASSES
    assert classify([]).classes == []
