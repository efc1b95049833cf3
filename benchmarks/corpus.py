"""What analysing a corpus of short documents costs beyond the model's own time.

Documents are excerpts of 150 to 300 tokens, cut at paragraphs where they can be, from the text files of a folder. They
are analysed by the command itself, in a process of its own. The model's own time is that of its forward passes, output
embedding and loss included: full attention, Focus, and Focus with random centroids. Everything else is overhead:
reading, tokenising, tagging, counting pairs, writing Parquet, and, counted apart, starting up (importing, loading the
model, balancing random centroids) and the summary.

    python benchmarks/corpus.py FOLDER --documents 1000 --threads 1 --out benchmarks/results/corpus.json
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from focus_runtime.measure.timing import machine
from focus_runtime.models.loading import load_model
from focus_runtime.text.special import encode_bare

SHORT, LONG = 150, 300


def write_excerpts(source: Path, target: Path, count: int, model: str, seed: int = 0) -> None:
    """`count` files of 150 to 300 tokens, the same ones for the same texts and seed."""
    _, tokenizer = load_model(model)
    texts = [path.read_text(encoding="utf-8") for path in sorted(source.glob("*.txt"))]
    chooser = random.Random(seed)
    for number in range(count):
        text = chooser.choice(texts)
        start = text.find("\n\n", chooser.randrange(len(text) - 5000)) + 2
        piece = text[start : start + 4000]
        _, spans = encode_bare(tokenizer, piece)
        end = spans[chooser.randint(SHORT, LONG)][1]
        (target / f"excerpt-{number:04d}.txt").write_text(piece[:end], encoding="utf-8")


def measure(documents: Path, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the command once; its summary and the seconds of the whole process."""
    command = [
        sys.executable,
        "-m",
        "focus_explorer.cli",
        "analyze",
        str(documents),
        "--db",
        str(folder / "a.duckdb"),
        "--json",
        "--model",
        arguments.model,
        "--centroids",
        arguments.centroids,
        "--name",
        "excerpts",
        *(["--threads", str(arguments.threads)] if arguments.threads else []),
        *(["--gpus-per-worker", "1"] if arguments.gpu else []),
    ]
    start = time.perf_counter()
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    summary: dict[str, Any] = json.loads(process.stdout)
    summary["process_seconds"] = time.perf_counter() - start
    summary["load"] = round(os.getloadavg()[2], 1)
    return summary


def spread(summary: dict[str, Any]) -> dict[str, Any]:
    """Tokens and forward seconds of the documents, from the files that were written."""
    documents = f"{summary['folder']}/document=*/document.parquet"
    rows = duckdb.execute("SELECT num_tokens, model_seconds FROM read_parquet(?)", [documents]).fetchnumpy()
    size = sum(path.stat().st_size for path in Path(summary["folder"]).rglob("*.parquet"))
    cuts = (0.05, 0.5, 0.95)
    return {
        "tokens_of_a_document": np.quantile(rows["num_tokens"], cuts).round(1).tolist(),
        "forward_seconds_of_a_document": np.quantile(rows["model_seconds"], cuts).round(4).tolist(),
        "quantiles": cuts,
        "bytes_of_a_document": round(size / summary["documents"]),
    }


def main() -> None:
    """Make documents, analyse them, write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path, help="folder with .txt files to take excerpts from")
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--centroids", default="default")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--work", type=Path, help="folder for documents and results (default: a temporary one)")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    work = arguments.work or Path(tempfile.mkdtemp(prefix="corpus-"))
    try:
        documents = work / "documents"
        documents.mkdir(parents=True, exist_ok=True)
        write_excerpts(arguments.texts, documents, arguments.documents, arguments.model)
        summary = measure(documents, work, arguments)
        now = summary["this_time"]
        result = {
            "what": "focus-explorer analyze FOLDER: full attention, Focus, random centroids and tags of every document",
            "model": arguments.model,
            "threads": arguments.threads,
            "machine": machine(),
            "load_average_of_15_minutes": summary["load"],
            "documents": now["documents"],
            "skipped": len(summary["skipped"]),
            "tokens": summary["num_tokens"],
            **spread(summary),
            "forward_seconds": now["model_seconds"],
            "document_seconds": now["document_seconds"],
            "overhead_of_documents": now["document_seconds"] / now["model_seconds"] - 1,
            "command_seconds": now["seconds"],
            "process_seconds": summary["process_seconds"],
            "overhead_of_the_whole_process": summary["process_seconds"] / now["model_seconds"] - 1,
        }
    finally:
        if arguments.work is None:
            shutil.rmtree(work)
    print(json.dumps(result, indent=1))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
