"""Training of centroids and of whole models."""
