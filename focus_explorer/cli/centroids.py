"""`focus-explorer centroids`: validation of centroid files."""

from __future__ import annotations

import argparse
import json

from focus_explorer.services.centroids.files import check_centroids
from focus_explorer.services.service import Service


def add_options(parser: argparse.ArgumentParser) -> None:
    """The action `check`."""
    actions = parser.add_subparsers(dest="action", required=True, parser_class=type(parser))
    check = actions.add_parser("check", help="validate a centroid file")
    check.add_argument("file", help=".safetensors, .pt or .pth, or the word default")
    check.add_argument("--model", help="also check that it fits this model")
    check.add_argument("--json", action="store_true", help="print one JSON object")
    check.set_defaults(run=_check)


def _check(arguments: argparse.Namespace) -> None:
    centroids, report = check_centroids(Service(), arguments.file, arguments.model)
    if arguments.json:
        result = {
            "sha256": centroids.sha256,
            "config": centroids.config.to_dict(),
            "base_model": centroids.base_model,
            "layers": sorted(centroids.routers),
            "training": centroids.training,
            "report": report,
        }
        print(json.dumps(result, ensure_ascii=False))
    else:
        print("\n".join([f"{arguments.file} is a valid centroid file", *report, f"sha256 {centroids.sha256}"]))
