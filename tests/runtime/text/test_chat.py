"""A chat as turns goes through the model's own template."""

from __future__ import annotations

import pytest

from focus_runtime.errors import TextError
from focus_runtime.text.special import chat_text, read_turns
from focus_runtime.text.tokens import joined_text, tokenize
from tests.helpers import build_bos_tokenizer, build_tokenizer

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}</s>{% endfor %}"
)
TOKENIZER = build_bos_tokenizer(chat_template=TEMPLATE)
LINES = "user: Is it quiet?\nAt the harbour, I mean.\n\nAssistant: Yes.\n"
JSON = (
    '[{"role": "user", "content": "Is it quiet?\\nAt the harbour, I mean."}, {"role": "assistant", "content": "Yes."}]'
)


@pytest.mark.parametrize("text", [LINES, JSON])
def test_both_forms_go_through_the_template_and_bos_stands_once(text):
    made = chat_text(TOKENIZER, text)
    assert made == "<bos>[user]Is it quiet?\nAt the harbour, I mean.</s>[assistant]Yes.</s>"
    tokens = tokenize(TOKENIZER, made)
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
        chat_text(TOKENIZER, "system: Be brief.\nuser: Hello.")
