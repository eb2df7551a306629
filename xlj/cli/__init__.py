"""The command line: flags, config files, errors in one line, where outputs may go."""
