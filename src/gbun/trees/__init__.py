"""Histogram trees on binned columns and random projections of them: the same tree for any number of workers."""
