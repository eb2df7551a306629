"""Exit codes of runs that launchers tell apart (docs/launch.md)."""

CONTINUE = 75
"""The run was cut: a process was lost, or it was asked to stop. The same command goes on from its
latest checkpoint. It is EX_TEMPFAIL of sysexits.h."""
