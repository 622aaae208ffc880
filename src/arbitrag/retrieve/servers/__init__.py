"""Passages on a server: PostgreSQL, Elasticsearch and Qdrant."""
