"""The encoder and its heads, as pure functions of nested dicts of parameters."""
