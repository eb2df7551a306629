"""Text as it comes: sources, templates, cleaning, what is held out."""
