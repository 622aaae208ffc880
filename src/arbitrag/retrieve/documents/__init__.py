"""Document readers, one file format each: from a file to a title and passages."""
