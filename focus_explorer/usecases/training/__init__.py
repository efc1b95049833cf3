"""Trainings started, recorded, listed and stopped."""
