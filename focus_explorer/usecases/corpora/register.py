"""Analysed corpora of a database: their list, pooled numbers and removal."""

from __future__ import annotations

from typing import Any

from focus_explorer.data.corpus import CorpusData
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import old_text_note
from focus_runtime.measure.intervals import COARSE_BELOW as COARSE_BELOW  # for the command line
from focus_runtime.run.folder import CorpusFolder
from focus_runtime.store.corpora import corpora, corpus_row, forget_corpus


def list_corpora(service: Service) -> list[dict[str, Any]]:
    """Every corpus, newest first; `interrupted` where no process works on it, counted from its folder."""
    rows = []
    for row in corpora(service.database):
        folder = CorpusFolder.of(row["folder"], row["corpus_id"])
        if row["status"] != "complete":
            working = folder.is_worked_on()
            row |= {"status": "running" if working else "interrupted", "documents": len(folder.numbers())}
        rows.append(row)
    return rows


def is_stored_corpus(service: Service, corpus_id: str) -> bool:
    return corpus_row(service.database, corpus_id) is not None


def corpus_summary(service: Service, corpus_id: str, *, documents: bool = False) -> dict[str, Any]:
    """Pooled numbers of a corpus; with `documents` also those of every document, as `per_document`."""
    data = CorpusData(service.database, corpus_id)
    summary = data.summary()
    note = old_text_note(service, summary["model"], summary["settings"].get("special_tokens"))
    summary["notes"] = [] if note is None else [note]
    return summary | ({"per_document": data.per_document()} if documents else {})


def delete_corpus(service: Service, corpus_id: str) -> bool:
    """Remove a corpus and its files; False where the files were not there."""
    row = corpus_row(service.database, corpus_id)
    if row is None:
        raise NotFoundError(f"there is no corpus {corpus_id!r}", fix="see `focus-explorer corpora`")
    folder = CorpusFolder.of(row["folder"], corpus_id)
    if folder.is_worked_on():
        raise InputError(f"the corpus {corpus_id} is being worked on", fix="stop that command first")
    was_there = folder.delete()
    forget_corpus(service.database, corpus_id)
    return was_there
