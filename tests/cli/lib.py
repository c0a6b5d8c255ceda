"""What the tests of the command share: TAP, processes, terminals.

Each case runs in a process of its own with its own store folder, several at a time. All that a
case starts carries a word in its environment; a case fails if such a process outlives it.
"""
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import traceback

LIMIT = 60  # seconds after which something that must happen has not happened
EXITING = 4  # PF_EXITING: descriptors are closed a moment before the state becomes Z
PROMPT = "@~@ "  # in nothing that a case types
cases = []

KILLED = 1 << signal.SIGKILL - 1  # among the pending signals: it has no time to die yet on a busy machine

# For sh, in the command of a run that waited: is any process in the file `pids` alive? Clean: none
# will run another instruction of its own; it is dead, has SIGKILL pending, or is on its way out in the kernel.
LOOK = r"""
r=clean
while read p; do
    if read a b c ppid pgrp session tty tpgid flags rest < /proc/$p/stat; then
        set -- $rest # the 22nd: pending signals
        [ $((flags & 4)) -ne 0 ] || [ $((${22} & 256)) -ne 0 ] ||
            case $c in Z|X) ;; *) r="alive $p $b $c" ;; esac
    fi
done 2>/dev/null < "$DIR/pids"
echo "$r $HOLDFAST_FENCE" > "$DIR/result"
"""


def case(fn):
    cases.append(fn)
    return fn


class Failure(Exception):
    pass


def check(good, text):
    if not good:
        raise Failure(text)


def same(got, wanted, what):
    check(got == wanted, f"{what}: {got!r} instead of {wanted!r}")


def until(cond, what, limit=LIMIT):
    """Polls for a condition; the only way in which these tests wait for something."""
    end = time.monotonic() + limit
    while True:
        got = cond()
        if got:
            return got
        check(time.monotonic() < end, f"not within {limit} s: {what}")
        time.sleep(0.005)


def stays(cond, seconds, what):
    """The condition holds all the time, as far as one can look."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        check(cond(), what)
        time.sleep(0.01)


# ---- processes -----------------------------------------------------------------------------

def stat_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            text = f.read()
    except OSError:
        return None
    name, rest = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:].split()
    return {"name": name, "state": rest[0], "ppid": int(rest[1]), "pgrp": int(rest[2]),
            "session": int(rest[3]), "tpgid": int(rest[5]), "flags": int(rest[6]), "pending": int(rest[28])}


def status_of(pid, key):
    with open(f"/proc/{pid}/status") as f:
        for line in f:
            if line.startswith(key + ":"):
                return line.split(":", 1)[1].strip()
    return None


def state(pid):
    s = stat_of(pid)
    return s["state"] if s else None


def alive(pid):
    """Will it run another instruction of its own?"""
    s = stat_of(pid)
    return s is not None and s["state"] not in "ZX" and not s["flags"] & EXITING and not s["pending"] & KILLED


def everybody():
    return [int(d) for d in os.listdir("/proc") if d.isdigit()]


def children(pid):
    found = []
    for p in everybody():
        s = stat_of(p)
        if s and s["ppid"] == pid:
            found.append((p, s))
    return found


def guard_of(pid):
    for p, s in children(pid):
        if s["name"] == "hf-guard" and s["state"] != "Z":
            return p
    return None


def child_of(pid):
    for p, s in children(pid):
        if s["name"] not in ("hf-guard", "holdfast"):
            return p
    return None


def end_all(pids):
    for p in pids:
        try:
            os.kill(p, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Box:
    """One case: its folder, its store, its processes."""

    def __init__(self, holdfast):
        self.holdfast = holdfast
        self.dir = tempfile.mkdtemp(prefix="holdfast-run-")
        self.word = "case-" + os.path.basename(self.dir)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST")}
        self.env.update(HOLDFAST_URL=f"local://{self.dir}/store", TEST_WORD=self.word,
                        DIR=self.dir, HF=holdfast, LC_ALL="C")
        os.mkdir(self.dir + "/store", 0o700)
        self.procs = []

    def path(self, name):
        return os.path.join(self.dir, name)

    def read(self, name):
        try:
            with open(self.path(name)) as f:
                return f.read()
        except OSError:
            return ""

    def write(self, name, text="x"):
        with open(self.path(name) + ".new", "w") as f:
            f.write(text)
        os.rename(self.path(name) + ".new", self.path(name))

    def there(self, name):
        return os.path.exists(self.path(name))

    def popen(self, args, **kw):
        kw.setdefault("env", self.env)
        kw.setdefault("stdin", subprocess.DEVNULL)
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        kw.setdefault("start_new_session", True)
        p = subprocess.Popen(args, **kw)
        self.procs.append(p)
        return p

    def start(self, *args, **kw):
        return self.popen([self.holdfast, "run", *args], **kw)

    def run(self, *args, stdin=None, **kw):
        """Runs to its end: (status, stdout, stderr)."""
        if stdin is not None:
            kw["stdin"] = subprocess.PIPE
        p = self.start(*args, **kw)
        return self.end(p, stdin)

    def tool(self, *args):
        return self.end(self.popen([self.holdfast, *args]))

    def end(self, p, stdin=None):
        try:
            out, err = p.communicate(stdin.encode() if stdin is not None else None, LIMIT)
        except subprocess.TimeoutExpired:
            raise Failure(f"still runs after {LIMIT} s: {p.args}") from None
        return p.returncode, (out or b"").decode(), (err or b"").decode()

    def show(self, name):
        out = self.tool("show", "--json", name)[1]
        return json.loads(out) if out.strip() else {"holders": [], "waiters": []}

    def holders(self, name):
        return self.show(name)["holders"]

    def waiters(self, name):
        return len(self.show(name)["waiters"])

    def held(self, name):
        return self.run("-n", "-q", name, "true")[0] == 75

    def ours(self):
        """Living processes of this case: by their environment, or by where they are."""
        found = []
        for p in everybody():
            try:
                with open(f"/proc/{p}/environ", "rb") as f:
                    ours = self.word.encode() in f.read()
                if (ours or os.readlink(f"/proc/{p}/cwd").startswith(self.dir)) and alive(p):
                    found.append(p)
            except OSError:
                pass
        return found

    def close(self):
        """Nothing may be left; whatever is left is ended all the same."""
        left = []
        try:
            until(lambda: not self.ours(), "", LIMIT / 4)
        except Failure:
            left = [(p, (stat_of(p) or {}).get("name")) for p in self.ours()]
        end_all(self.ours())
        for p in self.procs:
            p.wait()
        shutil.rmtree(self.dir, ignore_errors=True)
        return left


class Redis:
    """A server on a socket in the folder of the case, with its data in memory.

    Where only the tools are installed the server is there under the name of one of them."""

    def __init__(self, box, *args):
        self.box, self.args = box, args
        box.env["HOLDFAST_URL"] = f"redis+unix://{box.dir}/redis.sock"
        self.start()

    def start(self):
        self.p = self.box.popen(["redis-server", "--port", "0", "--unixsocket", self.box.path("redis.sock"),
                                 "--save", "", "--dir", self.box.dir, *self.args],
                                executable=shutil.which("redis-server") or shutil.which("redis-check-rdb"),
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: self.box.tool("ls")[0] == 0, "the server answers")

    def kill(self):
        self.p.kill()
        self.p.wait()


class Terminal:
    """An interactive bash on a terminal of its own."""

    def __init__(self, box, argv=("bash", "--norc", "--noprofile", "-i")):
        self.box, self.text, self.at = box, "", 0
        env = dict(box.env, PS1=PROMPT, TERM="dumb", HISTFILE="/dev/null")
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(argv[0], argv, env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
        if argv[0] == "bash":
            self.prompt()

    def pump(self, seconds):
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if ready:
            try:
                data = os.read(self.fd, 65536).decode(errors="replace")
            except OSError:
                return False
            self.text += data
            return bool(data)
        return True

    def expect(self, text, limit=LIMIT):
        """Waits for the text after what was expected before; returns what stood before it."""
        end = time.monotonic() + limit
        while True:
            i = self.text.find(text, self.at)
            if i >= 0:
                before, self.at = self.text[self.at:i], i + len(text)
                return before
            check(time.monotonic() < end and self.pump(0.1),
                  f"not on the terminal: {text!r}; there is {self.text[self.at:]!r}")

    def send(self, text):
        os.write(self.fd, text.encode())

    def line(self, text):
        """Sends a command line and skips its echo."""
        self.send(text + "\n")
        self.expect("\n")

    def status(self):
        """$? of the last command, asked at the next prompt."""
        self.prompt()
        self.line('echo sta""tus=$?.')
        self.expect("status=")
        return int(self.expect("."))

    def prompt(self):
        return self.expect(PROMPT)

    def hang_up(self):
        os.close(self.fd)

    def close(self):
        """Ends the shell: nothing of the case may be left but it."""
        try:
            self.send("exit\n")
        except OSError:
            pass
        end = time.monotonic() + LIMIT
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            check(time.monotonic() < end, "the shell did not end")
            try:
                self.pump(0.05)
            except OSError:
                time.sleep(0.01)


# ---- TAP ------------------------------------------------------------------------------------

def one(fn, holdfast, out):
    os.setsid()
    box = Box(holdfast)
    error = ""
    try:
        fn(box)
    except Failure as e:
        error = str(e)
    except BaseException:
        error = traceback.format_exc()
    if error:
        end_all(box.ours())
    left = box.close()
    if left and not error:
        error = f"left behind: {left}"
    os.write(out, error.encode()[:4000])
    os._exit(1 if error else 0)


def title(fn):
    return (fn.__doc__ or fn.__name__).split("\n")[0].rstrip(".")


def main(argv):
    if len(argv) < 2:
        sys.exit(f"usage: {argv[0]} PATH_TO_HOLDFAST [WORD...]")
    holdfast, words = os.path.abspath(argv[1]), argv[2:]
    todo = [c for c in cases if not words or any(w in c.__name__ for w in words)]
    running, results, number, bad = {}, {}, 0, 0
    queue = list(enumerate(todo, 1))
    sys.stdout.flush()
    while queue or running:
        while queue and len(running) < 4:
            i, fn = queue.pop(0)
            r, w = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(r)
                one(fn, holdfast, w)
            os.close(w)
            running[pid] = (i, fn, r, time.monotonic())
        pid, status = os.wait()
        if pid not in running:
            continue
        i, fn, r, since = running.pop(pid)
        text = os.read(r, 4096).decode(errors="replace")
        os.close(r)
        good = status == 0
        bad += not good
        number += 1
        took = time.monotonic() - since
        print(f"{'ok' if good else 'not ok'} {number} - {title(fn)} # time={took:.2f}")
        for line in ([] if good else [fn.__name__] + (text or f"status {status}").splitlines()):
            print("# " + line)
        sys.stdout.flush()
    print(f"1..{number}")
    return 1 if bad else 0
