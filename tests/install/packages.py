#!/usr/bin/env python3
"""packages.py SOURCE: tools/packages.sh on a system that is made up.

apt-get and the like come from a folder of ours, and what the part that runs as root does in
/etc and /usr/sbin happens below another. Nothing is installed. Prints TAP.
"""
import os
import pty
import shutil
import subprocess
import sys
import tempfile

TOOLS = {
    "id": 'echo "$WHO"',
    "sudo": '''
        echo "sudo $*" >>"$LOG"
        if [ "$1" = -n ]; then
            [ -z "$PASSWORD" ] || { echo "sudo: a password is required" >&2; exit 1; }
            shift
        fi
        exec "$@"''',
    # The part that runs as root comes on standard input: it works below $ROOT.
    "bash": '''
        [ "$1" = -s ] || exec /bin/bash "$@"
        sed "s#/etc/#$ROOT/etc/#g; s#/usr/sbin/#$ROOT/usr/sbin/#g" | /bin/bash "$@"''',
    "dpkg-query": '[[ $* == *" there" ]] && printf installed',
    "apt-cache": '[ "$*" = "show libclang-rt-dev" ]',
    "update-rc.d": 'echo "update-rc.d $*" >>"$LOG"',
    # a package with a service: enabled in both ways, and started unless the policy forbids it;
    # and one that is not to run
    "apt-get": '''
        echo "apt-get $*" >>"$LOG"
        [[ $* == *" install "* ]] || exit 0
        "$ROOT/usr/sbin/policy-rc.d" thing start || echo "policy $?" >>"$LOG"
        ln -s ../init.d/thing "$ROOT/etc/rc3.d/S02thing"
        ln -s /lib/systemd/system/thing.service "$ROOT/etc/systemd/system/wants/thing.service"
        ln -s /dev/null "$ROOT/etc/systemd/system/masked.service"
        echo "what apt-get says"
        [[ $* != *broken* ]]''',
}
cases = []


def case(fn):
    cases.append(fn)
    return fn


class System:
    def __init__(self, source, policy=None, **env):
        self.source, self.dir = source, tempfile.mkdtemp()
        self.root, self.log = self.dir + "/root", self.dir + "/log"
        self.policy = self.root + "/usr/sbin/policy-rc.d"
        for name in ("etc/rc3.d", "etc/systemd/system/wants", "usr/sbin"):
            os.makedirs(f"{self.root}/{name}")
        os.symlink("../init.d/old", self.root + "/etc/rc3.d/S01old")
        os.symlink("/lib/systemd/system/old.service",
                   self.root + "/etc/systemd/system/wants/old.service")
        os.mkdir(self.dir + "/bin")
        for name, text in TOOLS.items():
            self.program(f"{self.dir}/bin/{name}", "#!/bin/bash\n" + text)
        if policy:
            self.program(self.policy, policy)
        self.env = dict(os.environ, ROOT=self.root, LOG=self.log, TMPDIR=self.dir, WHO="0",
                        PASSWORD="", CI="", PATH=f"{self.dir}/bin:{os.environ['PATH']}")
        self.env.update(env)

    def program(self, path, text):
        with open(path, "w") as f:
            f.write(text + "\n")
        os.chmod(path, 0o755)

    def argv(self, text):
        return ["/bin/bash", "-c", '. "$1"\n' + text, "bash", self.source + "/tools/packages.sh"]

    def run(self, text, stdin=subprocess.DEVNULL):
        """What follows after packages.sh: (status, output). There is nobody to ask."""
        p = subprocess.run(self.argv(text), env=self.env, stdin=stdin, timeout=60,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return p.returncode, p.stdout

    def ask(self, text, answer="n"):
        """The same on a terminal, where a question would be answered."""
        pid, fd = pty.fork()
        if pid == 0:
            os.execve("/bin/bash", self.argv(text), self.env)
        said, asked = b"", False
        while True:
            try:
                got = os.read(fd, 4096)
            except OSError:
                got = b""
            if not got:
                break
            said += got
            if not asked and b"[Y/n]" in said:
                os.write(fd, answer.encode() + b"\n")
                asked = True
        os.close(fd)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode()

    def logged(self):
        try:
            with open(self.log) as f:
                return f.read().splitlines()
        except FileNotFoundError:
            return []

    def installed(self):
        return [line for line in self.logged() if " install " in line]

    def links(self):
        return sorted(os.path.relpath(os.path.join(at, name), self.root + "/etc")
                      for at, _, names in os.walk(self.root + "/etc") for name in names)


def same(got, wanted, what):
    assert got == wanted, f"{what}: {got!r} instead of {wanted!r}"


THING = 'need thing no-such-command "a reason"; install_needed '


LINE = "apt-get update && apt-get install -y --no-install-recommends thing\n"


@case
def nobody_to_ask(source):
    """without a terminal, as root: names what is missing and why, and installs it"""
    reader, writer = os.pipe()  # nothing comes from it: whoever reads it hangs
    for stdin in (subprocess.DEVNULL, reader):
        s = System(source)
        status, said = s.run(THING + "0", stdin)
        same(status, 0, "status")
        assert "a reason" in said and "Installing" in said, said
        assert "[Y/n]" not in said, said
        same(len(s.installed()), 1, "installations")
        assert s.logged()[0].endswith(" update") and "sudo" not in str(s.logged()), s.logged()
    os.close(reader)
    os.close(writer)


@case
def closed(source):
    """the same with standard input closed"""
    s = System(source)
    argv = s.argv(THING + "0")
    p = subprocess.run(["/bin/bash", "-c", 'exec "$@" <&-', "bash"] + argv, env=s.env, timeout=60,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    same(p.returncode, 0, f"status: {p.stdout}")
    same(len(s.installed()), 1, "installations")


@case
def by_sudo(source):
    """without a terminal, not root: by sudo -n, with every call of it"""
    s = System(source, WHO="1000")
    status, said = s.run(THING + "0")
    same(status, 0, f"status: {said}")
    same(len(s.installed()), 1, "installations")
    calls = [line for line in s.logged() if line.startswith("sudo ")]
    assert calls and all(line.startswith("sudo -n ") for line in calls), calls


@case
def sudo_refuses(source):
    """a sudo that wants a password, or none at all: says what root has to do, installs nothing"""
    none = 'command() { [ "$2" != sudo ] && builtin command "$@"; }\n'
    for before, password in (("", "1"), (none, "")):
        for yes in "01":
            s = System(source, WHO="1000", PASSWORD=password)
            status, said = s.run(before + THING + yes)
            same(status, 1, "status")
            assert "a reason" in said and LINE in said and "Installing" not in said, said
            assert "apt-get" not in str(s.logged()), s.logged()


@case
def answers(source):
    """on a terminal it asks: no installs nothing, Enter and yes install, by a sudo that may ask"""
    for who in ("0", "1000"):
        for answer, status in (("n", 1), ("x", 1), ("", 0), ("y", 0)):
            s = System(source, WHO=who, PASSWORD="1")
            got, said = s.ask(THING + "0", answer)
            same(got, status, f"status after {answer!r}: {said}")
            same(len(s.installed()), 1 - status, f"installations after {answer!r}")
            assert "thing" in said and "a reason" in said, said


@case
def not_asked(source):
    """on a terminal with -y, or with $CI set, it does not ask"""
    for ci, yes in (("", "1"), ("true", "0")):
        for password, status in (("", 0), ("1", 1)):
            s = System(source, WHO="1000", CI=ci, PASSWORD=password)
            got, said = s.ask(THING + yes)
            same(got, status, f"status: {said}")
            same(len(s.installed()), 1 - status, "installations")
            assert "[Y/n]" not in said, said


@case
def no_service(source):
    """what a package enables is disabled again, and was never started; the rest stays"""
    s = System(source)
    same(s.run(THING + "1")[0], 0, "status")
    same(len(s.installed()), 1, "installations")
    assert "--no-install-recommends thing" in s.installed()[0], s.installed()
    assert "policy 101" in s.logged(), s.logged()
    assert not os.path.lexists(s.policy), "the policy is left behind"
    assert "update-rc.d thing disable" in s.logged(), s.logged()
    assert "update-rc.d old disable" not in s.logged(), s.logged()
    same(s.links(), ["rc3.d/S01old", "rc3.d/S02thing", "systemd/system/masked.service",
                     "systemd/system/wants/old.service"], "links")


@case
def own_policy(source):
    """a policy-rc.d that is there already is its owner's"""
    text = "#!/bin/sh\nexit 104"
    s = System(source, text)
    same(s.run(THING + "1")[0], 0, "status")
    assert "policy 104" in s.logged(), s.logged()
    with open(s.policy) as f:
        same(f.read(), text + "\n", "the policy")


@case
def failing(source):
    """an installation that fails: its words are shown, and nothing is left enabled either"""
    s = System(source)
    status, said = s.run('need broken no-such-command "a reason"; install_needed 1')
    same(status, 1, "status")
    assert "what apt-get says" in said, said
    assert not os.path.lexists(s.policy), "the policy is left behind"
    assert "update-rc.d thing disable" in s.logged(), s.logged()
    assert "systemd/system/wants/thing.service" not in s.links(), s.links()


@case
def nothing_missing(source):
    """a command, a header or a package that is there is not asked for"""
    s = System(source)
    status, said = s.run("need a bash why; need b h:stdio.h why; need there - why; install_needed 0")
    same((status, said, s.logged()), (0, "", []), "result")


@case
def clang_runtime(source):
    """the run-times of a clang that is missing, too, are known before it is installed"""
    s = System(source)
    no_clang = 'command() { [ "$2" != clang ] && builtin command "$@"; }\n'
    s.run(no_clang + "need clang clang why; need_clang_runtime why; install_needed 0")
    assert " clang libclang-rt-dev" in str(s.installed()), s.logged()


def main():
    bad, tempfile.tempdir = 0, tempfile.mkdtemp(prefix="holdfast-packages-")
    print(f"1..{len(cases)}")
    for i, fn in enumerate(cases, 1):
        error = ""
        try:
            fn(os.path.abspath(sys.argv[1]))
        except (AssertionError, subprocess.TimeoutExpired) as e:
            error = str(e) or "failed"
        bad += bool(error)
        print(f"{'not ok' if error else 'ok'} {i} - {fn.__doc__}")
        for line in error.splitlines():
            print("# " + line)
    shutil.rmtree(tempfile.tempdir)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
