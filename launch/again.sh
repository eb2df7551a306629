#!/usr/bin/env bash
# Runs a command, and repeats it while it ends with exit code 75 (interrupted), at most RESTARTS times [100]. After
# SIGTERM the script does not repeat the command. Use the script on hosts without a scheduler that restarts jobs.
#
#   launch/again.sh python -m xlj.train --distributed ...
set -uo pipefail
child='' stopping=''
trap 'stopping=1; [[ -z $child ]] || kill -TERM "$child"' TERM

for ((restart = 0; ; restart++)); do
    "$@" &
    child=$!
    [[ -z $stopping ]] || kill -TERM "$child" # the signal came before the process id was known
    wait "$child"
    code=$?
    while kill -0 "$child" 2> /dev/null; do # a signal interrupted the wait
        wait "$child"
        code=$?
    done
    if ((code != 75)) || [[ -n $stopping ]] || ((restart >= ${RESTARTS:-100})); then
        exit "$code"
    fi
    echo "exit code 75: restarting" >&2
done
