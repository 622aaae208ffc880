"""Language models behind an OpenAI-compatible HTTP API."""
