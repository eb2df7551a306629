# Source this file with the flags of a run. It sets `prepare` to the flags for xlj.prepare, which has no --workdir.
prepare=()
while (($#)); do
    case $1 in
    --workdir) : "${2:?--workdir needs a folder}" && shift ;;
    --workdir=*) ;;
    *) prepare+=("$1") ;;
    esac
    shift
done
