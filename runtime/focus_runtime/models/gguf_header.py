"""Reading the header of a GGUF file once, though configuration, weights and tokenizer are made from it one by one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_ONE_AT_A_TIME = threading.Lock()


@contextmanager
def header_read_once() -> Iterator[None]:
    """While the block runs, a file's header and the names of its tensors are read once.

    transformers reads them for each of its loaders, and the names for every module of the model: four fifths of the
    time that converting the embedded model would take. Files must not change inside the block.
    """
    import gguf

    library: Any = gguf  # its types do not let its names be replaced
    with _ONE_AT_A_TIME:
        reader, names = library.GGUFReader, library.get_tensor_name_map
        by_path = cache(reader)
        library.GGUFReader, library.get_tensor_name_map = lambda path, mode="r": by_path(str(path), mode), cache(names)
        try:
            yield
        finally:
            library.GGUFReader, library.get_tensor_name_map = reader, names
