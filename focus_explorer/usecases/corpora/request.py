"""Which corpus to analyse, and how; imports no model library, so the command line can build it for its help."""

from __future__ import annotations

from dataclasses import dataclass, field

from focus_explorer.errors import ConfigError
from focus_explorer.usecases.analyze import AnalyzeRequest
from focus_runtime.run.source import GLOB, TEXT_COLUMN, is_corpus

__all__ = ["GLOB", "TEXT_COLUMN", "CorpusRequest", "CorpusStopped", "is_corpus"]  # the command line takes them here

ENGINES = ("local", "ray")


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusRequest:
    """What a user requests.

    Attributes:
        source: a folder, a .jsonl or a .parquet file.
        how: model, centroids, settings and most tokens of a document; repeats are not used.
        name: shown in lists; the source's own when empty.
        out: folder to write to; `corpora` in the database's folder when None.
        engine, address, workers, gpus_per_worker: `local`, or `ray` with as many workers.
        threads: of torch in each worker; all of the machine's, shared among its workers, when None.
        tags, baseline: parts of speech; a pass with random centroids.
    """

    source: str
    how: AnalyzeRequest = field(default_factory=AnalyzeRequest)
    glob: str = GLOB
    text_column: str = TEXT_COLUMN
    name: str = ""
    out: str | None = None
    engine: str = "local"
    address: str | None = None
    workers: int | None = None
    gpus_per_worker: float = 0.0
    threads: int | None = None
    tags: bool = True
    baseline: bool = True

    def check(self) -> None:
        """Refuse invalid options before any work.

        Raises:
            ConfigError: a number is out of range, or an option does not go with the engine.
        """
        self.how.check()
        least = {
            "workers": (self.workers, 1),
            "threads": (self.threads, 1),
            "gpus_per_worker": (self.gpus_per_worker, 0),
        }
        for name, (value, low) in least.items():
            if value is not None and value < low:
                raise ConfigError(f"{name} is {value}", expected=f"at least {low}")
        if self.engine not in ENGINES:
            raise ConfigError(f"engine is {self.engine!r}", expected=" or ".join(ENGINES))
        if self.engine == "local" and (self.address is not None or (self.workers or 1) > 1):
            raise ConfigError("several workers or an address", expected="--engine ray with them")


class CorpusStopped(Exception):  # noqa: N818 - it is no error
    """The user stopped; what is done is kept, and the same command resumes."""

    def __init__(self, corpus_id: str, done: int, total: int) -> None:
        self.corpus_id, self.done, self.total = corpus_id, done, total
        super().__init__(f"stopped with {done:,} of {total:,} documents done, which are kept")
