"""The C++ functions are compiled once; where they cannot be, the reason is kept and nothing is raised."""

from __future__ import annotations

import importlib.util
import os
import sys

import pytest

from focus_runtime import native

needs_compiler = pytest.mark.skipif(native.library()[0] is None, reason="no C++ compiler")


@pytest.mark.slow
@needs_compiler
def test_it_is_compiled_once(tmp_path, monkeypatch):
    source, folder = tmp_path / "short.cpp", tmp_path / "kernels"  # the kernel itself takes seconds to compile
    source.write_text("int one() { return 1; }\n")
    folder.mkdir()
    monkeypatch.setattr(native, "SOURCES", (source,))
    first = native.build(folder)
    stamp = first.stat().st_mtime_ns
    assert native.build(folder) == first
    assert first.stat().st_mtime_ns == stamp
    assert list(folder.iterdir()) == [first]  # nothing half-built next to it
    monkeypatch.setattr(native, "FLAGS", (*native.FLAGS, "-DOTHER"))
    assert native.build(folder) != first


@needs_compiler
def test_a_compiler_that_fails_says_so(broken_library, tmp_path):
    broken_library.setattr(native, "FLAGS", ("--no-such-flag",))
    broken_library.setattr("focus_runtime.files.default_cache_dir", lambda: tmp_path)
    assert native.library()[0] is None
    assert "failed" in native.library()[1]
    assert list((tmp_path / "kernels").iterdir()) == []


def test_a_machine_without_a_compiler_takes_the_one_from_pypi(broken_library, tmp_path):
    broken_library.setattr(native, "COMPILERS", ("no-such-compiler",))
    broken_library.setattr(native, "PACKAGED", "json")  # a module that is there; it compiles nothing
    command = native.compiler_command(tmp_path)
    assert command[-4:] == [sys.executable, "-m", "json", "c++"]
    assert any(word.startswith("ZIG_GLOBAL_CACHE_DIR=") for word in command) is (os.name == "posix")
    broken_library.setattr("focus_runtime.files.default_cache_dir", lambda: tmp_path)
    assert native.library()[0] is None
    assert native.library()[1]


def test_without_any_compiler_the_reason_names_what_to_install(broken_library, tmp_path):
    broken_library.setattr(native, "COMPILERS", ("no-such-compiler",))
    broken_library.setattr(native, "PACKAGED", "no-such-package")
    with pytest.raises(OSError, match=r"no-such-compiler.*pip install no-such-package"):
        native.compiler_command(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed")
def test_the_compiler_from_pypi_builds_what_is_called(broken_library, tmp_path):
    broken_library.setattr(native, "COMPILERS", ())
    source = tmp_path / "short.cpp"
    source.write_text('extern "C" int one() { return 1; }\n')
    broken_library.setattr(native, "SOURCES", (source,))
    assert native.build(tmp_path).is_file()


@needs_compiler
@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_cache_is_no_error(broken_library, tmp_path):
    tmp_path.chmod(0o500)
    broken_library.setattr("focus_runtime.files.default_cache_dir", lambda: tmp_path)
    assert native.library()[0] is None


@pytest.mark.slow
@needs_compiler
@pytest.mark.skipif(os.name != "posix", reason="has no owners and modes")
def test_what_others_could_have_written_is_not_loaded(broken_library, tmp_path):
    """A planted library would run with the rights of whoever starts the page (audit finding M5)."""
    source, folder = tmp_path / "short.cpp", tmp_path / "kernels"
    source.write_text("int one() { return 1; }\n")
    broken_library.setattr(native, "SOURCES", (source,))
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    made = native.build(folder)
    assert folder.stat().st_mode & 0o022 == 0
    content = made.read_bytes()
    made.write_bytes(b"planted")
    made.chmod(0o777)
    assert native.build(folder).read_bytes() == content
    assert made.stat().st_mode & 0o022 == 0
    made.unlink()
    (tmp_path / "planted.so").write_bytes(b"planted")
    made.symlink_to(tmp_path / "planted.so")
    assert native.build(folder).read_bytes() == content
    assert (tmp_path / "planted.so").read_bytes() == b"planted"


@needs_compiler
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives folders away")
def test_a_folder_of_somebody_else_is_refused(broken_library, tmp_path):
    (tmp_path / "kernels").mkdir()
    os.chown(tmp_path / "kernels", 1, 1)
    broken_library.setattr("focus_runtime.files.default_cache_dir", lambda: tmp_path)
    assert native.library() == (None, f"{tmp_path / 'kernels'} belongs to somebody else")
