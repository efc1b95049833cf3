"""What to cite: the paper behind Focus, and this tool."""

from __future__ import annotations

from focus_runtime.version import __version__

# Sources agree on the first three authors and differ in the order of the rest.
_TEXT = """% Check both entries against the newest version of the paper before you print them.

@misc{{focus2026,
  title         = {{{{Composing Sparse Attention via Learned Grouping}}}},
  author        = {{Yao, Hengshuai and Chen, Xing and Murtadha, Ahmed and others}},
  year          = {{2026}},
  eprint        = {{2604.03260}},
  archivePrefix = {{arXiv}},
  primaryClass  = {{cs.CL}},
  note          = {{Version 1: Why Attend to Everything? Focus is the Key. Table numbers here are those of version 1}},
  url           = {{https://arxiv.org/abs/2604.03260}}
}}

@software{{focus_explorer,
  title   = {{Focus Explorer}},
  author  = {{{{The Focus Explorer authors}}}},
  version = {{{version}}},
  license = {{Apache-2.0}},
  note    = {{See, measure and compare Focus sparse attention}}
}}
"""


def bibtex() -> str:
    """The BibTeX file of a bundle."""
    return _TEXT.format(version=__version__)
