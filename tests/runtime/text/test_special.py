"""Special tokens: what a tokenizer puts before a text begins every text and sequence, once; and chat templates."""

from __future__ import annotations

import math

import pytest
import torch

from focus_runtime.errors import ConfigError, InputError, TextError
from focus_runtime.measure.loss import final_hidden, token_nll
from focus_runtime.measure.perplexity import perplexity
from focus_runtime.text.sequences import Mixture, encode_texts, even_sequences, step_sequences
from focus_runtime.text.special import added_tokens, chat_text, lacks_bos, read_turns, text_ids, training_note
from focus_runtime.text.tagging import classify
from focus_runtime.text.tokens import joined_text, pieces_of, special_notes, tokenize
from tests.helpers import build_bos_tokenizer, build_model, build_tokenizer

BOS = 1
TOKENIZER = build_bos_tokenizer()
TEXT = "The harbour — was quiet 🙂. " * 8


def test_bos_is_the_first_token_without_a_character():
    plain, tokens = tokenize(build_tokenizer(), TEXT), tokenize(TOKENIZER, TEXT)
    assert tokens.ids == [BOS, *plain.ids]
    assert tokens.pieces == ["<bos>", *plain.pieces]
    assert (tokens.starts[0], tokens.ends[0]) == (0, 0)
    assert (tokens.starts[1:], tokens.ends[1:]) == (plain.starts, plain.ends)
    assert joined_text(tokens.pieces, tokens.starts, tokens.ends) == tokens.text == TEXT
    assert (tokens.added, tokens.total_tokens) == (("<bos>",), plain.total_tokens + 1)
    assert pieces_of(TOKENIZER, TEXT) == (tokens.ids, tokens.pieces)


def test_a_cut_text_keeps_bos_and_adds_up():
    tokens = tokenize(TOKENIZER, TEXT, max_tokens=20)
    assert len(tokens.ids) <= 20
    assert tokens.ids[0] == BOS
    assert TEXT.startswith(tokens.text)
    assert joined_text(tokens.pieces, tokens.starts, tokens.ends) == tokens.text


def test_none_leaves_it_out_and_says_so():
    tokens = tokenize(TOKENIZER, TEXT, special_tokens="none")
    assert tokens.ids == tokenize(build_tokenizer(), TEXT).ids
    notes = special_notes(TOKENIZER, tokens, build_model("Gemma").config)
    assert notes == [
        "The text was read without <bos>, which the tokenizer puts before every text (--special-tokens none): the "
        "model may predict it much worse."
    ]
    with pytest.raises(ConfigError, match="special_tokens is 'some'; expected auto or none"):
        text_ids(TOKENIZER, TEXT, "some")


def test_bos_that_is_typed_is_not_doubled():
    tokens = tokenize(TOKENIZER, "<bos>a <bos>b")
    assert tokens.ids == text_ids(build_bos_tokenizer("$A"), "<bos>a <bos>b")
    assert tokens.pieces[:2] == ["<bos>", "a"]
    assert joined_text(tokens.pieces, tokens.starts, tokens.ends) == "<bos>a <bos>b"
    assert encode_texts(TOKENIZER, ["<bos>a", "<bos>b"], 1).ids.tolist() == text_ids(build_tokenizer(), "ab")


def test_what_stands_after_a_text_is_left_out():
    assert tokenize(build_bos_tokenizer("<bos> $A </s>"), TEXT).ids == tokenize(TOKENIZER, TEXT).ids
    assert tokenize(build_bos_tokenizer("$A </s>"), TEXT).added == ()


def test_tokens_spelled_in_a_text_are_one_token_each_and_counted():
    tokens = tokenize(TOKENIZER, "one</s>two </s> <pad>three")
    assert tokens.pieces.count("</s>") == 2
    note = "The text contains 3 special tokens: </s> ×2, <pad>."
    assert special_notes(TOKENIZER, tokens, build_model("Gemma").config) == [note]


def test_a_tokenizer_that_adds_nothing_changes_nothing():
    tokenizer = build_tokenizer()
    tokens = tokenize(tokenizer, TEXT)
    assert (tokens.added, tokens.left_out) == ((), ())
    assert tokens == tokenize(tokenizer, TEXT, special_tokens="none")
    assert special_notes(tokenizer, tokens, build_model().config) == []
    assert encode_texts(tokenizer, [TEXT], 1).special_tokens is None
    assert training_note(tokenizer, {"steps": 3}) is None


def test_a_tokenizer_that_was_told_to_add_no_bos_is_remarked_on():
    told = build_bos_tokenizer("$A", add_bos_token=False)
    assert lacks_bos(told, BOS)
    assert not lacks_bos(told, None)  # the model names none
    assert not lacks_bos(build_tokenizer(), BOS)  # nobody said anything: GPT-2, SmolLM2
    assert not lacks_bos(TOKENIZER, BOS)
    assert (
        "add_bos_token" in special_notes(told, tokenize(told, TEXT), build_model("Gemma", bos_token_id=BOS).config)[0]
    )


def test_files_trained_without_it_say_so():
    note = "trained on texts without <bos>, which the model's tokenizer puts before every text"
    assert training_note(TOKENIZER, {"steps": 3}) == note
    assert training_note(TOKENIZER, {"regime": "two_phase", "special_tokens": "none"}) == note
    assert training_note(TOKENIZER, {"steps": 3, "special_tokens": "auto"}) is None
    assert training_note(TOKENIZER, {"random_seed": 0}) is None  # not from a training


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_text_is_refused(text):
    assert pieces_of(TOKENIZER, text) == ([], [])
    with pytest.raises(TextError, match="the text is empty"):
        tokenize(TOKENIZER, text)
    with pytest.raises(InputError, match="the text is empty"):
        perplexity(build_model("Gemma"), text, tokenizer=TOKENIZER)


def test_every_cut_sequence_begins_with_bos_and_nothing_else_does():
    streams = [encode_texts(TOKENIZER, [TEXT, TEXT], 1), encode_texts(TOKENIZER, [TEXT.upper()], 1)]
    plain = encode_texts(build_tokenizer(), [TEXT, TEXT], 1)
    assert torch.equal(streams[0].ids, plain.ids)
    mixed = Mixture(("a", "b"), tuple(streams), (1.0, 2.0))
    for texts in (streams[0], mixed):
        for rows in (even_sequences(texts, 7, 16), step_sequences(texts, 3, 7, 16, 0)):
            assert rows.shape[1] == 16
            assert (rows[:, 0] == BOS).all()
            assert (rows[:, 1:] != BOS).all()
    rows = even_sequences(streams[0], 1000, 16)  # of which each reads 15 tokens of the text, none twice
    assert rows.shape[0] == plain.numel() // 15
    assert torch.equal(rows[0, 1:], plain.ids[:15])
    assert torch.equal(rows[-1, 1:], plain.ids[-15:])


def test_every_window_of_a_perplexity_begins_with_bos():
    model = build_model("Gemma", vocab_size=512)
    ids = tokenize(TOKENIZER, TEXT).ids[:60]
    text = ids[1:]
    found = perplexity(model, TEXT, tokenizer=TOKENIZER, length=21, stride=10, max_tokens=60)
    losses, done, start = [], 0, 0
    while done < len(text):
        window = torch.tensor([[BOS, *text[start : start + 20]]])
        nll = token_nll(model, final_hidden(model, window), window)[0]
        losses += nll[done - start :].tolist()
        done, start = start + window.shape[1] - 1, start + 10
    assert found.scored == len(losses) == 59
    assert found.value == pytest.approx(math.exp(sum(losses) / len(losses)))
    same = perplexity(model, ids, tokenizer=TOKENIZER, length=21, stride=10)
    assert same.value == found.value
    without = perplexity(model, TEXT, tokenizer=TOKENIZER, length=21, stride=10, max_tokens=59, special_tokens="none")
    assert (without.scored, without.value != found.value) == (58, True)


def test_added_tokens_are_no_words():
    pieces = ["<bos>", "The", " cat", " saw", " Ann", "<|im_end|>"]
    assert classify(pieces).classes == ["other", "determiner", "content", "content", "name", "other"]
    assert added_tokens(TOKENIZER).pieces == ("<bos>",)


CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}</s>{% endfor %}"
)
CHAT_TOKENIZER = build_bos_tokenizer(chat_template=CHAT_TEMPLATE)
LINES = "user: Is it quiet?\nAt the harbour, I mean.\n\nAssistant: Yes.\n"
JSON = (
    '[{"role": "user", "content": "Is it quiet?\\nAt the harbour, I mean."}, {"role": "assistant", "content": "Yes."}]'
)


@pytest.mark.parametrize("text", [LINES, JSON])
def test_both_forms_go_through_the_template_and_bos_stands_once(text):
    made = chat_text(CHAT_TOKENIZER, text)
    assert made == "<bos>[user]Is it quiet?\nAt the harbour, I mean.</s>[assistant]Yes.</s>"
    tokens = tokenize(CHAT_TOKENIZER, made)
    assert tokens.ids.count(1) == 1
    assert joined_text(tokens.pieces, tokens.starts, tokens.ends) == made
    assert dict(tokens.spelled) == {"<bos>": 1, "</s>": 2}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Hello there", "does not begin with a turn"),
        ("Hello\nuser: there", "does not begin with a turn"),
        ("[1, 2", "not valid JSON"),
        ('[{"role": "user"}]', "turn 1 of the chat lacks"),
        ('["user"]', "turn 1 of the chat lacks"),
        ("[]", "has no turn"),
    ],
)
def test_what_is_no_chat_is_refused(text, problem):
    with pytest.raises(TextError, match=problem):
        read_turns(text)


def test_a_model_without_a_template_and_a_template_that_refuses_say_so():
    with pytest.raises(TextError, match="the model has no chat template"):
        chat_text(build_tokenizer(), LINES)
    with pytest.raises(TextError, match="refuses the turns: no system"):
        chat_text(CHAT_TOKENIZER, "system: Be brief.\nuser: Hello.")
