#!/bin/sh
# job.sh: a script that locks itself. The store may be given as the first argument.
#
# The first line that matters starts the script anew under `holdfast run`, with an argument that
# says so: the environment would be inherited by whatever the script leaves behind. --reenter lets
# it run at once inside a run that holds the name already. With -n a second copy that starts
# meanwhile ends at once with 75; add -E 0 to end it with 0 (for cron), or -w 10m to wait instead.
set -u
[ "${1-}" = --locked ] || {
    [ -z "${1-}" ] || export HOLDFAST_URL="$1"
    exec holdfast run --reenter -n job -- sh "$0" --locked "$@"
}
shift

echo "job: holds $HOLDFAST_NAME in $HOLDFAST_STORE, fence $HOLDFAST_FENCE"

# Proof: another run of the name is told that it is busy.
holdfast run -n -q job true
status=$?
echo "job: a second run ended with $status"
[ $status -eq 75 ]
