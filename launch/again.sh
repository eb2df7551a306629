#!/usr/bin/env bash
# Runs a command, and again as long as it was cut (exit code 75), at most RESTARTS times; not once this was
# asked to stop itself. For hosts without a scheduler that does it.
#
#   launch/again.sh python -m xlj.train --distributed ...
set -uo pipefail
child='' stopping=''
trap 'stopping=1; [[ -z $child ]] || kill -TERM "$child"' TERM

for ((restart = 0; ; restart++)); do
    "$@" &
    child=$!
    [[ -z $stopping ]] || kill -TERM "$child" # the signal came before its number was known
    wait "$child"
    code=$?
    while kill -0 "$child" 2> /dev/null; do # the wait was cut short by a signal
        wait "$child"
        code=$?
    done
    if ((code != 75)) || [[ -n $stopping ]] || ((restart >= ${RESTARTS:-100})); then
        exit "$code"
    fi
    echo "exit code 75: again" >&2
done
