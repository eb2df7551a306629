"""Prints a script that completes commands, flags, config keys and recipes in bash or zsh.

    python -m xlj.completion bash

The script completes the command `xlj`. Put `source <(xlj completion bash)` into ~/.bashrc, or
`source <(xlj completion zsh)` into ~/.zshrc after compinit.
"""

import importlib
from argparse import Namespace, _SubParsersAction
from collections.abc import Iterator

from xlj.cli import command
from xlj.cli.parser import Parser
from xlj.config import recipes

_BASH = """\
_xlj() {
    local last="${COMP_LINE:0:COMP_POINT}" words=""
    last="${last##* }"
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="@COMMANDS@"
    else
        case "${COMP_WORDS[1]}" in
@CASES@
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$last"))
    [[ "${COMPREPLY[0]}" == *= ]] && compopt -o nospace
    COMPREPLY=("${COMPREPLY[@]#"${last%"${last##*[=:]}"}"}")
}
complete -o default -F _xlj xlj
"""  # bash splits words at = and :
_ZSH = """\
_xlj() {
    local -a candidates
    if (( CURRENT == 2 )); then
        candidates=(@COMMANDS@)
    else
        case "${words[2]}" in
@CASES@
        esac
    fi
    compadd -S '' -- "${candidates[@]}" || { compset -P '*='; _files }
}
compdef _xlj xlj
"""


def _add_flags(parser: Parser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh"), help="shell that will run the script")


@command.entry("completion", __doc__, _add_flags)
def main(flags: Namespace) -> None:
    """Prints the script."""
    from xlj.__main__ import COMMANDS, module_of

    script, case = (_BASH, 'words="{}"') if flags.shell == "bash" else (_ZSH, "candidates=({})")
    cases = []
    for name in COMMANDS:
        parser = importlib.import_module(module_of(name)).main.parser()
        words = case.format(" ".join(dict.fromkeys(_words(name, parser))))
        cases.append(f"            {name}) {words} ;;")
    print(script.replace("@COMMANDS@", " ".join(COMMANDS)).replace("@CASES@", "\n".join(cases)))


def _words(name: str, parser: Parser) -> Iterator[str]:
    """Yields the words that may follow a command: its actions, flags and config keys, with their
    choices."""
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for sub, of_action in action.choices.items():
                yield sub
                yield from _words(name, of_action)
        flag, choices = (action.option_strings or [""])[-1], list(action.choices or ())
        if flag == "--config":
            folder = {"finetune": "finetune", "sweep": "sweeps"}.get(name, "")
            choices = [r for r in recipes.names() if r.rpartition("/")[0] == folder]
        if not flag:
            yield from map(str, choices)
        elif choices:
            yield from (f"{flag}={choice}" for choice in choices)
        else:
            yield flag if action.nargs == 0 else f"{flag}="
    for key, field in parser.schema.keys() if parser.schema else ():
        choices = field.metadata.get("choices") or [""]
        yield from (f"--config.{key}={choice}" for choice in choices)


if __name__ == "__main__":
    raise SystemExit(main())
