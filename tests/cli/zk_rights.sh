#!/bin/sh
# zk_rights.sh: logins that the ACLs of ZooKeeper refuse, in the store of $HOLDFAST_URL. Speaks TAP.
tmp=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-zk-XXXXXX") || exit 1
trap 'kill $run 2>/dev/null; wait; rm -rf "$tmp"' EXIT
n=0 failed=0
address=${HOLDFAST_URL#*://}
address=${address%%/*}

ok() { # STATUS NAME: 0 is well
    n=$((n + 1))
    [ "$1" -eq 0 ] && echo "ok $n - $2" && return
    failed=1
    echo "not ok $n - $2"
    sed 's/^/# /' "$tmp/out" "$tmp/err"
}

as() { # USER VERB...: in a root of one's own, whose nodes are for ann only
    user=$1
    shift
    HOLDFAST_URL="zk://$user:pw@$address/rights" holdfast "$@" >"$tmp/out" 2>"$tmp/err"
}

as ann ls
ok $? 'nothing is there yet: 0'
HOLDFAST_URL="zk://ann:pw@$address/rights" holdfast run -t 30s a -- sh -c 'touch "$1"; sleep 300' sh "$tmp/held" &
run=$!
tries=0
until [ -e "$tmp/held" ] || [ $tries -gt 1500 ]; do sleep 0.02; tries=$((tries + 1)); done
as ann ls && grep -q ' a$' "$tmp/out"
ok $? 'its owner sees the name'
as bob ls
[ $? -eq 77 ] && [ ! -s "$tmp/out" ] && grep -q ACL "$tmp/err"
ok $? 'ls with another login: 77, says why, and no empty list'
printf 'pw\n' >"$tmp/pw"
chmod 600 "$tmp/pw"
HOLDFAST_URL="zk://ann@$address/rights?password_file=$tmp/pw" holdfast ls >"$tmp/out" 2>"$tmp/err" && grep -q ' a$' "$tmp/out"
ok $? 'password_file: the same login'
HOLDFAST_URL="zk://$address/rights?password_file=$tmp/pw" holdfast ls >"$tmp/out" 2>"$tmp/err"
[ $? -eq 64 ]
ok $? 'password_file without a user: 64'
as bob show a
[ $? -eq 77 ]
ok $? 'show with another login: 77'
echo "1..$n"
exit $failed
