#!/bin/sh
# verbs.sh PATH_TO_HOLDFAST: the verbs of the command but run, as a user meets them: bad input,
# exit statuses, both output forms, races of break. Speaks TAP. Everything happens in private
# stores below one temporary folder, which is removed at the end, as are all processes.
H=${1:?usage: verbs.sh PATH_TO_HOLDFAST}
case $H in /*) ;; *) H=$PWD/$H ;; esac

unset HOLDFAST_URL HOLDFAST_URL_FILE HOLDFAST_NAME HOLDFAST_FENCE HOLDFAST_STORE \
    HOLDFAST_OWNER
export LC_ALL=C.UTF-8
tmp=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-verbs-XXXXXX") || exit 1
n=0 failed=0 pids=

clean() {
    for p in $pids; do kill -9 "$p" 2>/dev/null; done
    wait 2>/dev/null
    rm -rf "$tmp"
}
trap clean EXIT
trap 'exit 1' INT TERM HUP PIPE

# ---- helpers ----

ok() { # STATUS NAME: 0 is well
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $n - $2"
    else
        failed=$((failed + 1))
        echo "not ok $n - $2"
        [ -f "$tmp/out" ] && sed 's/^/# out: /' "$tmp/out" | cat -v | head -20
        [ -f "$tmp/err" ] && sed 's/^/# err: /' "$tmp/err" | cat -v | head -20
    fi
}

run() { # COMMAND...: output in $tmp/out and $tmp/err, status in $rc
    "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    rc=$?
}

expect() { # STATUS NAME COMMAND...
    want=$1 what=$2
    shift 2
    run "$@"
    [ "$rc" -eq "$want" ] || echo "# status $rc, expected $want"
    [ "$rc" -eq "$want" ]
    ok $? "$what"
}

says() { # PATTERN NAME: of the last run's stderr
    grep -q -e "$1" "$tmp/err"
    ok $? "$2"
}

prints() { # PATTERN NAME: of the last run's stdout
    grep -q -e "$1" "$tmp/out"
    ok $? "$2"
}

until_ok() { # COMMAND...: until it succeeds, for at most 20 s
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 400 ] || return 1
        sleep 0.05
    done
}

json() { # EXPRESSION NAME: of the last run's output `d`
    python3 -c 'import json, sys
d = json.load(open(sys.argv[1], encoding="utf-8"))
sys.exit(0 if eval(sys.argv[2]) else 1)' "$tmp/out" "$1"
    ok $? "$2"
}

count_is() { # holders|waiters N NAME: whether the line has so many
    "$H" show --json "$3" | python3 -c 'import json, sys
d = json.load(sys.stdin)
sys.exit(0 if len(d[sys.argv[1]]) == int(sys.argv[2]) else 1)' "$1" "$2"
}

hold() { # NAME RUN-OPTION...: in the background; its process in $pid
    name=$1
    shift
    "$H" run -q "$@" "$name" -- sleep 300 >/dev/null 2>&1 </dev/null &
    pid=$!
    pids="$pids $pid"
}

end() { # PID: ends a run and waits for it; its status in $ended
    kill -TERM "$1" 2>/dev/null
    wait "$1" 2>/dev/null
    ended=$?
}

store() { # [QUERY]: a new store
    stores=$((${stores:-0} + 1))
    export HOLDFAST_URL="local://$tmp/store$stores$1"
}

# ---- usage ----

expect 64 'no verb: 64' "$H"
says 'holdfast help' 'no verb: says where help is'
expect 64 'unknown verb: 64' "$H" frobnicate
says 'frobnicate' 'unknown verb: names it'
expect 64 'empty verb: 64' "$H" ''
expect 64 'a verb with control characters: 64' "$H" "$(printf 'a\033[31mb')"
! grep -q "$(printf '\033')" "$tmp/err"
ok $? 'a verb with control characters: escaped'
expect 0 'help --help: 0' "$H" help --help
expect 0 '--help: 0' "$H" --help
missing=0
for v in run acquire renew release ls show wait break bench backends schema version; do
    grep -q "^  $v " "$tmp/out" || missing=1
done
ok $missing '--help names every verb'
for s in 64 69 70 71 75 76 77 78 124 126 127; do
    grep -q "^ *$s  " "$tmp/out" || missing=1
done
ok $missing '--help has the table of exit statuses'
for v in run acquire renew release ls show wait break bench backends schema version; do
    expect 0 "help $v: 0" "$H" help $v
    cp "$tmp/out" "$tmp/help"
    run "$H" $v --help
    [ $rc -eq 0 ] && cmp -s "$tmp/out" "$tmp/help"
    ok $? "$v --help: the same"
    expect 64 "$v: unknown option: 64" "$H" $v --no-such-option
    says 'no-such-option' "$v: unknown option: names it"
    expect 64 "$v: unknown letter: 64" "$H" $v -Z
done
expect 0 'help help: 0' "$H" help help
prints '^  help ' 'help help: names it'
expect 64 'help of an unknown verb: 64' "$H" help frobnicate
expect 64 'unknown global option: 64' "$H" --frobnicate ls
expect 64 '-u without a value: 64' "$H" -u
expect 64 '-u after the verb: 64' "$H" ls -u local:
says 'before the verb' '-u after the verb: says where it belongs'
expect 0 'version: 0' "$H" version
prints '^holdfast [0-9]*\.[0-9]*\.[0-9]*' 'version: a version'
expect 0 '--version: 0' "$H" --version
expect 64 'version takes no argument' "$H" version x

store
for v in show wait break; do
    expect 64 "$v: NAME missing: 64" "$H" $v
    says 'NAME' "$v: NAME missing: says so"
    expect 64 "$v: two names: 64" "$H" $v a b
done
expect 64 'ls: two prefixes: 64' "$H" ls a b
for t in '' abc -1 1x 1e3 0x10 . ' 1' '1 s' 99999999999999999999 9999999h 1h30 30m1h; do
    expect 64 "wait -w '$t': 64" "$H" wait -w "$t" a
done
expect 64 'a time of more than a year: 64' "$H" wait -w 9000h a
says "'9000h': .*at most 366 days" 'a time of more than a year: names it and the limit'
for t in 0 0.5 .5 5. 10ms 1s 1m 1h 1.5h 8784h 1d 1h30m; do
    expect 0 "wait -w '$t' of a free name: 0" "$H" wait -w "$t" a
done
expect 0 'wait --wait=1s' "$H" wait --wait=1s a
expect 0 'wait -w1s' "$H" wait -w1s a
expect 0 'options after the name' "$H" wait a -w 1s
expect 64 'a flag with a value: 64' "$H" show --json=yes a
expect 64 'a missing value: 64' "$H" wait a -w
for l in 0 -1 x 99999999999999 ''; do
    expect 64 "ls --limit '$l': 64" "$H" ls --limit "$l"
done
expect 64 'ls --limit: a wrong number' "$H" ls --limit many
says "\-\-limit 'many'" 'ls --limit: names it'
for f in 0 -1 x 18446744073709551616 ''; do
    expect 64 "break --fence '$f': 64" "$H" break --yes --fence "$f" a
done
expect 64 'break --fence: a wrong number' "$H" break --yes --fence many a
says "\-\-fence 'many'" 'break --fence: names it'
expect 64 'bench: unknown case: 64' "$H" bench frobnicate
for t in 0 1ms 11m x; do
    expect 64 "bench --time $t: 64" "$H" bench --time $t uncontended
done

# ---- the URL ----

unset HOLDFAST_URL
expect 64 'unknown scheme: 64' "$H" -u frobnicate://host ls
expect 64 'no scheme: 64' "$H" -u /tmp ls
expect 64 'empty URL: 64' "$H" -u '' ls
expect 64 'unknown option in the URL: 64' "$H" -u "local://$tmp/s?frobnicate=1" ls
says 'frobnicate' 'unknown option in the URL: names it'
for t in abc 0 9000h; do
    expect 64 "ttl=$t in the URL: 64" "$H" -u "local://$tmp/s?ttl=$t" ls
    says "ttl=$t: wants a time .* at most 366 days" "ttl=$t in the URL: names it and the limit"
done
for q in 'namespace=%00' 'ttl=5s&namespace=%ff' 'namespace=a&namespace=%' 'namespace'; do
    expect 64 "?$q in the URL: 64" "$H" -u "local://$tmp/s?$q" ls
    says "option [12] ('namespace')" "?$q in the URL: names the option"
done
expect 64 '?&& in the URL: 64' "$H" -u "local://$tmp/s?&&" ls
says 'option 1 has no name' '?&& in the URL: says which option'
run "$H" -u 'frobnicate://user:hunter2@host/x?password=hunter3' ls
[ $rc -ne 0 ] && ! grep -q 'hunter' "$tmp/err" "$tmp/out"
ok $? 'a failing URL does not show its password'
says 'HOLDFAST_URL_FILE' '-u with a password: warns and says what to do'
for q in 'auth=u:hunter2' 'x=1&PassWord=hunter2' 'apitoken=hunter2' 'auth=hunter2%zz' \
    'auth=a&hunter2' 'pas%73=hunter2'; do
    run "$H" -u "frobnicate://host/x?$q" ls
    says 'HOLDFAST_URL_FILE' "-u with ?$q: warns"
    ! grep -q 'hunter' "$tmp/err" "$tmp/out"
    ok $? "-u with ?$q: does not show it"
done
for q in 'auth=' 'ttl=3s&x=auth' 'auth'; do
    run "$H" -u "frobnicate://user@host/x?$q" ls
    ! grep -q 'HOLDFAST_URL_FILE' "$tmp/err"
    ok $? "-u with ?$q: nothing to warn of"
done
run "$H" -u 'local://user:hunter2@host/x' ls
[ $rc -ne 0 ] && ! grep -q 'hunter' "$tmp/err" "$tmp/out"
ok $? 'a refused URL does not show its password'
# a secret where none is expected
for u in 'redis:/:hunter2@h' 'redis:hunter2@h' 'redis:///:hunter2@h' 'redis://u:12/hunter2@h' 'zk://u:12/hunter2@h' \
    'redis://u:p@ss/hunter2@h' 'redis://h?pasword=hunter2' 'redis://h?psw=hunter2' 'redis://u:12?hunter2@h' \
    'zk:/u:hunter2@h' 'local:u:hunter2@h' 'redis+unix:hunter2@h' "local://$tmp/s?psw=hunter2"; do
    for v in ls 'run -v a true' 'acquire --ttl 9s a' backends; do
        # shellcheck disable=SC2086
        run env "HOLDFAST_URL=$u" "$H" $v
        [ $rc -eq 64 ] && ! grep -q 'hunter' "$tmp/err" "$tmp/out" && grep -q '^holdfast: .*HOLDFAST_URL: ' "$tmp/err"
        ok $? "$v of a mistyped URL ($u): 64, names the source and shows no secret"
    done
done
for args in 'redis://:hunter2@h ls' 'ls --url=redis://:hunter2@h' '--ulr=redis://:hunter2@h ls' \
    '-u local: redis://:hunter2@h' 'help redis:/:hunter2@h' 'bench redis://:hunter2@h' 'backends redis:u:hunter2@h' \
    'ls --json=redis://:hunter2@h'; do
    # shellcheck disable=SC2086
    run "$H" $args
    [ $rc -eq 64 ] && ! grep -q 'hunter' "$tmp/err" "$tmp/out"
    ok $? "a URL in the wrong place ($args): 64 and no secret"
done
expect 64 'a scheme that does not exist: 64' "$H" -u redsi://h ls
says 'no store is called redsi: .*there are.* local' 'a scheme that does not exist: says which ones there are'
run env HOLDFAST_URL= "$H" ls
[ $rc -eq 64 ]
ok $? 'an empty HOLDFAST_URL is an error, not the default store'
f=$tmp/url
export HOLDFAST_URL_FILE="$f"
expect 71 'URL file missing: 71' "$H" ls
says "$f" 'URL file missing: names it'
printf 'local://%s/file\n' "$tmp" >"$f"
chmod 440 "$f"
expect 0 'URL file that the group may read, as in Kubernetes: 0' "$H" ls
expect 0 'URL file that the group may read: run -v' "$H" run -v a true
says 'warning: .*can be read by others' 'URL file that the group may read: run -v warns'
if [ "$(id -u)" -eq 0 ]; then
    chmod 444 "$f"
    expect 0 "root's URL file that all may read, as in Docker: 0" "$H" ls
    chmod 600 "$f"
    chown 65534 "$f"
    expect 64 "URL file of another user: 64" "$H" ls
    says 'must be yours' "URL file of another user: says so"
    chown 0 "$f"
else
    chmod 604 "$f"
    expect 64 'URL file open to all: 64' "$H" ls
    says 'chmod 600' 'URL file open to all: says what to do'
fi
for mode in 620 602 666; do
    chmod $mode "$f"
    expect 64 "URL file of mode $mode, which others may write: 64" "$H" ls
    says 'can be changed by others' "URL file of mode $mode: says so"
done
chmod 600 "$f"
expect 0 'URL file of our own: 0' "$H" run a true
[ -d "$tmp/file" ]
ok $? 'URL file: its store was opened'
printf '  local://%s/file  \r\n\n' "$tmp" >"$f"
expect 0 'URL file: white space around the URL' "$H" ls
printf 'local:///a\nlocal:///b\n' >"$f"
expect 64 'URL file with two lines: 64' "$H" ls
: >"$f"
expect 64 'empty URL file: 64' "$H" ls
head -c 10000 /dev/zero | tr '\0' x >"$f"
expect 64 'URL file too large: 64' "$H" ls
printf 'local:///a\0b' >"$f"
expect 64 'URL file with a NUL: 64' "$H" ls
rm -f "$f"
mkfifo -m 600 "$f"
expect 64 'URL file is a FIFO: 64, and does not hang' timeout 20 "$H" ls
rm -f "$f"
mkdir -m 700 "$f"
run "$H" ls
[ $rc -eq 64 ] || [ $rc -eq 71 ]
ok $? 'URL file is a folder: refused'
rmdir "$f"
expect 71 'URL file that cannot be opened: 71' \
    env "HOLDFAST_URL_FILE=$tmp/out/x" "$H" ls
expect 0 'HOLDFAST_URL goes before HOLDFAST_URL_FILE' \
    env "HOLDFAST_URL=local://$tmp/env" "$H" ls
expect 0 '-u goes before HOLDFAST_URL' \
    env HOLDFAST_URL=frobnicate: "$H" -u "local://$tmp/arg" ls
unset HOLDFAST_URL_FILE

# ---- a file system that cannot be written ----

if [ "$(id -u)" -eq 0 ]; then
    mkdir "$tmp/ro"
    read_only() { # VERB...: in a folder of it that is not there
        unshare -m sh -c 'mount -t tmpfs -o ro none "$1/ro" && shift && exec "$@"' sh "$tmp" "$H" -u "local://$tmp/ro/new" "$@"
    }
    expect 71 'run on a read-only file system: 71' read_only run a true
    says 'cannot make the folder: Read-only file system' 'run on a read-only file system: says why'
    expect 0 'ls on a read-only file system: 0' read_only ls
fi

# ---- looking makes no store ----

mkdir -m 700 "$tmp/empty"
for f in "$tmp/none" "$tmp/empty"; do
    unset HOLDFAST_URL
    for v in ls 'ls --json' 'show a' 'show --json a' 'wait a' backends; do
        # shellcheck disable=SC2086
        expect 0 "$v where no store is: 0" "$H" -u "local://$f" $v
    done
    expect 75 'break where no store is: 75' "$H" -u "local://$f" break --yes a
    expect 0 'ls where no store is: 0' "$H" -u "local://$f" ls
    says "$f: there is no store yet" 'ls where no store is: says so'
    [ ! -s "$tmp/out" ]
    ok $? 'ls where no store is: prints nothing'
    [ ! -e "$tmp/none" ] && [ -z "$(ls -A "$tmp/empty")" ]
    ok $? 'looking has made nothing'
done

# ---- names ----

store
expect 64 'show of an empty name, no store yet: 64' "$H" show ''
expect 64 'show of a name that is too long, no store yet: 64' "$H" show "$(head -c 513 /dev/zero | tr '\0' n)"
expect 0 'a store' "$H" run a true
expect 64 'show of an empty name: 64' "$H" show ''
expect 64 'wait for an empty name: 64' "$H" wait ''
expect 64 'break of an empty name: 64' "$H" break --yes ''
long=$(head -c 512 /dev/zero | tr '\0' n)
expect 0 'a name of 512 bytes: 0' "$H" show "$long"
for v in show wait 'break --yes'; do
    # shellcheck disable=SC2086
    expect 64 "$v: a name of 513 bytes: 64" "$H" $v "${long}x"
    says "the name 'nnnn*\.\.\.' is longer than 512 bytes" "$v: a name of 513 bytes: names it"
    # shellcheck disable=SC2086
    expect 64 "$v: a name that is not UTF-8: 64" "$H" $v "$(printf 'a\377b')"
    says "the name 'a\\\\xffb' is not UTF-8" "$v: a name that is not UTF-8: names it"
done
expect 64 'run --also of a bad name: 64' "$H" run --also fine --also "$(printf 'b\377')" a true
says "the name 'b\\\\xff' is not UTF-8" 'run --also of a bad name: names that one'
expect 64 'run --also of an empty name: 64' "$H" run --also fine --also '' a true
says "\-\-also ''" 'run --also of an empty name: says which'
expect 64 'a note that is too long: 64' "$H" run --note "$long$long$long" a true
says "the note 'nnnn*\.\.\.' is longer than 1024 bytes" 'a note that is too long: names it'
expect 64 'a note that is not UTF-8: 64' "$H" run --note "$(printf 'c\377')" a true
says "the note 'c\\\\xff' is not UTF-8" 'a note that is not UTF-8: names it'
expect 0 'HOLDFAST_OWNER that no run holds anything for: not believed' \
    env HOLDFAST_OWNER=garbage "$H" run a true
expect 64 'HOLDFAST_OWNER that is not what the run around us has set: 64' \
    "$H" run b env HOLDFAST_OWNER=garbage "$H" run a true
says 'HOLDFAST_OWNER' 'HOLDFAST_OWNER that is not what the run has set: names it'
expect 64 'HOLDFAST_OWNER beside a bad URL: 64' env HOLDFAST_OWNER=garbage \
    "$H" -u "local://$tmp/s?frob=1" run a true
says "no option 'frob'" 'HOLDFAST_OWNER beside a bad URL: names what is wrong with the URL'
expect 64 'a grace too long for the ttl of the URL: 64' \
    "$H" -u "local://$tmp/s?t%74l=3s" run --grace 2s a true
says 'third of the ttl (1.0 s)' 'a grace too long for the ttl of the URL: says why'
expect 64 'a grace too long for the default ttl: 64' "$H" run --grace 11s a true
says 'third of the ttl (10 s)' 'a grace too long for the default ttl: says why'
expect 0 'a name that looks like an option, after --' "$H" show -- --json
prints '^name  *--json$' 'a name that looks like an option is a name'

# ---- stores that cannot be used ----

for mode in 755 1777; do
    mkdir "$tmp/open$mode"
    chmod $mode "$tmp/open$mode"
    expect 77 "a folder of mode $mode: 77" "$H" -u "local://$tmp/open$mode" ls
    says 'name a folder of your own' "a folder of mode $mode: says what to do"
    ! grep -q 'chmod\|password' "$tmp/err"
    ok $? "a folder of mode $mode: no advice that does not fit"
done
mkdir -m 700 "$tmp/other"
if [ "$(id -u)" -eq 0 ]; then chown 65534 "$tmp/other"; foreign=$tmp/other; else foreign=/etc; fi
expect 77 "a folder of somebody else's: 77" "$H" -u "local://$foreign" ls
says 'belongs to user' "a folder of somebody else's: says so"
: >"$tmp/text"
ln -s "$tmp/other" "$tmp/link"
for f in text link; do
    expect 64 "a $f for a folder: 64" "$H" -u "local://$tmp/$f" ls
    says 'not a folder$' "a $f for a folder: says so, once"
done
expect 0 'a new store' "$H" -u "local://$tmp/damaged" run a true
echo garbage >"$tmp/damaged/gate"
expect 69 'a damaged store: 69' "$H" -u "local://$tmp/damaged" ls
says 'not a gate' 'a damaged store: says what is'
expect 0 'a store to be changed' "$H" -u "local://$tmp/format" run a true
printf '\377' | dd of="$tmp/format/gate" bs=1 seek=8 conv=notrunc 2>/dev/null
expect 69 'a store of another format: 69' "$H" -u "local://$tmp/format" ls
says 'the store has format [0-9]*, this library knows' 'a store of another format: says which'
said=0
for l in 4 5 6 7 8 9 10 11 12 13 14 15 16; do
    run sh -c 'ulimit -n $1; shift; exec "$@"' sh $l "$H" -u "local://$tmp/format2" acquire -n --ttl 9s "a$l"
    ! grep -q 'is /proc mounted' "$tmp/err"
    ok $? "no descriptor left ($l): nothing is said of /proc"
    grep -q 'cannot read.*Too many open files' "$tmp/err" && said=1
done
[ $said -eq 1 ]
ok $? 'no descriptor left: said at least once of a file in /proc'
for v in 'acquire --ttl 9s a' 'run a true'; do
    # shellcheck disable=SC2086
    expect 69 "$v, in a new store, files may not grow: 69" \
        sh -c 'ulimit -f 10; exec "$@"' sh "$H" -u "local://$tmp/limited" $v
    says 'no room left in the store' "$v, files may not grow: says so"
    [ -d "$tmp/limited" ] && [ -z "$(ls -A "$tmp/limited")" ]
    ok $? "$v, files may not grow: leaves no half of a store"
done
sh -c 'ulimit -f 0; exec "$1" backends >"$2"' sh "$H" "$tmp/backends" 2>/dev/null
[ $? -eq 71 ]
ok $? 'output to a file that may not grow: 71'

for v in 'ls --json' version backends 'show a'; do
    # shellcheck disable=SC2086
    sh -c 'exec "$@" >&-' sh "$H" $v 2>"$tmp/err"
    [ $? -eq 71 ]
    ok $? "$v with a closed output: 71"
done

# In namespaces of our own; a plain user is root in one of his own first.
apart=unshare
[ "$(id -u)" -eq 0 ] || apart='unshare -r'
mkdir "$tmp/small"
cat >"$tmp/full.sh" <<'SH'
mount -t tmpfs -o "size=$1,mode=700" none "$2" || exit 1
export HOLDFAST_URL="local://$2/store"
shift 2
exec "$@"
SH
cat >"$tmp/full.py" <<'PY'
"""full.py HOLDFAST: a run of so many long names that the disk is full, then another."""
import subprocess, sys
also = [word for i in range(1900) for word in ("--also", f"{i:04}" + 40 * "x")]
full = subprocess.run([sys.argv[1], "run", "--note", 1024 * "n", *also, "a", "true"]).returncode
left = subprocess.run([sys.argv[1], "ls"], stdout=subprocess.PIPE, text=True).stdout
then = subprocess.run([sys.argv[1], "run", "-n", "a", "true"]).returncode
sys.exit(full if left == "" and then == 0 else 1)
PY
if $apart -m sh "$tmp/full.sh" 64k "$tmp/small" true 2>/dev/null; then
    expect 69 'no room for a new store: 69' $apart -m sh "$tmp/full.sh" 64k "$tmp/small" "$H" run a true
    says 'no room left in the store: No space left' 'no room for a new store: says so'
    expect 69 'a disk that gets full: 69, and the store goes on' \
        $apart -m sh "$tmp/full.sh" 3m "$tmp/small" python3 "$tmp/full.py" "$H"
    says 'no room left in the store: No space left' 'a disk that gets full: says so'
else
    echo '# no disk can be mounted here: only the limit of the size of files was tried'
fi
hold x
for kind in PID time; do
    case $kind in PID) in="$apart -p -f" ;; time) in="$apart -T --boottime 5000 -f" ;; esac
    if ! $in true 2>/dev/null; then
        echo "# no $kind namespace can be made here: test-local-namespace tells the driver of one"
        continue
    fi
    until_ok count_is holders 1 x
    for v in ls 'show x' 'run -n y true'; do
        # shellcheck disable=SC2086
        expect 69 "$v in another $kind namespace: 69" $in "$H" $v
        says "in use by processes of another $kind namespace" "$v in another $kind namespace: says so"
    done
    count_is holders 1 x
    ok $? "another $kind namespace: no harm to who holds here"
done
end $pid

expect 78 'a ttl that the store does not have: 78' "$H" run -t 1ms a true
says 'ttl 1 ms: this store takes' 'a ttl that the store does not have: names it'
"$H" backends --json >"$tmp/out" 2>&1
if grep -q '"name": "redis".*"state": "\(module\|builtin\)"' "$tmp/out"; then
    expect 69 'a server that is not there: 69' "$H" \
        -u 'redis://127.0.0.1:1?connect_timeout=200ms' ls
    says '127.0.0.1:1.*check that the server runs' 'a server that is not there: says what to do'
    expect 64 'an unknown mode= of redis: 64' "$H" -u 'redis://127.0.0.1:1?mode=foo' ls
    says 'mode=foo: only plain is known' 'an unknown mode= of redis: says which there are'
    expect 78 'mode=plain in a cluster: 78' "$H" -u 'redis+cluster://127.0.0.1:1?mode=plain' ls
    says 'mode=plain takes one server' 'mode=plain in a cluster: says why not'
    expect 64 'an unknown option of redis: 64' "$H" -u 'redis://127.0.0.1:1?frob=1' ls
    says 'it has:.* mode' 'an unknown option of redis: lists those it has'
fi

# ---- empty stores ----

expect 0 'ls of an empty store: 0' "$H" ls
[ ! -s "$tmp/out" ]
ok $? 'ls of an empty store: prints nothing'
expect 0 'ls --json of an empty store' "$H" ls --json
json 'd == []' 'ls --json of an empty store: an empty array'
expect 0 'show of a free name: 0' "$H" show free
prints 'free' 'show of a free name: says free'
expect 0 'show --json of a free name' "$H" show --json free
json 'd["name"] == "free" and d["holders"] == [] and d["waiters"] == []' \
    'show --json of a free name: nobody'
expect 75 'break of a free name: 75' "$H" break --yes free
says 'nobody holds' 'break of a free name: says so'

# ---- ls and show ----

esc=$(printf '\033')
note=$(printf 'a"b\\c\033[31m\n\tend \342\200\256 \303\251')
hold 'jobs/one' --note "$note"
one=$pid
until_ok count_is holders 1 jobs/one
ok $? 'a run holds a name'
hold 'jobs/one' -s --note second
two=$pid
until_ok count_is waiters 1 jobs/one
ok $? 'a second run waits for it'
hold 'jobs/one' --note third
three=$pid
until_ok count_is waiters 2 jobs/one
hold other --permits 2/5
four=$pid
until_ok count_is holders 1 other

expect 0 'show' "$H" show jobs/one
! grep -q "$esc" "$tmp/out"
ok $? 'show: the escape character of a note does not reach the terminal'
prints 'note: a"b\\\\c\\x1b\[31m\\n\\tend \\u202e é' 'show: the note is readable'
prints '^waits 1  *shared' 'show: position 1'
prints '^waits 2  *exclusive' 'show: position 2'
prints "pid $one " 'show: the process of the holder'
prints '^store  *local:' 'show: the store'
expect 0 'show --json' "$H" show --json jobs/one
note=$note python3 -c 'import json, os, sys
d = json.load(open(sys.argv[1], encoding="utf-8"))
sys.exit(0 if d["holders"][0]["note"] == os.environ["note"] else 1)' "$tmp/out"
ok $? 'show --json: the note as it was given'
! grep -q "$esc" "$tmp/out"
ok $? 'show --json: no escape character either'
json 'd["mode"] == "lock" and d["capacity"] == 2**31' 'show --json: kind and capacity'
json 'all(set(t) >= {"fence", "position", "owner", "host", "pid", "mode", "weight",
    "age_ms", "expires_in_ms", "note"} for t in d["holders"] + d["waiters"])' \
    'show --json: all fields of tickets'
json 'd["holders"][0]["fence"] > 0 and d["waiters"][0]["fence"] is None' \
    'show --json: only a holder has a fence'
json '[t["position"] for t in d["holders"] + d["waiters"]] == [0, 1, 2]' \
    'show --json: positions'
json '[t["note"] for t in d["waiters"]] == ["second", "third"]' 'show --json: the order'
json "d['holders'][0]['pid'] == $one and d['holders'][0]['weight'] == 2**31" \
    'show --json: pid and weight of the holder'
json 'd["waiters"][0]["mode"] == "shared" and d["waiters"][0]["weight"] == 1' \
    'show --json: a shared waiter'
json '0 < d["holders"][0]["expires_in_ms"] <= 30000 and d["holders"][0]["age_ms"] >= 0' \
    'show --json: age and expiry'
expect 0 'show --json of permits' "$H" show --json other
json 'd["mode"] == "permits" and d["capacity"] == 5 and d["holders"][0]["weight"] == 2' \
    'show --json of permits: capacity and weight'
expect 0 'show of permits' "$H" show other
prints '2 of 5' 'show of permits: how many are taken'

expect 0 'ls' "$H" ls
prints 'jobs/one$' 'ls: a name'
prints 'other$' 'ls: another name'
expect 0 'ls PREFIX' "$H" ls jobs/
! grep -q other "$tmp/out" && grep -q jobs/one "$tmp/out"
ok $? 'ls PREFIX: only those'
expect 0 'ls --json' "$H" ls --json
json '[l["name"] for l in d] == ["jobs/one", "other"]' 'ls --json: names in order'
json 'd[0]["holders"] == 1 and d[0]["waiters"] == 2 and d[0]["oldest_age_ms"] >= 0' \
    'ls --json: counts and age'
expect 0 'ls --limit' "$H" ls --limit 1 --json
json '[l["name"] for l in d] == ["jobs/one"]' 'ls --limit: so many'
says 'more than 1' 'ls --limit: says that there are more'
expect 0 'ls --limit that is enough' "$H" ls --limit 2
[ ! -s "$tmp/err" ]
ok $? 'ls --limit that is enough: says nothing'
sh -c '"$1" ls >/dev/full' sh "$H" 2>"$tmp/err"
[ $? -eq 71 ]
ok $? 'output that cannot be written: 71'
sh -c '"$1" show jobs/one <&- >&- 2>&-' sh "$H"
[ $? -eq 71 ]
ok $? 'closed standard descriptors: 71, no harm'
sh -c '"$1" show "" <&- >&- 2>&-' sh "$H"
[ $? -eq 64 ]
ok $? 'closed standard descriptors and a message: its status'
expect 0 'the store is still well after that' "$H" show jobs/one

expect 0 'a name that is kept' "$H" run --at-least 60s kept true
expect 0 'show of a kept name' "$H" show kept
prints 'ends in [0-9]* s: kept by no process' 'show of a kept name: says that nobody renews it'
expect 0 'show --json of a kept name' "$H" show --json kept
json '[(t["kept"], t["owner"]) for t in d["holders"]] == [(True, "")]' \
    'show --json of a kept name: it is nobody'"'"'s'
expect 0 'break of a kept name' "$H" break --yes kept
says 'at once.*only the fence protects' 'break of a kept name: says that it is free, and what protects'

# ---- wait ----

expect 75 'wait -w 0 for a held name: 75' "$H" wait -w 0 jobs/one
says 'still in use' 'wait -w 0: says why'
expect 75 'wait -w 200ms for a held name: 75' "$H" wait -w 200ms jobs/one
expect 0 'show while waited for' "$H" show --json jobs/one
json 'len(d["waiters"]) == 2' 'wait has not joined the line'
"$H" wait -w 60s jobs/one 2>/dev/null &
w=$!
pids="$pids $w"
end $one
until_ok count_is waiters 1 jobs/one
kill -0 $w 2>/dev/null
ok $? 'wait goes on while the next holds'
end $two
until_ok count_is waiters 0 jobs/one
kill -0 $w 2>/dev/null
ok $? 'wait goes on while the last holds'
end $three
wait $w
ok $? 'wait ends when nobody holds or waits any more'
end $four

hold crash -t 3s
until_ok count_is holders 1 crash
"$H" wait -w 60s crash 2>/dev/null &
w=$!
pids="$pids $w"
kill -9 $pid
wait $w
ok $? 'wait ends when the holder was killed'

# ---- break ----

store '?ttl=4s'
hold b1
one=$pid
until_ok count_is holders 1 b1
expect 64 'break without a terminal and without --yes: 64' "$H" break b1
says '\-\-yes' 'break without --yes: says what to do'
count_is holders 1 b1
ok $? 'break without --yes: nothing happened'
expect 64 '--fence and --all: 64' "$H" break --yes --fence 1 --all b1
expect 75 'break --fence of nobody: 75' "$H" break --yes --fence 1 b1
says 'no holder' 'break --fence of nobody: says so'
hold b1
two=$pid
until_ok count_is waiters 1 b1
expect 0 'break: 0' "$H" break --yes b1
prints "^holds" 'break: shows the ticket'
prints "pid $one " 'break: of the holder'
says 'free in at most [1-4] s' 'break: says when it will be free'
expect 0 'show of a broken ticket' "$H" show --json b1
json "[t for t in d['holders'] if t['pid'] == $one and not t['broken']] == []" \
    'break: the ticket is marked until it ends'
wait $one
[ $? -eq 76 ]
ok $? 'break: the holder ends with 76'
until_ok count_is waiters 0 b1
expect 0 'break: the next holds' "$H" show --json b1
json "d['holders'][0]['pid'] == $two" 'break: the next is the one that waited'
end $two

store
hold b2
one=$pid
until_ok count_is holders 1 b2
hold b2
two=$pid
until_ok count_is waiters 1 b2
expect 0 'break --now: 0' "$H" break --now --yes b2
says 'only the fence protects' 'break --now: says what protects'
expect 0 'show after break --now' "$H" show --json b2
json "[t['pid'] for t in d['holders']] == [$two]" 'break --now: the next holds at once'
wait $one
[ $? -eq 76 ]
ok $? 'break --now: the old holder ends with 76'
end $two

hold b3 -s
one=$pid
until_ok count_is holders 1 b3
hold b3 -s
two=$pid
until_ok count_is holders 2 b3
hold b3 -s
three=$pid
until_ok count_is holders 3 b3
expect 64 'break of several holders: 64' "$H" break --yes b3
says '\-\-fence N' 'break of several holders: says what to do'
[ "$(grep -c '^holds' "$tmp/out")" -eq 3 ]
ok $? 'break of several holders: shows them'
count_is holders 3 b3
ok $? 'break of several holders: nothing happened'
"$H" show --json b3 >"$tmp/out"
fence=$(python3 -c 'import json, sys
print([t["fence"] for t in json.load(sys.stdin)["holders"] if t["pid"] == int(sys.argv[1])][0])' \
    "$two" <"$tmp/out")
expect 0 'break --fence: 0' "$H" break --yes --now --fence "$fence" b3
wait $two
[ $? -eq 76 ]
ok $? 'break --fence: that holder is told'
count_is holders 2 b3
ok $? 'break --fence: only that holder'
expect 0 'break --all: 0' "$H" break --yes --now --all b3
wait $one
r1=$?
wait $three
r3=$?
[ $r1 -eq 76 ] && [ $r3 -eq 76 ]
ok $? 'break --all: all holders are told'

# On a terminal: asks, and breaks the ticket that was shown or nothing.
cat >"$tmp/ask.py" <<'PY'
"""ask.py ANSWER COMMAND -- ARG...: answers the question of ARG... on a terminal, after
COMMAND (for sh) has ended; prints what it said and ends with its status."""
import os, pty, subprocess, sys
answer, command, argv = sys.argv[1], sys.argv[2], sys.argv[4:]
pid, fd = pty.fork()
if pid == 0:
    os.execv(argv[0], argv)
said, answered = b"", False
while True:
    try:
        got = os.read(fd, 4096)
    except OSError:
        got = b""
    if not got:
        break
    said += got
    if not answered and b"[y/N]" in said:
        subprocess.run(command, shell=True, check=True)
        os.write(fd, answer.encode() + b"\n")
        answered = True
sys.stdout.buffer.write(said)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
PY
hold b4
one=$pid
until_ok count_is holders 1 b4
for a in n '' x yy; do
    expect 75 "break, answered '$a': 75" \
        timeout 60 python3 "$tmp/ask.py" "$a" : -- "$H" break b4
done
prints 'Break b4' 'break asks'
prints 'nothing was broken' 'break, not confirmed: says so'
kill -0 $one
ok $? 'break, not confirmed: the holder lives'
hold b4
two=$pid
until_ok count_is waiters 1 b4
expect 75 'break of a ticket that has gone meanwhile: 75' timeout 60 python3 "$tmp/ask.py" \
    y "kill $one; until '$H' show b4 | grep -q 'pid $two '; do sleep 0.05; done
       until ! '$H' show b4 | grep -q '^waits'; do sleep 0.05; done" -- "$H" break --now b4
prints 'gone meanwhile' 'break of a ticket that has gone: says so'
wait $one 2>/dev/null
expect 0 'show after that' "$H" show --json b4
json "[(t['pid'], t['broken']) for t in d['holders']] == [($two, False)]" \
    'break of a ticket that has gone: the new holder keeps its place'
expect 0 'break, answered yes: 0' \
    timeout 60 python3 "$tmp/ask.py" yes : -- "$H" break --now b4
wait $two
[ $? -eq 76 ]
ok $? 'break, confirmed: the holder ends with 76'

# ---- acquire, renew, release ----

store
expect 64 'acquire without --ttl: 64' "$H" acquire deploy
says 'ttl' 'acquire without --ttl: says so'
for v in acquire renew; do
    expect 64 "$v --ttl 0: 64" "$H" $v --ttl 0 x
    says "^holdfast: $v: --ttl '0': must be more than 0" "$v --ttl 0: says so"
    expect 64 "$v --ttl of no time: 64" "$H" $v --ttl soon x
    says "^holdfast: $v: --ttl 'soon': wants a time" "$v --ttl of no time: says so"
done
expect 0 'acquire' "$H" acquire --ttl 60s --note 'release 4.2' 'deploy/a b'
prints '^HOLDFAST_HANDLE=hf1:[!-~]*$' 'acquire: a handle of one word'
prints '^HOLDFAST_FENCE=[0-9]*$' 'acquire: the fence'
prints '^HOLDFAST_EXPIRES=20[0-9T:-]*Z$' 'acquire: the expiry'
. "$tmp/out"
expect 75 'acquire of what is taken, -n: 75' "$H" acquire --ttl 60s -n 'deploy/a b'
expect 75 'run of what is taken, -n: 75' "$H" run -n 'deploy/a b' true
says 'kept by no process, from .*(release 4.2)' 'run of what is taken: says that it is kept, and why'
expect 0 'show' "$H" show --json 'deploy/a b'
json "d['holders'][0]['fence'] == $HOLDFAST_FENCE and d['holders'][0]['kept']" 'acquire: it holds'
expect 0 'renew' "$H" renew --ttl 600s "$HOLDFAST_HANDLE"
prints '^HOLDFAST_EXPIRES=' 'renew: the expiry'
expect 0 'show' "$H" show --json 'deploy/a b'
json "300000 < d['holders'][0]['expires_in_ms'] <= 600000 and d['holders'][0]['fence'] == $HOLDFAST_FENCE" \
    'renew: it lasts longer, with the same fence'
expect 64 'renew on another store: 64' "$H" -u "local://$tmp/elsewhere" renew --ttl 9s "$HOLDFAST_HANDLE"
says "store$stores, not of local://$tmp/elsewhere" 'renew on another store: names both'
expect 64 'release on another namespace: 64' "$H" -u "$HOLDFAST_URL?namespace=x" release "$HOLDFAST_HANDLE"
for h in '' x hf1: hf1:a:b hf1:%zz:b:c 'hf1:a:%00:c'; do
    expect 64 "release of '$h', which is no handle: 64" "$H" release "$h"
done
expect 0 'release' "$H" release "$HOLDFAST_HANDLE"
expect 0 'release: it is free' "$H" run -n 'deploy/a b' true
expect 76 'release again: 76' "$H" release "$HOLDFAST_HANDLE"
expect 76 'renew of what has ended: 76' "$H" renew --ttl 5s "$HOLDFAST_HANDLE"
says 'has ended' 'renew of what has ended: says so'
expect 0 'acquire --json' "$H" acquire --json --ttl 1s j
json "d['handle'].startswith('hf1:') and d['fence'] > 0 and d['expires_in_ms'] == 1000 and d['expires'][-1] == 'Z'" \
    'acquire --json: all of it'
expect 0 'it ends by itself' "$H" run -w 20s j true
hold held
until_ok count_is holders 1 held
id=$("$H" show --json held | sed -n 's/.*"id": "\([^"]*\)".*/\1/p')
url=$(printf %s "$HOLDFAST_URL" | sed 's/:/%3a/g')
for v in release 'renew --ttl 1s'; do
    # shellcheck disable=SC2086
    expect 76 "$v of what a process holds: 76" "$H" $v "hf1:$id:held:$url"
done
count_is holders 1 held
ok $? 'a process that holds keeps its place'
end "$pid"
sh -c '"$1" acquire --ttl 60s full >/dev/full' sh "$H" 2>"$tmp/err"
[ $? -eq 71 ]
ok $? 'acquire whose handle cannot be written: 71'
expect 0 'acquire whose handle cannot be written: given back' "$H" run -n full true
{
    until_ok [ -e "$tmp/gone" ]
    "$H" acquire --ttl 60s piped 2>"$tmp/err"
    echo $? >"$tmp/status"
} | { exec <&-; : >"$tmp/gone"; }
grep -qx 71 "$tmp/status"
ok $? 'acquire whose handle nobody reads: 71'
expect 0 'acquire whose handle nobody reads: given back' "$H" run -n piped true
hold busy
until_ok count_is holders 1 busy
"$H" acquire --ttl 60s busy >/dev/null 2>&1 &
waits=$!
pids="$pids $waits"
until_ok count_is waiters 1 busy
kill -TERM $waits
wait $waits
[ $? -eq 143 ]
ok $? 'acquire that is ended while it waits: by its signal'
count_is waiters 0 busy
ok $? 'acquire that is ended while it waits: has left the line'
end "$pid"
expect 0 'a note of a run' "$H" run noted "$H" show noted
prints "note: $(id -un): $(basename "$H")\$" 'a run without --note: user and program'

# ---- backends ----

expect 0 'backends' "$H" backends
prints '^local ' 'backends: local'
expect 0 'backends --json' "$H" backends --json
json '[b for b in d if b["name"] == "local" and "local" in b["schemes"]
    and b["state"] == "builtin" and "/holdfast-" in b["detail"]]' \
    'backends --json: local with its default folder'
json '[b for b in d if b["store"]] == [b for b in d if b["name"] == "local"]' \
    'backends --json: which of them serves the store'
json 'all(b["state"] in ("builtin", "module", "missing") for b in d)' \
    'backends --json: known states'

# ---- where the URL comes from ----

# In a mount namespace with a folder of ours as /etc, in which the home of this user is ours, too.
etc=$tmp/etc home=$tmp/home
mkdir -p "$etc" "$home/.config"
echo "root:x:0:0::$home:/bin/sh" >"$etc/passwd"
chmod 755 "$etc" "$tmp"
with_etc() { # COMMAND...: with that /etc, without a URL
    # shellcheck disable=SC2086
    env -u HOLDFAST_URL -u HOLDFAST_URL_FILE HOME=/nowhere $apart -m \
        sh -c 'mount --bind "$1" /etc && shift && exec "$@"' sh "$etc" "$@"
}
if with_etc true 2>/dev/null; then
    sys=$etc/holdfast.conf own=$home/.config/holdfast.conf
    source_is() { # STORE SOURCE NAME
        expect 0 "$3" with_etc "$H" backends
        grep -q "^store  *$1\$" "$tmp/out" && grep -q "^  *from $2\$" "$tmp/out"
        ok $? "$3: $1 from $2"
    }
    source_is 'local:///[a-z/]*/holdfast-0' 'the default' 'no configuration file'
    printf '# one store for all\n\nurl = local://%s/sys\nnamespace = a b\nttl=9s\n' "$tmp" >"$sys"
    chmod 644 "$sys"
    source_is "local://$tmp/sys?ttl=9s&namespace=a%20b" /etc/holdfast.conf 'the file of the system'
    expect 64 'the ttl of the file counts' with_etc "$H" run --grace 4s a true
    says 'third of the ttl (3.0 s)' 'the ttl of the file counts: says so'
    printf 'url = local://%s/own\n' "$tmp" >"$own"
    chmod 600 "$own"
    source_is "local://$tmp/own" "$home/.config/holdfast.conf" "the user's file goes before it, and alone"
    expect 0 'HOLDFAST_URL goes before both' with_etc env "HOLDFAST_URL=local://$tmp/env" "$H" backends
    prints "^store  *local://$tmp/env\$" 'HOLDFAST_URL goes before both: that store'
    expect 0 '-u goes before all' with_etc "$H" -u "local://$tmp/arg" backends
    prints '^  *from -u$' '-u goes before all: says so'
    for bad in 'url local:' 'uri = local:' 'url =' 'ttl = 5s' 'url = local:
url = local:' 'url = local:
url_file = /x' 'url_file = x'; do
        echo "$bad" >"$own"
        bad=$(echo "$bad" | tr '\n' ';')
        expect 64 "malformed: '$bad': 64, not the next file" with_etc "$H" ls
        says "$home/.config/holdfast.conf" "malformed: '$bad': names the file"
    done
    printf 'url = frob://me:hunter2@h\n' >"$own"
    expect 64 "a password in the user's file: its own business" with_etc "$H" ls
    ! grep -q hunter2 "$tmp/err" "$tmp/out"
    ok $? "a password in the user's file: not shown"
    expect 64 'backends with it' with_etc "$H" backends
    ! grep -q hunter2 "$tmp/err" "$tmp/out"
    ok $? 'backends with it: not shown'
    printf 'url = local://%s/own\n' "$tmp" >"$own"
    for mode in 640 604 620; do
        chmod $mode "$own"
        expect 64 "the user's file of mode $mode: 64" with_etc "$H" ls
    done
    rm -f "$own"
    mkdir "$own"
    expect 64 "the user's file is a folder: 64" with_etc "$H" ls
    rmdir "$own"
    printf 'url = redis://me:hunter2@h\n' >"$sys"
    expect 64 "a password in the system's file: 64" with_etc "$H" ls
    says url_file "a password in the system's file: says where it goes"
    printf 'redis://me:hunter2@h:1\n' >"$tmp/secret"
    chmod 600 "$tmp/secret"
    printf 'url_file = %s\n' "$tmp/secret" >"$sys"
    source_is 'redis://me@h:1' /etc/holdfast.conf 'url_file'
    rm "$tmp/secret"
    expect 71 'url_file that is not there: 71, not local:' with_etc "$H" ls
    printf 'url = local:\n' >"$sys"
    for mode in 664 646; do
        chmod $mode "$sys"
        expect 64 "the system's file of mode $mode: 64" with_etc "$H" ls
    done
else
    echo '# no mount namespace can be made here: configuration files were not tried'
fi

# ---- bench ----

unset HOLDFAST_URL
mkdir "$tmp/bench tmp"
export TMPDIR="$tmp/bench tmp"
expect 0 'bench --json' "$H" bench --json --time 500ms uncontended hand-off waiters run
python3 -c 'import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
need = {"case", "backend", "threads", "processes", "pairs_per_s", "p50_us", "p99_us",
        "raw_pairs_per_s", "ratio_to_raw"}
names = [r["case"] for r in rows]
good = (all(set(r) >= need and r["pairs_per_s"] > 0 for r in rows) and
        names == ["uncontended", "hand-off"] + ["waiters"] * 4 + ["run"] and
        all(abs(r["ratio_to_raw"] * r["pairs_per_s"] / r["raw_pairs_per_s"] - 1) < 0.01
            for r in rows if r["raw_pairs_per_s"]) and
        all(r["quantiles_us"] == sorted(r["quantiles_us"], key=lambda q: q[1]) and
            [0.5, r["p50_us"]] in r["quantiles_us"] for r in rows if r["p50_us"]) and
        [r["limit"] for r in rows if "limit" in r][:3] == [2.5, 1.5, 1024])
sys.exit(0 if good else 1)' "$tmp/out"
ok $? 'bench --json: one object per line with all fields'
[ -z "$(ls -A "$TMPDIR")" ]
ok $? 'bench leaves no folder behind'
expect 0 'bench, the table' "$H" bench --time 50ms uncontended contended
prints '^uncontended .*<= 2.5' 'bench, the table: target and verdict'
"$H" bench --time 60s uncontended >/dev/null 2>&1 &
b=$!
pids="$pids $b"
until_ok sh -c 'ls "$1"/*/store' sh "$TMPDIR"
kill -TERM $b
wait $b
[ $? -eq 143 ] && [ -z "$(ls -A "$TMPDIR")" ]
ok $? 'bench that is ended leaves no folder behind'
expect 0 'bench on a store of ours' env "HOLDFAST_URL=local://$tmp/benched" \
    "$H" bench --json --time 20ms uncontended
expect 0 'ls of that store' env "HOLDFAST_URL=local://$tmp/benched" "$H" ls --json
json 'd == []' 'bench leaves no lock behind'
expect 0 'bench on a store named by -u' "$H" -u "local://$tmp/benched" bench --json --time 20ms run
expect 64 'bench: -u behind the verb: 64' "$H" bench -u "local://$tmp/benched"
says 'before the verb' 'bench: -u behind the verb: says where it goes'
expect 64 'bench: an empty -u: 64' "$H" -u '' bench
says '^holdfast: -u is empty' 'bench: an empty -u: says so'
unset TMPDIR

echo "1..$n"
[ $failed -eq 0 ]
