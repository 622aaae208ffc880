"""Runs: systems over question sets into a run file."""
