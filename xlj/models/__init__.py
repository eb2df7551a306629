"""The encoder and its heads: `init` returns a nested dict of parameters, `apply` uses it."""
