"""One HTML page about runs: what their workdirs hold, drawn and tabled."""
