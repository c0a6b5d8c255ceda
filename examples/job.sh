#!/bin/sh
# job.sh: a script that locks itself. The store may be given as the first argument.
#
# The first line that matters starts the script anew under `holdfast run`, which sets
# HOLDFAST_NAME for it. The name is compared, because the script may have been started by a run
# for another one. With -n a second copy that starts meanwhile ends at once with 75; add -E 0 to
# end it with 0 (for cron), or -w 10m to wait instead.
[ -z "$1" ] || export HOLDFAST_URL="$1"
[ "$HOLDFAST_NAME" = job ] || exec holdfast run -n job -- "$0" "$@"

echo "job: holds $HOLDFAST_NAME in $HOLDFAST_STORE, fence $HOLDFAST_FENCE"

# Proof: another run of the name is told that it is busy.
holdfast run -n -q job true
status=$?
echo "job: a second run ended with $status"
[ $status -eq 75 ]
