"""Command line: flags, config files, one-line errors, and checks of output paths."""
