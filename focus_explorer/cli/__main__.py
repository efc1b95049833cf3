"""`python -m focus_explorer.cli` is `focus-explorer`."""

import sys

from focus_explorer.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
