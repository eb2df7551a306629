"""Between xlj and what others have: folders that transformers reads."""
