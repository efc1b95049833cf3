"""Where the embedded model's file is looked for, and what is said where it is not here."""

from __future__ import annotations

import pytest

from focus_runtime.errors import ModelError
from focus_runtime.models import embedded
from focus_runtime.models.loading import check_name, load_model, load_tokenizer
from tests.helpers import ROOT


def test_the_embedded_model_not_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(embedded, "MODULE", "no_such_package_here")
    message = r"embedded model smollm2-135m is not installed.*run `focus-explorer setup`"
    with pytest.raises(ModelError, match=message):
        load_model(cache_dir=tmp_path)
    with pytest.raises(ModelError, match=message):
        check_name(embedded.EMBEDDED, cache_dir=tmp_path)
    assert load_tokenizer(embedded.EMBEDDED, cache_dir=tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_setup_kept_comes_first(monkeypatch, tmp_path):
    package = tmp_path / "some_model_package"
    package.mkdir()
    (package / "__init__.py").write_text("import no_such_dependency")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(embedded, "MODULE", "some_model_package")
    assert embedded.find_embedded_gguf(tmp_path) is None  # the package without its file
    (package / embedded.FILE).write_bytes(b"installed")
    assert embedded.embedded_gguf(tmp_path) == package / embedded.FILE
    kept = embedded.kept_gguf(tmp_path)
    kept.parent.mkdir()
    kept.write_bytes(b"kept")
    assert embedded.embedded_gguf(tmp_path) == kept
    assert not embedded.is_whole(kept)
    with pytest.raises(ModelError, match="cannot read"):
        embedded.is_whole(tmp_path)


@pytest.mark.model
def test_the_pins_are_those_of_the_lock_and_of_the_installed_file(tmp_path):
    assert f"\n{embedded.PACKAGE}=={embedded.PACKAGE_VERSION} " in (ROOT / "deploy" / "requirements.lock").read_text()
    assert embedded.is_whole(embedded.embedded_gguf(tmp_path))
