"""The embedded index: BM25 and vectors on disk, kept up to date with folders of documents."""
