"""The Focus runtime: sparse attention by learned token groups, composed onto frozen language models."""

from focus_runtime.attention import focus_attention
from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import InputError
from focus_runtime.measure.perplexity import Perplexity, perplexity
from focus_runtime.models.loading import load_model
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from focus_runtime.routing.centroids import Centroids, random_centroids
from focus_runtime.training.calibrate import calibrate_potentials
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
    "focus_attention",
    "load_centroids",
    "load_model",
    "perplexity",
    "random_centroids",
    "save_centroids",
]
