"""The encoder and its heads: `init` makes a nested dict of parameters, `apply` functions use it."""
