"""Runs handed to a cluster, by a program that is called for each."""

import re
import shlex
import shutil
import subprocess
from typing import Any

from xlj.config import ConfigError
from xlj.sweeping import state
from xlj.sweeping.definition import Run


def check_template(template: str) -> None:
    """Refuses a template that names no program, or has no place for a run.

    Raises:
      ConfigError: if so.
    """
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise ConfigError(f"--submit={template}: {error}") from None
    if not any(place in word for word in words for place in ("{command}", "{arguments}")):
        raise ConfigError(f"--submit={template} has neither {{command}} nor {{arguments}} in it")
    if "{" not in words[0] and not shutil.which(words[0]):
        raise ConfigError(f"--submit={template}: there is no program {words[0]}")


def submit(run: Run, config: dict[str, Any], template: str) -> bool:
    """Calls the template for a run; says what it answered, and whether it went well."""
    state.begin(run, config)
    done = subprocess.run(_submission(run, template), capture_output=True, text=True)
    outcome = f"failed, exit code {done.returncode}" if done.returncode else "submitted"
    print(f"{run.name}: {outcome}", (done.stdout + done.stderr).strip(), flush=True)
    return not done.returncode


def _submission(run: Run, template: str) -> list[str]:
    """The words of a template with a run in it; what stands alone becomes several words."""
    inside = {"{command}": run.command(), "{arguments}": run.arguments, "{name}": [run.name]}

    def quoted(place: re.Match[str]) -> str:  # in a word such as --wrap={command}
        return shlex.join(inside[place[0]])

    words: list[str] = []
    for word in shlex.split(template):
        words += inside.get(word) or [re.sub("|".join(map(re.escape, inside)), quoted, word)]
    return words
