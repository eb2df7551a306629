"""Exit codes that launchers distinguish (docs/launch.md)."""

CONTINUE = 75
"""The run was interrupted: a process was lost, or it was asked to stop. The same command resumes
from its latest checkpoint. It is EX_TEMPFAIL of sysexits.h."""
