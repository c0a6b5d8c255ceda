# packages.sh: installs what a script needs, on Debian and Ubuntu. Sourced by ./try and ./check:
#
#     need PACKAGE PROBE WHY     PROBE: a command, or "pc:" and a .pc name, or "h:" and a header,
#                                or "-"
#     need_for_stores KEY...     the packages that the list of stores has under these keys
#     install_needed YES         YES=1: without asking
#
# A question is asked only where somebody can answer: standard input is a terminal and $CI is not
# set. Everywhere else (a script, a container build, a CI job) the packages are listed and
# installed at once, by root, or by "sudo -n", which fails where it would need a password.
#
# Some packages bring a server with a service around it. Tests start servers themselves: nothing
# that comes with a package is started, and what a package enables is disabled again. Where the
# distribution has a package with the program alone (redis-tools, zookeeper,
# mariadb-server-core), name that one.

# If standard input is closed, the next file that is opened would become standard input.
{ : <&0; } 2>/dev/null || exec </dev/null

missing=() reasons=() lists_fresh=''

installed() { # PACKAGE PROBE; anything that works will do, not only the package
    case $2 in
    -) ;;
    h:*) echo "#include <${2#h:}>" | gcc -E -x c - >/dev/null 2>&1 && return 0 ;;
    pc:*) pkg-config --exists "${2#pc:}" 2>/dev/null && return 0 ;;
    *) command -v "$2" >/dev/null 2>&1 && return 0 ;;
    esac
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

need() {
    installed "$1" "$2" && return 0
    missing+=("$1")
    reasons+=("$3")
}

# The sanitizer and fuzzer run-times of clang. Newer releases have them in a package of their own,
# older ones bring them with clang itself. Which it is may be known only when clang is there: call
# this before and after the installation of clang.
need_clang_runtime() { # WHY
    if ! command -v clang >/dev/null 2>&1; then
        ! apt-cache show libclang-rt-dev >/dev/null 2>&1 || need libclang-rt-dev - "$1"
    elif ! echo 'int main(void) { return 0; }' |
        clang -fsanitize=address,undefined -x c - -o /dev/null 2>/dev/null; then
        need "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev" - "$1"
    fi
}

# install_quietly PACKAGE...: no service is running or enabled afterwards that was not before. A
# policy-rc.d that is there already is its owner's decision and stays.
install_quietly() {
    $as_root bash -s -- "$lists_fresh" "$@" <<'EOF'
[ -n "$1" ] || apt-get -q update </dev/null || exit
shift
links() { find /etc/systemd/system /etc/rc[2-5].d -type l 2>/dev/null | sort; }
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM HUP
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy" || exit 1
fi
before=$(links)
# A new machine may be installing its updates: wait for that.
DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 \
    install -y --no-install-recommends "$@" </dev/null
status=$?
comm -13 <(echo "$before") <(links) | while read -r link; do
    name=${link##*/}
    case $link in
    */rc?.d/S*) update-rc.d "${name#S[0-9][0-9]}" disable ;;
    */systemd/*) [ "$(readlink "$link")" = /dev/null ] || rm -f "$link" ;;
    esac
done
exit $status
EOF
}

by_hand() {
    echo "Run this as root, then $0 again:" >&2
    echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
    return 1
}

# The packages that the list of stores has under these keys; see there.
need_for_stores() { # KEY...
    local key package probe why
    while read -r _ key package probe why; do
        [[ " $* " != *" $key "* ]] || need "$package" "$probe" "$why"
    done < <(grep -v '^#' "${BASH_SOURCE[0]%/*}/../stores")
}

install_needed() {
    local i answer log as_root=''
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "Missing packages:"
    for i in "${!missing[@]}"; do
        printf '  %-24s %s\n' "${missing[i]}" "${reasons[i]}"
    done
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "There is no apt-get here: install their equivalents, then run $0 again." >&2
        return 1
    fi
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null 2>&1 || by_hand || return
        as_root="sudo -n"
    fi
    if [ "$1" != 1 ] && [ -t 0 ] && [ -z "${CI-}" ]; then
        read -r -p "Install them now? [Y/n] " answer || return 1
        case $answer in '' | [yY]*) ;; *) echo "Nothing was installed."; return 1 ;; esac
        as_root=${as_root:+sudo} # may ask for a password
    fi
    $as_root bash -c : </dev/null || by_hand || return
    echo "Installing ..."
    log=$(mktemp) || return 1
    if ! install_quietly "${missing[@]}" >"$log" 2>&1; then
        tail -n 30 "$log" >&2
        rm -f "$log"
        echo "The packages could not be installed." >&2
        return 1
    fi
    rm -f "$log"
    missing=() reasons=() lists_fresh=1
}

need_for_build() {
    need gcc gcc "the compiler"
    need libc6-dev h:stdio.h "headers of the C library"
    need pkg-config pkg-config "finds libraries"
    need meson meson "the build system"
    need ninja-build ninja "the build system"
    need_for_stores for-try
}
