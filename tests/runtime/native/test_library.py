"""The C++ functions are compiled once; where they cannot be, the reason is kept and nothing is raised."""

from __future__ import annotations

import os

import pytest

from focus_runtime.native import library

needs_compiler = pytest.mark.skipif(library.library()[0] is None, reason="no C++ compiler")


@pytest.mark.slow
@needs_compiler
def test_it_is_compiled_once(tmp_path, monkeypatch):
    source, folder = tmp_path / "short.cpp", tmp_path / "kernels"  # the kernel itself takes seconds to compile
    source.write_text("int one() { return 1; }\n")
    folder.mkdir()
    monkeypatch.setattr(library, "SOURCES", (source,))
    first = library.build(folder)
    stamp = first.stat().st_mtime_ns
    assert library.build(folder) == first
    assert first.stat().st_mtime_ns == stamp
    assert list(folder.iterdir()) == [first]  # nothing half-built next to it
    monkeypatch.setattr(library, "FLAGS", (*library.FLAGS, "-DOTHER"))
    assert library.build(folder) != first


@needs_compiler
def test_a_compiler_that_fails_says_so(broken_library, tmp_path):
    broken_library.setattr(library, "FLAGS", ("--no-such-flag",))
    broken_library.setattr("focus_runtime.files.default_cache_dir", lambda: tmp_path)
    assert library.library()[0] is None
    assert "failed" in library.library()[1]
    assert list((tmp_path / "kernels").iterdir()) == []


@needs_compiler
@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_cache_is_no_error(broken_library, tmp_path):
    tmp_path.chmod(0o500)
    broken_library.setattr("focus_runtime.files.default_cache_dir", lambda: tmp_path)
    assert library.library()[0] is None
