"""Makes HTML pages that compare runs."""
