"""The terminal: output, help pages, columns, completion."""
