"""The steps that methods share, each with one verb."""
