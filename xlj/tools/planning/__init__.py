"""Plans runs on chips that need not be present: memory, traffic and speed of compiled programs."""
