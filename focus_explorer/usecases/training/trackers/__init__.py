"""Trainings written to TensorBoard, trackio or Weights & Biases."""
