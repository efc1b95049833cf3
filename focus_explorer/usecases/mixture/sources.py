"""Which files of which packages become the mixture: the one table of domains, documents and licences.

A domain whose texts are only in `UNSEEN` is kept out of training whole. The validation texts of the other domains are
other documents: other packages or other books, never other parts of a document that training reads. Domains in
`BALANCE` are only there to balance groups on: further languages and scripts, none of them a tested one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

TRAIN, VALIDATION, UNSEEN, BALANCE = "train", "validation", "unseen", "balance"
SPLITS = (TRAIN, VALIDATION, UNSEEN, BALANCE)
HELD_OUT = (VALIDATION, UNSEEN)
DEBIAN, PYPI = "Debian", "PyPI"
NOVELS = "novels"  # the domain whose files the user gives
MOST_TRAINING, MOST_HELD_OUT = 3_000_000, 600_000  # bytes of a domain
LEAST_TRAINING, LEAST_HELD_OUT = 1_000_000, 200_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """What one package gives to one domain."""

    package: str  # its name; with `==VERSION` of PyPI, which keeps every version
    split: str
    domain: str
    kind: str  # how text is taken from its files, a name of `documents.READERS`
    files: tuple[str, ...]  # patterns of paths in the package, in which `*` also stands for `/`
    language: str
    licence: str
    without: tuple[str, ...] = ()
    original: tuple[str, ...] = ()  # English edition: long paragraphs that a translation shares with it are taken out
    original_package: str = ""
    begin: str = ""  # where the text begins; what comes before it is about the file
    mixed: bool = False  # order the files by a hash of their paths, so that a part of them stands for all
    most: int = MOST_TRAINING
    registry: str = DEBIAN

    @property
    def name(self) -> str:
        return self.package.partition("==")[0]

    @property
    def path(self) -> PurePosixPath:
        return PurePosixPath(self.split, self.domain, f"{self.name}.txt")


DOC = "usr/share/doc"
GPL2, GPL3 = "GPL-2.0-or-later", "GPL-3.0-or-later"


def _table(columns: str, rows: Iterable[tuple[Any, ...]], **common: Any) -> list[Source]:
    """A source for each row; the columns are its fields, and what is common to all follows."""
    return [Source(**dict(zip(columns.split(), row, strict=True)), **common) for row in rows]


def _manuals() -> Iterator[Source]:
    """Handbooks and guides in twelve languages; three of them are in no other text, and six are only balanced on."""
    trained = {"en": "en-US", "fr": "fr-FR", "es": "es-ES"}
    unseen = {"de": "de-DE", "ru": "ru-RU", "zh": "zh-CN"}
    balanced = {"ar": "ar-MA", "fa": "fa-IR", "ja": "ja-JP", "pl": "pl-PL", "tr": "tr-TR", "vi": "vi-VN"}

    def manual(package: str, language: str, english: str, files: tuple[str, ...], **how: Any) -> Source:
        if language != "en":
            how["original"] = (english,)
        return Source(package=package, domain=f"manual-{language}", language=language, kind="html", files=files, **how)

    handbook = "usr/share/doc/debian-handbook/html"
    for split, most, folders in (
        (TRAIN, 2_000_000, trained),
        (UNSEEN, MOST_HELD_OUT, unseen),
        (BALANCE, 250_000, balanced),
    ):
        for language, folder in folders.items():
            yield manual(
                "debian-handbook",
                language,
                f"{handbook}/en-US/*.html",
                (f"{handbook}/{folder}/*.html",),
                without=("*/index.html", "*/ix01.html"),
                split=split,
                licence=f"{GPL2} or CC-BY-SA-3.0",
                most=most,
            )
    reference = "usr/share/debian-reference"
    for language in trained:
        yield manual(
            f"debian-reference-{language}",
            language,
            f"{reference}/*.en.html",
            (f"{reference}/*.{language}.html",),
            without=("*/index.*",),
            split=TRAIN,
            original_package="" if language == "en" else "debian-reference-en",
            licence=GPL2,
        )
    for package, language, original, files, licence in (
        ("developers-reference", "en", "", "usr/share/developers-reference/*.html", GPL2),
        ("debian-faq", "en", "", f"{DOC}/debian/FAQ/*.en.html", "free copying and modification under the same notice"),
        ("aptitude-doc-en", "en", "", f"{DOC}/aptitude/html/en/*.html", GPL2),
        ("developers-reference-fr", "fr", "developers-reference", "usr/share/developers-reference/fr/*.html", GPL2),
        ("aptitude-doc-fr", "fr", "aptitude-doc-en", f"{DOC}/aptitude/html/fr/*.html", GPL2),
        ("maint-guide-fr", "fr", "maint-guide", f"{DOC}/maint-guide-fr/html/*.html", GPL2),
        ("aptitude-doc-es", "es", "aptitude-doc-en", f"{DOC}/aptitude/html/es/*.html", GPL2),
        ("maint-guide-es", "es", "maint-guide", f"{DOC}/maint-guide-es/html/*.html", GPL2),
    ):
        yield manual(
            package,
            language,
            "*.html",
            (files,),
            without=("*/index.*", "*/search.html", "*/genindex.html", "*/developers-reference.html"),
            split=VALIDATION,
            original_package=original,
            licence=licence,
            most=300_000,
        )


PYTHON = [
    Source(
        package="libpython3.11-stdlib",
        split=TRAIN,
        domain="python",
        kind="code",
        files=("usr/lib/python3.11/*.py",),
        without=("*/encodings/*", "*/pydoc_data/*", "*_sysconfigdata*", "*/lib2to3/*", "*/test/*"),
        language="python",
        licence="PSF-2.0",
        mixed=True,
        most=1_800_000,
    ),
    *_table(
        "package split licence most",
        (
            ("networkx==3.4.2", TRAIN, "BSD-3-Clause", 600_000),
            ("werkzeug==3.1.3", TRAIN, "BSD-3-Clause", 600_000),
            ("click==8.1.8", VALIDATION, "BSD-3-Clause", 180_000),
            ("jinja2==3.1.6", VALIDATION, "BSD-3-Clause", 180_000),
            ("requests==2.32.3", VALIDATION, "Apache-2.0", 180_000),
            ("rich==13.9.4", VALIDATION, "MIT", 180_000),
        ),
        domain="python",
        kind="code",
        files=("*.py",),
        without=("*/tests/*", "*/_unicode_data/*", "*_emoji_codes.py", "*/_identifier.py"),
        language="python",
        mixed=True,
        registry=PYPI,
    ),
]
CHANGELOGS = _table(
    "package split files licence most",
    (
        ("dpkg", TRAIN, (f"{DOC}/dpkg/changelog.gz",), GPL2, 900_000),
        ("git-man", TRAIN, (f"{DOC}/git-man/changelog.gz",), "GPL-2.0-only", 500_000),
        ("coreutils", TRAIN, (f"{DOC}/coreutils/changelog.gz",), GPL3, 400_000),
        ("aptitude-doc-en", VALIDATION, (f"{DOC}/aptitude-doc-en/changelog.Debian.gz",), GPL2, 200_000),
        ("lintian", VALIDATION, (f"{DOC}/lintian/changelog.gz",), GPL2, 200_000),
        ("bash-completion", VALIDATION, (f"{DOC}/bash-completion/changelog.gz",), GPL2, 200_000),
    ),
    domain="changelogs",
    kind="plain",
    language="en",
)
LINUX = "Linux-man-pages-copyleft, GPL-2.0-or-later, BSD, MIT (by page)"
OTHERS = "GPL-2.0-or-later, some GPL-3.0, BSD, MIT or ISC (by page)"
MAN_PAGES = _table(
    "package split licence most",
    (
        ("manpages", TRAIN, LINUX, 1_200_000),
        ("manpages-dev", TRAIN, LINUX, 1_300_000),
        ("dpkg-dev", TRAIN, GPL2, 500_000),
        ("util-linux", VALIDATION, OTHERS, 200_000),
        ("devscripts", VALIDATION, OTHERS, 200_000),
        ("debhelper", VALIDATION, OTHERS, 200_000),
    ),
    domain="man-pages",
    kind="man",
    files=("usr/share/man/man[1-8]/*",),
    language="en",
    mixed=True,
)


def _unseen() -> Iterator[Source]:
    """Genres and languages of machines that no training text has."""
    for package, domain, kind, files, language, licence, most in (
        ("libstb-dev", "c", "code", "usr/include/stb/*.h", "c", "Unlicense or MIT", 450_000),
        ("uthash-dev", "c", "code", "usr/include/*.h", "c", "BSD-1-Clause", 100_000),
        ("libjs-backbone", "javascript", "code", "*/backbone.js", "javascript", "MIT", 100_000),
        ("libjs-prototype", "javascript", "code", "*/prototype*.js", "javascript", "MIT", 200_000),
        ("libjs-underscore", "javascript", "code", "*/underscore.js", "javascript", "MIT", 100_000),
        ("libjs-vue", "javascript", "code", "*/vue.js", "javascript", "MIT", 200_000),
        ("sword-text-web", "scripture", "sword", "*/nt.bz[sz]", "en", "public domain", MOST_HELD_OUT),
        ("dict-devil", "dictionary", "plain", "*.dict.dz", "en", "public domain", 300_000),
        ("dict-jargon", "dictionary", "plain", "*.dict.dz", "en", "public domain", 300_000),
        ("debian-policy", "html", "code", f"{DOC}/debian-policy/policy.html/*.html", "html", GPL2, MOST_HELD_OUT),
        ("postgresql-15-pgtap", "sql", "code", "*/pgtap--?.?.?.sql", "sql", "PostgreSQL", MOST_HELD_OUT),
        ("bash-completion", "shell", "code", "usr/share/bash-completion/*", "shell", GPL2, 300_000),
        ("debootstrap", "shell", "code", "usr/sbin/debootstrap */debootstrap/functions", "shell", "MIT", 200_000),
        ("dkms", "shell", "code", "usr/sbin/dkms", "shell", GPL2, 100_000),
    ):
        yield Source(
            package=package,
            split=UNSEEN,
            domain=domain,
            kind=kind,
            files=tuple(files.split()),
            without=("*/genindex.html", "*/search.html"),
            language=language,
            licence=licence,
            begin={"dict-devil": "PREFACE", "dict-jargon": "(TM)"}.get(package, ""),
            mixed=kind == "code",
            most=most,
        )


SOURCES: tuple[Source, ...] = (*_manuals(), *PYTHON, *CHANGELOGS, *MAN_PAGES, *_unseen())
