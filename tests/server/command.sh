#!/bin/sh
# command.sh HOLDFAST URL: the verbs of the command on a server: run, show, ls, wait, break.
H=$1 URL=$2
export HOLDFAST_URL="$URL"
tmp=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-command-XXXXXX") || exit 1
first='' second=''
trap 'kill $first $second 2>/dev/null; rm -rf "$tmp"' EXIT
job=command/$$ # a name of our own

fail() {
    echo "command.sh: $1" >&2
    rm -f "$tmp/go" # nobody writes to it
    cat "$tmp"/* >&2
    exit 1
}

until_ok() { # COMMAND...: until it succeeds, for at most a minute
    tries=0
    until "$@" >"$tmp/last" 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "never: $*"
        sleep 0.1
    done
}

held() { "$H" show --json "$job" | grep -q '"holders": \[$'; } # one follows
waited() { "$H" show --json "$job" | grep -q '"waiters": \[$'; }

# One holds, one waits; a third that does not want to wait is told.
mkfifo "$tmp/go" || fail "no named pipe"
"$H" run --note 'the first' "$job" sh -c "echo \$HOLDFAST_FENCE >'$tmp/fence'; read line <'$tmp/go'" &
first=$!
until_ok held
"$H" run "$job" sh -c "echo \$HOLDFAST_FENCE >'$tmp/next'" &
second=$!
until_ok waited
"$H" run -n "$job" true 2>"$tmp/busy"
[ $? -eq 75 ] || fail "busy is not 75"
"$H" show "$job" >"$tmp/show" || fail "show"
grep -q 'the first' "$tmp/show" || fail "show does not tell the note"
"$H" ls >"$tmp/ls" || fail "ls"
grep -q "$job" "$tmp/ls" || fail "ls does not name it"
until_ok test -s "$tmp/fence"
echo go >"$tmp/go"
wait $first || fail "the first: $?"
wait $second || fail "the second: $?"
second=''
[ "$(cat "$tmp/next")" -gt "$(cat "$tmp/fence")" ] || fail "the fence did not grow"
"$H" wait "$job" || fail "wait on a free name"

# Taken away from its holder, which is told and stops its command.
"$H" run "$job" sleep 300 2>"$tmp/broken" &
first=$!
until_ok held
"$H" break --now --yes "$job" >"$tmp/break" 2>&1 || fail "break"
wait $first
status=$?
first=''
[ $status -eq 76 ] || fail "who was broken did not end with 76"
"$H" run -n "$job" true || fail "not free after break"
