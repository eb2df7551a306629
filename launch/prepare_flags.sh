# Sourced with the flags of a run: `prepare` holds those that xlj.prepare takes, which knows no --workdir.
prepare=()
while (($#)); do
    case $1 in
    --workdir) : "${2:?--workdir without a folder}" && shift ;;
    --workdir=*) ;;
    *) prepare+=("$1") ;;
    esac
    shift
done
