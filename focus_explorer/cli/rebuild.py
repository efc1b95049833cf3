"""`focus-explorer rebuild`: the tables of a bundle made again and compared."""

from __future__ import annotations

import argparse

from focus_explorer.cli.options import add_settings
from focus_explorer.progress import stage_bar
from focus_explorer.usecases.service import Service


def add_options(parser: argparse.ArgumentParser) -> None:
    """The bundle, where its inputs are, and the output folder."""
    parser.add_argument("bundle", help="a bundle (.zip), its folder, or its manifest.json")
    parser.add_argument("--text", nargs="+", default=[], help="files with the texts of a bundle without them")
    parser.add_argument("--centroids", nargs="+", default=[], help="centroid files that are not uploaded here")
    parser.add_argument("--model", help="another name or place of the model; its weights are checked")
    parser.add_argument("--out", default="rebuilt", help="new folder for the tables (default: rebuilt)")
    add_settings(parser, "db")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Make the tables again; returns 1 where they differ."""
    from focus_explorer.exports.bundle.rebuild import rebuild

    with stage_bar() as progress:
        rebuilt = rebuild(
            Service(arguments.db),
            arguments.bundle,
            arguments.out,
            texts=arguments.text,
            centroids=arguments.centroids,
            model=arguments.model,
            progress=progress,
        )
    source = f"the model ran again for {', '.join(rebuilt.again)}" if rebuilt.again else "from the database"
    print(f"{rebuilt.files} files of tables in {rebuilt.folder} ({source})")
    for line in rebuilt.surroundings:
        print(f"here differs: {line}")
    for line in rebuilt.tables:
        print(f"differs: {line}")
    same = "every table has the bytes it had in the bundle"
    same += ", times aside, which were measured again" if rebuilt.again else ""
    print(same if rebuilt.same else "the tables are not the same")
    return 0 if rebuilt.same else 1
