"""The manifest of a bundle: everything needed to make its tables again, or to explain why they differ.

Without the text, nothing of a token is recorded by its place in the text (docs/bundles.md explains why). Changes made
by hand are recorded all the same: without them the run cannot be made again.
"""

from __future__ import annotations

import hashlib
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import InputError
from focus_explorer.usecases.centroids.files import shipped_name
from focus_explorer.usecases.centroids.ready import CALIBRATION_TOKENS
from focus_explorer.usecases.runs import checked_text
from focus_explorer.usecases.service import Service
from focus_runtime.store.database import Database
from focus_runtime.version import __version__

PACKAGES = (
    *("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", "scikit-learn", "umap-learn"),
    *("duckdb", "pyarrow", "pandas", "plotly", "kaleido", "spacy"),
)

Row = dict[str, Any]


class SteadyDatabase(Database):
    """Database read on one thread and in UTC, so that sums and times are the same on every machine."""

    SETTINGS = "SET threads = 1; SET TimeZone = 'UTC'"


def describe_run(service: Service, database: Database, run_id: str, *, with_text: bool) -> tuple[Row, str]:
    """A run's entry of the manifest, `with_text` also of what has a place in the text; and the text."""
    run = fetch_run(database, run_id)
    tokens = _rows(database, "SELECT token_id FROM tokens WHERE run_id = ? ORDER BY position", run_id)
    text = checked_text(database, run)
    versions = json.loads(run["versions"])
    threads = versions.pop("threads", None)
    entry = {
        "run_id": run_id,
        "created_at": run["created_at"].isoformat(),
        "command": run["command"],
        "model": {"id": run["model_id"], "fingerprint": run["model_fingerprint"]},
        "tokenizer": describe_tokenizer(service, run),
        "centroids": {"name": run["centroids_name"], "sha256": run["centroids_sha256"], "source": _source(run)},
        "config": json.loads(run["config"]),
        "changes": json.loads(run["changes"] or "[]"),
        "text": {
            "sha256": run["text_sha256"],
            "characters": len(text),
            "bytes": len(text.encode()),
            "tokens": run["num_tokens"],
            "tokens_sha256": ids_sha256([row["token_id"] for row in tokens]),
            **_special_tokens(run),
            "file": f"text/{run_id}.txt" if with_text else None,
        },
        "execution": {
            "dtype": run["dtype"],
            "device": run["device"],
            "backend": run["backend"],
            "requested_backend": run["requested_backend"],
            "threads": int(threads) if threads else None,
            "versions": versions,
        },
        "seeds": {
            "run": run["seed"],
            "random_centroids": run["seed"] if _source(run) == "random" else None,
            "resampling": 0,
        },
        "balanced_on": {"texts": "the sample texts that ship with the tool", "tokens": CALIBRATION_TOKENS},
        "notes": json.loads(run["notes"]),
        "measured": describe_measured(database, run_id, with_text=with_text),
        "timing": {
            "protocol": timing_protocol(run["device"]),
            "repeats": _rows(
                database, "SELECT * EXCLUDE (run_id) FROM timings WHERE run_id = ? ORDER BY mode, stage, repeat", run_id
            ),
        },
        "maps": _maps(database, run_id, with_text=with_text),
    }
    return entry, text


def _special_tokens(run: Row) -> Row:
    """How the text was read; nothing where the run does not say, which was made before 0.3."""
    if run["special_tokens"] is None:
        return {}
    return {"special_tokens": run["special_tokens"], "added_tokens": json.loads(run["added_tokens"])}


def timing_protocol(device: str) -> str:
    """How times were measured on a device."""
    from focus_runtime.measure.timing import WARM_UP_TOKENS

    read = f"the first {WARM_UP_TOKENS} tokens" if device.startswith("cpu") else "all tokens"
    stages = (
        " Times of stages other than `end_to_end` are from another pass just before, since to time them slows a GPU."
        if "cuda" in device
        else ""
    )
    return (
        f"Wall time of one forward pass to the last hidden state, device synchronised on both sides, after one pass of "
        f"each kind over {read}; full attention and Focus in turn.{stages} `milliseconds` of every repeat are "
        f"measurements."
    )


def ids_sha256(ids: list[int]) -> str:
    """Hash of token ids in order, as decimal numbers with spaces between."""
    return hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest()


def describe_tokenizer(service: Service, run: Row) -> Row:
    """Class, and hash of the vocabulary's sorted (token, id) pairs; or why it is unknown."""
    try:
        with service.models.lease(run["model_id"]) as loaded:
            if loaded.fingerprint != run["model_fingerprint"]:
                return {"class": None, "why": f"{run['model_id']} has other weights now than when the run was made"}
            return tokenizer_entry(loaded.tokenizer)
    except InputError as error:
        return {"class": None, "why": str(error)}


def tokenizer_entry(tokenizer: Any) -> Row:
    words = json.dumps(sorted(tokenizer.get_vocab().items()), ensure_ascii=True)
    return {
        "class": type(tokenizer).__name__,
        "vocabulary_size": len(tokenizer),
        "vocabulary_sha256": hashlib.sha256(words.encode()).hexdigest(),
    }


def describe_measured(database: Database, run_id: str, *, with_text: bool = True) -> Row:
    """Which measurements beyond the run itself were made, and with which settings; None for those that were not.

    Explained tokens are named by their places `with_text`; else `explained_count` says how many they are.
    """

    def rows(query: str) -> list[Row]:
        return _rows(database, query, run_id)

    def first(query: str) -> Row | None:
        return next(iter(rows(query)), None)

    attention = first(
        "SELECT any_value(num_tokens) AS tokens, count(DISTINCT head) AS heads, "
        "count(DISTINCT layer) AS layers FROM attention_mass WHERE run_id = ? HAVING count(*) > 0"
    )
    if attention is not None:
        queries = rows("SELECT DISTINCT centroids FROM attention_queries WHERE run_id = ? ORDER BY 1")
        attention["queries"] = [row["centroids"] for row in queries]
    explained = rows("SELECT token FROM explained_tokens WHERE run_id = ? ORDER BY token")
    tokens = [row["token"] for row in explained]
    places: Row = {"explained_tokens": tokens or None}
    if tokens and not with_text:
        places = {"explained_tokens": None, "explained_count": len(tokens)}
    # of settings and lengths every measured value: what was timed is kept, the rest can be computed again
    settings = "SELECT * EXCLUDE (run_id) FROM comparisons WHERE run_id = ? ORDER BY kind, window_size, top_k"
    lengths = "SELECT * EXCLUDE (run_id) FROM crossovers WHERE run_id = ? ORDER BY layer, tokens"
    return {
        "attention": attention,
        "tags": first("SELECT tagger FROM taggings WHERE run_id = ?"),
        "random_centroids": first("SELECT seed, balanced_on FROM baselines WHERE run_id = ?"),
        "comparisons": rows(settings) or None,
        "lengths": rows(lengths) or None,
        "head_costs": first("SELECT count(nll) AS verified FROM head_costs WHERE run_id = ? HAVING count(*) > 0"),
        **places,
    }


def machine() -> Row:
    """What the numbers may depend on besides versions, of the machine that makes the bundle."""
    from focus_runtime.measure.timing import machine as measured

    values = measured("cpu")
    kept = ("cpu", "cores", "capability", "fused_kernel")
    return {name: values[name] for name in kept} | {"system": platform.system(), "architecture": platform.machine()}


def versions() -> dict[str, str]:
    installed = {"focus-explorer": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue  # an optional part that is not installed
    return installed


def file_entry(folder: Path, path: Path) -> Row:
    data = path.read_bytes()
    return {"path": path.relative_to(folder).as_posix(), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def to_json(manifest: Row) -> str:
    """The file's content; the same manifest gives the same bytes, and every number reads back exactly."""
    return json.dumps(manifest, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def _source(run: Row) -> str:
    if run["centroids_name"] == "random":
        return "random"
    return shipped_name(run["centroids_sha256"]) or "file"


def _maps(database: Database, run_id: str, *, with_text: bool) -> list[Row]:
    """Stored coordinates of tokens and centroids; without the text in the order of x, not of the text."""
    maps = []
    metas = _rows(
        database, "SELECT * EXCLUDE (run_id) FROM projection_meta WHERE run_id = ? ORDER BY projection_id", run_id
    )
    for meta in metas:
        points = _rows(
            database,
            "SELECT p.position, p.x, p.y, a.top_group FROM projections p LEFT JOIN assignments a "
            "ON a.run_id = $2 AND a.layer = p.layer AND a.position = p.position WHERE p.projection_id = $1 "
            "ORDER BY " + ("p.position" if with_text else "p.x, p.y"),
            meta["projection_id"],
            run_id,
        )
        tokens = [row for row in points if row["position"] >= 0]
        centroids = sorted((row for row in points if row["position"] < 0), key=lambda row: -row["position"])
        entry = meta | {
            "parameters": json.loads(meta["parameters"]),
            "tokens": {name: [row[name] for row in tokens] for name in ("x", "y", "top_group")},
            "centroids": {name: [row[name] for row in centroids] for name in ("x", "y")},
        }
        if with_text:
            entry["tokens"]["position"] = [row["position"] for row in tokens]
        maps.append(entry)
    return maps


def _rows(database: Database, query: str, *parameters: Any) -> list[Row]:
    with database.read() as connection:
        rows: list[Row] = connection.sql(query, params=list(parameters)).to_arrow_table().to_pylist()
    return [
        {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in row.items()}
        for row in rows
    ]
