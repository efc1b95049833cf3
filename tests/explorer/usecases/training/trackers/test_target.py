"""`--log-to`: what it takes and what is refused before a training starts."""

from __future__ import annotations

import pytest

from focus_explorer.errors import InputError
from focus_explorer.usecases.training.trackers import target
from focus_explorer.usecases.training.trackers.target import LogTarget, check_targets, parse_targets


def test_a_program_with_or_without_a_place():
    assert parse_targets(["tensorboard:C:/runs", "wandb", "trackio:my project"]) == [
        LogTarget("tensorboard", "C:/runs"),
        LogTarget("wandb", "focus"),
        LogTarget("trackio", "my project"),
    ]
    assert parse_targets([]) == []


@pytest.mark.parametrize(
    ("words", "part"), [(["mlflow"], "expected tensorboard"), (["trackio", "trackio:a"], "trackio 2 times")]
)
def test_bad_words_are_refused(words, part):
    with pytest.raises(InputError, match=part):
        parse_targets(words)


def test_what_is_missing_is_refused_with_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setattr(target, "find_spec", lambda name: None)
    for kind in ("tensorboard", "trackio", "wandb"):
        with pytest.raises(InputError, match=rf"pip install 'focus-explorer\[{kind}\]'"):
            check_targets([LogTarget(kind, "x")])
    monkeypatch.setattr(target, "find_spec", lambda name: object())
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        check_targets([LogTarget("tensorboard", str(tmp_path / "file"))])
    check_targets([LogTarget("tensorboard", str(tmp_path / "new"))])
