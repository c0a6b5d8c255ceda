#!/bin/sh
# any_store.sh: what `holdfast run` must do on every store; in that of $HOLDFAST_URL. Speaks TAP.
tmp=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-any-XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
n=0 failed=0

ok() { # STATUS NAME: 0 is well
    n=$((n + 1))
    [ "$1" -eq 0 ] && echo "ok $n - $2" && return
    failed=1
    echo "not ok $n - $2"
    sed 's/^/# /' "$tmp/err"
}

now() { date +%s%3N; }

holdfast run -v -t 12s a -- true 2>"$tmp/err"
ok $? 'run -t'
grep -q "^holdfast: a in .*://.*: waited .*, fence" "$tmp/err"
ok $? '-v names the store'

# a command with a child in a session of its own, which the kernel does not end with it
holdfast run -t 30s --note why b -- sh -c 'setsid sleep 300 & echo $! >"$1"; mv "$1" "$2"; sleep 300' \
    sh "$tmp/new" "$tmp/pid" &
run=$!
tries=0
until [ -e "$tmp/pid" ] || [ $tries -gt 1500 ]; do sleep 0.02; tries=$((tries + 1)); done
holdfast run -n b true 2>"$tmp/err"
[ $? -eq 75 ] && grep -q "^holdfast: b: held by pid $run on .*(why), in " "$tmp/err"
ok $? '-n says who holds it, and why'
case $HOLDFAST_URL in redlock*) waiters=null ;; *) waiters='\[\]' ;; esac
holdfast show --json b 2>"$tmp/err" | grep -q "\"waiters\": $waiters"
ok $? 'show: who waits, or that it is not known'
since=$(now)
kill -9 $run
wait $run 2>/dev/null
# dead: on its way out (PF_EXITING), killed and not run since (SIGKILL pending), or only waiting for its parent
holdfast run -w 60s b -- sh -c 'read a b c d e f g h flags rest <"/proc/$1/stat" || exit 0
    [ $((flags & 4)) -ne 0 ] || [ "$c" = Z ] || { set -- $rest; [ $((${22} & 256)) -ne 0 ]; }' sh "$(cat "$tmp/pid")" 2>"$tmp/err"
ok $? 'a killed run: its command is dead before the next is granted'
took=$(($(now) - since))
echo "# after $took ms of a ttl of 30 s"
[ $took -lt 20000 ]
ok $? 'a killed run: the name is free before the ttl is over'
holdfast run -t 30s --at-most 1s --at-least 3s c -- sleep 100 2>"$tmp/err"
[ $? -eq 124 ]
ok $? '--at-most: 124'
echo "1..$n"
exit $failed
