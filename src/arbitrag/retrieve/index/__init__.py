"""The embedded index: BM25 and vectors on disk, kept equal to folders of documents."""
