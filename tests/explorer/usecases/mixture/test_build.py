"""The whole mixture from tiny packages: what is written, in which order, and that mistakes write nothing."""

from __future__ import annotations

import hashlib
import json

import pytest

from focus_explorer.errors import InputError, TextError
from focus_explorer.usecases.mixture.build import Package, build_mixture, clean, keys, without_known
from focus_explorer.usecases.mixture.sources import BALANCE, PYPI, TRAIN, UNSEEN, VALIDATION, Source
from focus_runtime.files import PART

LONG = "A paragraph that is long enough to be compared with the paragraphs of other texts."
OTHER = "Another paragraph that is long enough to be compared, and that no other text has at all."


def test_line_ends_control_characters_and_many_blank_lines_are_cleaned():
    assert clean("\ufeffone \r\ntwo\u00a0three\x07\t\n\n\n\n\n  four\f") == "one\ntwo three\n\n\n  four"
    assert clean("indented:\n\n    code\n") == "indented:\n\n    code"
    assert clean("\n\n    code\n") == "    code"


def test_known_paragraphs_are_dropped_and_the_rest_keeps_its_layout():
    text = f"Title\n\n{LONG}\n\n\n    {OTHER}\n\nTitle\n"
    assert without_known(text, keys(LONG)) == (f"Title\n\n    {OTHER}\n\nTitle", 1)
    assert without_known(text, keys("Title")) == (text.strip("\n"), 0)
    assert without_known(LONG, keys(LONG)) == ("", 1)


SHARED = "A listing that stands in the manual of every language and is longer than the rest of them."
ENGLISH = "This paragraph of the manual has been written in English and has not been translated yet."
PAGES = {
    "manual/en/1.html": f"<p>The English manual has a paragraph of its own, and it is long.<p>{SHARED}<p>{ENGLISH}",
    "manual/it/1.html": f"<p>Il manuale italiano ha un paragrafo tutto suo, ed è lungo.<p>{SHARED}",
    "manual/de/1.html": f"<p>Das deutsche Handbuch hat einen ersten eigenen Absatz, der lang ist.<p>{ENGLISH}",
}


def source(package, split, domain, files, **more):
    more = {"kind": "html", "language": "en", "licence": "MIT"} | more
    return Source(package=package, split=split, domain=domain, files=(files,), **more)


SOURCES = (
    source("manual", TRAIN, "manual-en", "en/*"),
    source("guide", VALIDATION, "manual-en", "*"),
    source("manual", UNSEEN, "manual-de", "de/*", language="de", original=("en/*",)),
    source("manual", BALANCE, "manual-it", "it/*", language="it"),
    source("code==1.0", TRAIN, "python", "*.py", kind="code", registry=PYPI, most=40),
    source("gone", TRAIN, "manual-en", "*"),
    source("empty", TRAIN, "manual-en", "*.html"),
)


@pytest.fixture
def novels(tmp_path):
    folder = tmp_path / "novels"
    folder.mkdir()
    for name in ("emma", "persuasion", "sanditon"):
        (folder / f"{name}.txt").write_text(
            f"{name}\n\nA novel with a paragraph that is about {name} and nobody else.\n"
        )
    return folder


def download(requested, folder, progress):
    assert requested == {"Debian": ["empty", "gone", "guide", "manual"], "PyPI": ["code==1.0"]}
    contents = PAGES | {
        "guide/1.html": f"<p>A guide.<p>{SHARED}",
        "code/b.py": "b = 1\n",
        "code/a.py": "a = 1\n\n\n" + "# a long comment, which does not fit in\n",
        "empty/no.txt": "no",
    }
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    found = {name: Package(name, "1.0", folder / name) for name in ("manual", "guide", "empty")}
    return found | {"code==1.0": Package("code", "1.0", folder / "code"), "gone": "this mirror has no such package"}


def build(out, novels, **more):
    return build_mixture(out, novels, sources=SOURCES, download=download, **more)


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_texts_are_written_by_split_and_domain(tmp_path, novels):
    mixture = build(tmp_path / "out", novels, held_out="emma.txt")
    found = {path: content.decode() for path, content in contents(tmp_path / "out").items()}
    record = json.loads(found.pop("sources.json"))
    assert list(found) == sorted(f["path"] for f in record["files"])
    assert set(found) == {
        "balance/manual-it/manual.txt",
        "train/manual-en/manual.txt",
        "train/novels/persuasion.txt",
        "train/novels/sanditon.txt",
        "train/python/code.txt",
        "unseen/manual-de/manual.txt",
        "validation/manual-en/guide.txt",
        "validation/novels/emma.txt",
    }
    assert SHARED in found["validation/manual-en/guide.txt"]
    assert SHARED not in found["train/manual-en/manual.txt"]
    assert ENGLISH in found["train/manual-en/manual.txt"]
    assert "Absatz" in found["unseen/manual-de/manual.txt"]
    assert ENGLISH not in found["unseen/manual-de/manual.txt"]
    assert "paragrafo" in found["balance/manual-it/manual.txt"]
    assert SHARED not in found["balance/manual-it/manual.txt"]
    assert found["train/python/code.txt"] == "a = 1\n"
    assert mixture.files == record["files"]


def test_the_record_says_where_every_text_is_from(tmp_path, novels):
    mixture = build(tmp_path / "out", novels)
    record = json.loads((tmp_path / "out" / "sources.json").read_text())
    for entry in record["files"]:
        content = (tmp_path / "out" / entry["path"]).read_bytes()
        assert entry["sha256"] == hashlib.sha256(content).hexdigest()
        assert (entry["bytes"], entry["characters"]) == (len(content), len(content.decode()))
        assert entry["licence"]
        assert entry["path"].split("/")[:2] == [entry["split"], entry["domain"]]
    by_path = {entry["path"]: entry for entry in record["files"]}
    assert by_path["train/python/code.txt"]["source"] == {"registry": "PyPI", "package": "code", "version": "1.0"}
    assert by_path["train/manual-en/manual.txt"]["held_out_paragraphs_dropped"] == 1
    assert by_path["unseen/manual-de/manual.txt"]["language"] == "de"
    assert record["left_out"] == ["train/manual-en/empty.txt", "train/manual-en/gone.txt"]
    assert "train/manual-en/gone.txt is left out: gone of Debian: this mirror has no such package" in mixture.notes()
    assert "train/manual-en/empty.txt is left out: empty 1.0 has no such files" in mixture.notes()
    assert any(note.startswith("unseen/manual-de has ") for note in mixture.notes())
    assert str(tmp_path) not in json.dumps(record)
    assert [p.name for p in (tmp_path / "out" / "validation" / "novels").iterdir()] == ["sanditon.txt"]  # the last


def test_the_same_packages_give_the_same_bytes(tmp_path, novels):
    build(tmp_path / "one", novels)
    (tmp_path / "two").mkdir()
    build(tmp_path / "two", novels)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def never(requested, folder, progress):
    raise AssertionError("mistakes are known before anything is downloaded")


def test_a_folder_with_files_is_left_alone(tmp_path, novels):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="out exists and is not empty; expected a new folder"):
        build_mixture(tmp_path / "out", novels, download=never)
    with pytest.raises(InputError, match="exists and is not empty"):
        build_mixture(novels / "emma.txt", novels, download=never)
    assert contents(tmp_path / "out") == {"mine.txt": b"mine"}


def test_novels_are_needed(tmp_path, novels):
    with pytest.raises(TextError, match="nowhere is no folder; expected a folder with at least two novels"):
        build_mixture(tmp_path / "out", tmp_path / "nowhere", download=never)
    with pytest.raises(TextError, match=r"has no ema.txt; expected one of emma.txt, persuasion.txt"):
        build_mixture(tmp_path / "out", novels, held_out="ema.txt", download=never)
    for path in list(novels.iterdir())[1:]:
        path.unlink()
    with pytest.raises(TextError, match=r"holds 1 .txt files; expected"):
        build_mixture(tmp_path / "out", novels, download=never)


def test_nothing_half_written_stays(tmp_path, novels):
    def fails(requested, folder, progress):
        raise InputError("no package can be downloaded")

    with pytest.raises(InputError, match="no package"):
        build_mixture(tmp_path / "out", novels, sources=SOURCES, download=fails)

    def full(requested, folder, progress):
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"cannot write .*out: No space left on device"):
        build_mixture(tmp_path / "out", novels, sources=SOURCES, download=full)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(f"{PART}*"))
