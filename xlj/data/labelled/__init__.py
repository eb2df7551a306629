"""Labelled examples of downstream tasks: read from the files that exist, and made into rows."""
