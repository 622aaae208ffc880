"""Metrics: pure functions from predictions and labels to numbers."""
