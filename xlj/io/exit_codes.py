"""Exit codes that launchers distinguish (docs/launch.md)."""

CONTINUE = 75
"""The run was interrupted: one of its processes died, or the run received a signal to stop. The
same command resumes the run from its latest checkpoint. The value is EX_TEMPFAIL of sysexits.h."""
