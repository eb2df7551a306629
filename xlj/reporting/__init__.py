"""Makes HTML pages: a report that compares runs, and a viewer of word alignments."""
