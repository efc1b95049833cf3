"""The page: `python app.py` is `focus-explorer serve`; in a Hugging Face Space it is a public page (docs/deploy.md)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from focus_explorer.cli.main import main

STORAGE = "/data"  # of a Space that keeps files over its restarts


def space_options(environment: Mapping[str, str]) -> list[str]:
    """Options of `focus-explorer serve` in a Space; none elsewhere.

    Args:
        environment: variables that a Space sets.
    """
    if "SPACE_ID" not in environment:
        return []
    names = [name.strip() for name in environment.get("SPACE_HOST", "").split(",") if name.strip()]
    options = ["--public", "--host", environment.get("GRADIO_SERVER_NAME", "0.0.0.0")]
    options += ["--port", environment.get("GRADIO_SERVER_PORT", "7860")]
    options += ["--address-header", "X-Forwarded-For", "--allow-frame", "https://huggingface.co"]
    for name in names:
        options += ["--allow-host", name]
    if "FOCUS_EXPLORER_DB" not in environment and os.access(STORAGE, os.W_OK):
        options += ["--db", f"{STORAGE}/explorer.duckdb"]
    return options


if __name__ == "__main__":
    os.environ.pop("SYSTEM", None)  # by which Gradio knows a Space, where it loads code again and closes the functions
    sys.exit(main(["serve", *space_options(os.environ), *sys.argv[1:]]))
