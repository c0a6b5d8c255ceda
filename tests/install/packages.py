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
    "sudo": "exit 1",  # it is only asked whether it is there
    "dpkg-query": '[[ $* == *" there" ]] && printf installed',
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
AS_ROOT = '''
as_root() {
    if [ "$1" = bash ]; then
        sed "s#/etc/#$ROOT/etc/#g; s#/usr/sbin/#$ROOT/usr/sbin/#g" | "$@"
    else
        "$@"
    fi
}
'''
cases = []


def case(fn):
    cases.append(fn)
    return fn


class System:
    def __init__(self, source, policy=None):
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
        self.env = dict(os.environ, ROOT=self.root, LOG=self.log, TMPDIR=self.dir,
                        PATH=f"{self.dir}/bin:{os.environ['PATH']}")

    def program(self, path, text):
        with open(path, "w") as f:
            f.write(text + "\n")
        os.chmod(path, 0o755)

    def argv(self, text):
        return ["bash", "-c", f'. "$1"\n{AS_ROOT}\n{text}', "bash", self.source + "/tools/packages.sh"]

    def run(self, text):
        """What follows after packages.sh: (status, output). There is nobody to ask."""
        p = subprocess.run(self.argv(text), env=self.env, stdin=subprocess.DEVNULL, timeout=60,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return p.returncode, p.stdout

    def ask(self, text, answer):
        """The same on a terminal, where the question is answered."""
        pid, fd = pty.fork()
        if pid == 0:
            os.execvpe("bash", self.argv(text), self.env)
        said = b""
        while True:
            try:
                got = os.read(fd, 4096)
            except OSError:
                got = b""
            if not got:
                break
            said += got
            if answer is not None and b"[Y/n]" in said:
                os.write(fd, answer.encode() + b"\n")
                answer = None
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


@case
def nobody_to_ask(source):
    """without a terminal and without -y: names what is missing and why, installs nothing"""
    s = System(source)
    status, said = s.run(THING + "0")
    same(status, 1, "status")
    assert "a reason" in said and "-y" in said, said
    same(s.logged(), [], "what was called")


@case
def answers(source):
    """on a terminal it asks: no installs nothing, Enter and yes install"""
    for answer, status in (("n", 1), ("x", 1), ("", 0), ("y", 0)):
        s = System(source)
        got, said = s.ask(THING + "0", answer)
        same(got, status, f"status after {answer!r}: {said}")
        same(len(s.installed()), 1 - status, f"installations after {answer!r}")
        assert "thing" in said and "a reason" in said, said


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
