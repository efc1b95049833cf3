"""Word classes on hand-labelled text."""

from __future__ import annotations

from focus_runtime.text.tagging import CLASSES, WORDS, classify

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
