"""The Focus runtime: sparse attention by learned token groups, composed onto frozen language models.

The public names load on first use, so that importing this package costs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from focus_runtime.attention import focus_attention
    from focus_runtime.composition.attach import FocusModel, compose
    from focus_runtime.config import FocusConfig
    from focus_runtime.errors import InputError
    from focus_runtime.evaluate.doctor.doctor import doctor
    from focus_runtime.fit.calibrate import calibrate_potentials
    from focus_runtime.measure.perplexity import Perplexity, perplexity
    from focus_runtime.models.loading import load_model
    from focus_runtime.routing.centroid_file import load_centroids, save_centroids
    from focus_runtime.routing.centroid_import import import_centroids
    from focus_runtime.routing.centroids import Centroids, random_centroids
    from focus_runtime.version import __version__

__all__ = [
    "Centroids",
    "FocusConfig",
    "FocusModel",
    "InputError",
    "Perplexity",
    "__version__",
    "calibrate_potentials",
    "compose",
    "doctor",
    "focus_attention",
    "import_centroids",
    "load_centroids",
    "load_model",
    "perplexity",
    "random_centroids",
    "save_centroids",
]
_MODULES = {
    "Centroids": "routing.centroids",
    "FocusConfig": "config",
    "FocusModel": "composition.attach",
    "InputError": "errors",
    "Perplexity": "measure.perplexity",
    "__version__": "version",
    "calibrate_potentials": "fit.calibrate",
    "compose": "composition.attach",
    "doctor": "diagnosis.doctor",
    "focus_attention": "attention",
    "import_centroids": "routing.centroid_import",
    "load_centroids": "routing.centroid_file",
    "load_model": "models.loading",
    "perplexity": "measure.perplexity",
    "random_centroids": "routing.centroids",
    "save_centroids": "routing.centroid_file",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
