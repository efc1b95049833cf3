"""The table of sources: what is kept out of training is out of it whole, and the documents name everything."""

from __future__ import annotations

from focus_explorer.usecases.mixture.documents import READERS
from focus_explorer.usecases.mixture.sources import BALANCE, NOVELS, PYPI, SOURCES, TRAIN, UNSEEN, VALIDATION
from tests.helpers import ROOT


def domains(*splits):
    return {source.domain for source in SOURCES if source.split in splits} | {NOVELS}


def test_unseen_domains_are_in_no_other_split():
    unseen = {source.domain for source in SOURCES if source.split == UNSEEN}
    assert len(unseen) >= 5
    assert not unseen & domains(TRAIN, VALIDATION)
    assert len(unseen | domains(VALIDATION)) >= 8


def test_every_trained_domain_is_validated_on_other_documents():
    assert domains(TRAIN) == domains(VALIDATION)
    trained = {(source.domain, source.name) for source in SOURCES if source.split == TRAIN}
    assert not trained & {(source.domain, source.name) for source in SOURCES if source.split == VALIDATION}


def test_languages_of_unseen_manuals_are_in_no_training_text():
    trained = {source.language for source in SOURCES if source.split == TRAIN}
    manuals = {source.language for source in SOURCES if source.split == UNSEEN and source.domain.startswith("manual-")}
    assert manuals
    assert not manuals & trained


def test_texts_that_groups_are_balanced_on_are_neither_trained_nor_tested_on():
    balanced = [source for source in SOURCES if source.split == BALANCE]
    others = [source for source in SOURCES if source.split != BALANCE]
    assert len(balanced) >= 5
    assert not {source.domain for source in balanced} & {source.domain for source in others}
    assert not {source.language for source in balanced} & {source.language for source in others}


def test_every_source_has_a_reader_a_licence_a_size_and_a_path_of_its_own():
    for source in SOURCES:
        assert source.kind in READERS, source.path
        assert source.licence, source.path
        assert source.files, source.path
        assert 50_000 <= source.most <= 3_000_000, source.path
        assert ("==" in source.package) == (source.registry == PYPI), source.path
        assert source.original or not source.original_package, source.path
    assert len({source.path for source in SOURCES}) == len(SOURCES)


def test_the_page_names_every_source_with_its_licence():
    lines = (ROOT / "docs" / "texts.md").read_text(encoding="utf-8").splitlines()
    rows = {tuple(cell.strip(" `") for cell in line.split("|")[1:-1]) for line in lines if "|" in line}
    for source in SOURCES:
        assert (source.split, source.domain, source.package, source.language, source.licence) in rows, source.path
