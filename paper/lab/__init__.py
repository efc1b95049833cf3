"""What the reports share: the model with its texts, trained centroids, rows of methods, answers to tasks."""
