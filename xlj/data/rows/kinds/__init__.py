"""Kinds of rows, one per file: their fields, and how text is packed into them."""
