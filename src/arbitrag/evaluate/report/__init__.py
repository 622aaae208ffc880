"""Reports of a run: statistics, tables, plots and the page."""
