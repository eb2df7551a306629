"""Raw text: sources, templates, cleaning, and held-out lines."""
