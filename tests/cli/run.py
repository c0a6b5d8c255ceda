#!/usr/bin/env python3
"""holdfast run: options, exit statuses, environment, waiting, several names."""
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lib import alive, case, check, child_of, end_all, guard_of, main, same, stat_of, state, stays, until

SLACK = 4  # seconds that start and end of a run may take on a busy machine
HOLD = 'echo $$ > $DIR/held.new; mv $DIR/held.new $DIR/held; while [ ! -e $DIR/go ]; do sleep 0.02; done'


def hold(box, *args, **kw):
    """A run that holds until the file `go` is there; returns when it holds."""
    p = box.start(*args, "sh", "-c", HOLD, **kw)
    until(lambda: box.there("held") or p.poll() is not None, "held")
    check(p.poll() is None, f"ended: {p.poll()} {p.stderr.read() if p.poll() is not None else ''}")
    return p


# ---- exit statuses ----------------------------------------------------------------------------

@case
def exit_status(box):
    """The command's exit status is ours."""
    for n in (0, 1, 3, 75, 76, 255):
        same(box.run("a", "--", "sh", "-c", f"exit {n}")[0], n, "status")


@case
def exit_by_signal(box):
    """A command that dies of a signal ends us by the same signal, without a core dump."""
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGSEGV, signal.SIGQUIT,
                signal.SIGPIPE, signal.SIGUSR1, signal.SIGALRM):
        got = box.run("a", "sh", "-c", f"kill -{int(sig)} $$", cwd=box.dir)
        same(got[0], -sig, "status")
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    # the system says whether it has dumped, be it into a file or to a program
    p = box.start("a", "sh", "-c", "ulimit -c 0; kill -ABRT $$", cwd=box.dir, stdout=subprocess.DEVNULL,
                  stderr=subprocess.DEVNULL, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (most, most)))
    status = os.waitpid(p.pid, 0)[1]
    p.returncode = os.waitstatus_to_exitcode(status)
    same((p.returncode, os.WCOREDUMP(status)), (-signal.SIGABRT, False), "status and core dump")


@case
def cannot_run(box):
    """127 not found, 126 not executable; the name is free after it."""
    code, _, err = box.run("a", "/no/such/thing")
    same(code, 127, "status")
    check("/no/such/thing" in err and "No such file" in err, f"message: {err!r}")
    same(box.run("a", "no-such-command-anywhere")[0], 127, "status")
    code, _, err = box.run("a", "")
    same((code, err), (127, "holdfast: cannot run '': No such file or directory\n"), "an empty one")
    box.write("plain", "text")
    same(box.run("a", box.path("plain"))[0], 126, "status")
    same(box.run("a", box.dir)[0], 126, "status")
    box.write("tool", "#!/bin/sh")
    env = dict(box.env, PATH=box.dir + ":" + box.env["PATH"])
    same(box.run("a", "tool", env=env)[0], 126, "found in PATH, not executable")
    same(box.run("-n", "a", "true")[0], 0, "free again")


@case
def cannot_run_is_said_at_once(box):
    """A command that is not there is not waited for."""
    p = hold(box, "a")
    since = time.monotonic()
    for command, status in (("/no/such/thing", 127), ("no-such-command-anywhere", 127), (box.dir, 126)):
        same(box.run("a", "--", command)[0], status, f"status of {command}")
    for path in ("", ":", "/no/such", box.dir + ":/bin:"):
        status = 0 if "/bin" in path else 127
        same(box.run("b", "true", env=dict(box.env, PATH=path))[0], status, f"status with PATH={path}")
    check(time.monotonic() - since < SLACK * 4, "it waited")
    box.write("go")
    box.end(p)


@case
def bad_usage(box):
    """64 for bad usage, naming what is wrong, and nothing is run."""
    for args, word in (([], "NAME"), (["a"], "COMMAND"), (["a", "--"], "COMMAND"),
                       (["--frob", "a", "true"], "frob"), (["-w", "soon", "a", "true"], "soon"),
                       (["-t", "0", "a", "true"], "ttl"), (["-t"], "-t"),
                       (["--permits", "3", "a", "true"], "permits"),
                       (["--permits", "3/2", "a", "true"], "permits"),
                       (["--permits", "0/2", "a", "true"], "permits"),
                       (["--permits", "1/2147483649", "a", "true"], "at most 2147483648"),
                       (["--permits", "1/4294967297", "a", "true"], "at most 2147483648"),
                       (["-w", "", "a", "true"], "--wait ''"),
                       (["--permits", "1/2", "-s", "a", "true"], "permits"),
                       (["--on-lost", "cry", "a", "true"], "cry"), (["-E", "256", "a", "true"], "256"),
                       (["-t", "3s", "--grace", "2s", "a", "true"], "grace"),
                       (["--grace", "11s", "a", "true"], "grace"),
                       (["-c", "true", "a", "true"], "-c"),
                       (["--at-most", "0", "a", "true"], "at-most"),
                       (["a", "-n", "--", "true"], "before NAME"), (["a", "-v", "true"], "before NAME"),
                       ([w for i in range(400) for w in ("--also", f"{i}" + "x" * 400)] + ["a", "true"], "HOLDFAST_FENCES"),
                       (["--reenter", "--also", "b", "a", "true"], "reenter"),
                       (["--reenter", "--permits", "1/2", "a", "true"], "reenter"),
                       (["x" * 513, "true"], ""), (["", "true"], "")):
        code, out, err = box.run(*args)
        same(code, 64, f"status of {args}")
        check(word in err and err.startswith("holdfast"), f"message for {args}: {err!r}")
        same(out, "", "stdout")


@case
def grace_by_url(box):
    """The ttl= of the URL bounds --grace as -t does."""
    env = dict(box.env, HOLDFAST_URL=box.env["HOLDFAST_URL"] + "?ttl=3s")
    same(box.run("--grace", "2s", "a", "true", env=env)[0], 64, "more than a third")
    same(box.run("--grace", "1s", "a", "true", env=env)[0], 0, "a third")
    same(box.run("-t", "9s", "--grace", "2s", "a", "true", env=env)[0], 0, "-t goes before")


@case
def options_end_at_name(box):
    """Options end at NAME; -- is optional; the command's own options stay its own."""
    same(box.run("a", "echo", "-n", "-w", "x")[1], "-w x", "stdout")
    same(box.run("a", "--", "echo", "--", "-q")[1], "-- -q\n", "stdout")
    same(box.run("-x", "a", "echo", "hi")[1], "hi\n", "-x")
    same(box.run("--", "-odd", "echo", "hi")[1], "hi\n", "-- before NAME")
    same(box.run("a,b", "sh", "-c", "echo $HOLDFAST_NAME")[1], "a,b\n", "a comma is a character")


@case
def shell_string(box):
    """-c STRING goes to /bin/sh, before NAME or, as with flock, after it."""
    same(box.run("-c", "echo $((1+2)); exit 4", "a")[:2], (4, "3\n"), "before")
    same(box.run("a", "-c", "echo $((1+2)); exit 5")[:2], (5, "3\n"), "after")
    same(box.run("a", "echo", "$HOME; x")[1], "$HOME; x\n", "no shell otherwise")


@case
def output_is_the_commands(box):
    """Nothing of ours goes to stdout, with -v neither; -q and default are silent."""
    code, out, err = box.run("-v", "a", "echo", "hi")
    same((code, out), (0, "hi\n"), "-v")
    check("waited" in err and "fence" in err, f"-v says so: {err!r}")
    same(box.run("a", "sh", "-c", "echo e >&2"), (0, "", "e\n"), "default")


@case
def stdin_is_passed(box):
    """stdin belongs to the command."""
    same(box.run("a", "cat", stdin="one\ntwo\n")[1], "one\ntwo\n", "stdout")


@case
def descriptors_and_mask(box):
    """The command starts with our mask, our dispositions and our descriptors, no others but life."""
    def pre(how):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGTERM])
        for s in (signal.SIGHUP, signal.SIGINT, signal.SIGCHLD, signal.SIGTSTP):
            signal.signal(s, signal.SIG_IGN)
        for s in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(s, how)
    show = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"]
    for how in (signal.SIG_DFL, signal.SIG_IGN):
        plain = box.end(box.popen(show, preexec_fn=lambda: pre(how)))[1]
        same(box.run("a", *show, preexec_fn=lambda: pre(how))[1], plain, "signals")
    p = box.start("a", "sleep", "1000")
    pid = until(lambda: child_of(p.pid), "the command")
    until(lambda: stat_of(pid)["name"] == "sleep", "it runs")
    fds = {int(n): os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")}
    same({n: to for n, to in fds.items() if n > 2 and not (n >= 100 and to.startswith("socket:"))},
         {}, "descriptors")
    p.terminate()
    same(box.end(p)[0], -signal.SIGTERM, "status")


@case
def ignored_sigchld(box):
    """A status comes back also if holdfast was started with SIGCHLD ignored."""
    code, out, _ = box.run("a", "sh", "-c", "exit 7",
                           preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    same(code, 7, "status")


# ---- environment --------------------------------------------------------------------------------

@case
def environment(box):
    """The command finds name, fence, store and owner; its own URL is left as it was."""
    show = 'echo "$HOLDFAST_NAME|$HOLDFAST_FENCE|$HOLDFAST_STORE|$HOLDFAST_OWNER|$HOLDFAST_FENCES|$HOLDFAST_URL"'
    first = box.run("jobs/42", "sh", "-c", show)[1].strip().split("|")
    same(first[0], "jobs/42", "name")
    check(int(first[1]) > 0, "fence")
    check(first[2].startswith("local:"), f"store: {first[2]}")
    check(first[3], "owner")
    same(first[4], "", "fences")
    same(first[5], box.env["HOLDFAST_URL"], "the URL")
    second = box.run("jobs/42", "sh", "-c", show)[1].strip().split("|")
    check(int(second[1]) > int(first[1]), f"fences grow: {first[1]} {second[1]}")


@case
def environment_without_secrets(box):
    """The password of an unknown store is in no message."""
    env = dict(box.env, HOLDFAST_URL="nosuch://me:sesame@host/x")
    code, out, err = box.run("a", "env", env=env)
    same(code, 64, "status")
    check("nosuch" in err and "sesame" not in out + err, f"message {err!r}")


@case
def also_fences(box):
    """--also: all names in one lease, one line FENCE NAME for each."""
    code, out, err = box.run("--also", "b", "--also", "c d", "a", "sh", "-c",
                             'echo "$HOLDFAST_NAME $HOLDFAST_FENCE"; echo "$HOLDFAST_FENCES"; '
                             'for n in a b "c d"; do "$HF" run -n -q "$n" true; echo $?; done')
    same(code, 0, f"status {err}")
    lines = out.splitlines()
    same([line.split(" ", 1)[1] for line in lines[1:4]], ["a", "b", "c d"], "names")
    same(lines[0].split(), ["a", lines[1].split()[0]], "the first")
    same(lines[4:], ["75", "75", "75"], "all are held")


@case
def also_fences_of_odd_names(box):
    """HOLDFAST_FENCES: names as they are but \\\\ and \\n; the loop of the manual gives them back."""
    names = [" a\\b ", "\\n\\0101", "c\n9 forged", "tab\t\u202e\x1b", "e"]
    loop = ('printf "%s\\n" "$HOLDFAST_FENCES" | while IFS= read -r line; do\n'
            '    printf "fence %s of %b|" "${line%% *}" "${line#* }"\ndone')
    also = [word for name in names[1:] for word in ("--also", name)]
    code, out, err = box.run(*also, names[0], "sh", "-c",
                             f'printf "%s\\0" "$HOLDFAST_FENCES"; {loop}')
    same(code, 0, f"status {err}")
    plain, back = out.split("\0")
    lines = [line.split(" ", 1) for line in plain.split("\n")]
    same([name for _, name in lines],
         [name.replace("\\", "\\\\").replace("\n", "\\n") for name in names], "the names")
    same(back, "".join(f"fence {fence} of {name}|" for (fence, _), name in zip(lines, names)), "the loop")


@case
def also_all_or_none(box):
    """--also: if one is taken, none is kept."""
    p = hold(box, "b")
    same(box.run("-n", "a", "--also", "b", "true")[0], 64, "options end at NAME")
    code, _, err = box.run("-n", "--also", "b", "--also", "c", "a", "true")
    same(code, 75, "busy")
    check(err.startswith(f"holdfast: b: held by pid {p.pid} on ") and err.count("\n") == 1,
          f"says which one is held: {err!r}")
    same(box.run("-n", "a", "true")[0], 0, "a is free")
    same(box.run("-w", "300ms", "--also", "b", "a", "true")[0], 75, "timed out")
    same(box.run("-n", "a", "true")[0], 0, "a is free")
    waiter = box.start("--also", "b", "a", "true")
    until(lambda: box.waiters("b") == 1, "it waits for b")
    box.write("go")
    same(box.end(waiter)[0], 0, "granted")
    same(box.end(p)[0], 0, "the first")


# ---- taken ---------------------------------------------------------------------------------------

@case
def busy(box):
    """-n: 75 and who holds it; -E changes it, -q says nothing; -w T gives up after T."""
    p = hold(box, "--note", "nightly dump", "a")
    code, _, err = box.run("-n", "a", "true")
    same(code, 75, "-n")
    check(err.startswith(f"holdfast: a: held by pid {p.pid} on ") and "(nightly dump), in local:" in err,
          f"message {err!r}")
    same(box.run("-w", "0", "a", "true")[0], 75, "-w 0")
    same(box.run("-n", "-E", "9", "a", "true")[0], 9, "-E")
    same(box.run("-n", "--busy-exit=0", "-q", "a", "true"), (0, "", ""), "skip if busy")
    since = time.monotonic()
    code, _, err = box.run("-w", "0.4", "a", "true")
    same(code, 75, "-w")
    check(time.monotonic() - since >= 0.4, "waited")
    check(f"a: not granted in time: held by pid {p.pid} on " in err and "nightly dump" in err,
          f"message {err!r}")
    same(box.run("-w", "200ms", "-E", "3", "a", "true")[0], 3, "-w -E")
    box.write("go")
    same(box.end(p)[0], 0, "the first")
    same(box.run("-n", "a", "true")[0], 0, "free")


@case
def waits_in_order(box):
    """Waiting runs start one after the other, first come, first served."""
    p = hold(box, "a")
    waiting = []
    for i in range(4):
        waiting.append(box.start("a", "sh", "-c", f"echo {i} >> $DIR/order"))
        until(lambda: box.waiters("a") == i + 1, f"{i} waits")
    box.write("go")
    for w in waiting:
        same(box.end(w)[0], 0, "status")
    same(box.read("order").split(), ["0", "1", "2", "3"], "order")
    box.end(p)


@case
def shared(box):
    """-s goes with -s, not with an exclusive one."""
    p = hold(box, "-s", "a")
    same(box.run("-n", "-s", "a", "true")[0], 0, "two readers")
    same(box.run("-n", "a", "true")[0], 75, "a writer")
    box.write("go")
    box.end(p)


@case
def permits(box):
    """--permits K/N: while they fit; another N is refused."""
    p = hold(box, "--permits", "2/3", "a")
    same(box.run("-n", "--permits", "1/3", "a", "true")[0], 0, "the third")
    same(box.run("-n", "--permits", "2/3", "a", "true")[0], 75, "a fourth")
    same(box.run("-n", "--permits", "1/4", "a", "true")[0], 64, "another N")
    same(box.run("-n", "a", "true")[0], 64, "another kind")
    box.write("go")
    box.end(p)


@case
def barge(box):
    """--barge enters past the queue when there is room."""
    p = hold(box, "-s", "a")
    writer = box.start("a", "true")
    until(lambda: box.waiters("a") == 1, "a writer waits")
    same(box.run("-n", "-s", "a", "true")[0], 75, "a reader behind it")
    same(box.run("-n", "-s", "--barge", "a", "true")[0], 0, "a barging one")
    box.write("go")
    same(box.end(writer)[0], 0, "the writer")
    box.end(p)


@case
def signal_while_waiting(box):
    """A signal while waiting leaves the line, then ends us as it would have."""
    p = hold(box, "a")
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
        w = box.start("a", "true")
        until(lambda: box.waiters("a") == 1, "it waits")
        w.send_signal(sig)
        same(box.end(w)[0], -sig, "status")
        same(box.waiters("a"), 0, "nobody waits")
    box.write("go")
    box.end(p)


@case
def ignored_signal_while_waiting(box):
    """nohup stays nohup while waiting."""
    p = hold(box, "a")
    w = box.start("a", "sh", "-c", "kill -HUP $$; echo ran",
                  preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    until(lambda: box.waiters("a") == 1, "it waits")
    w.send_signal(signal.SIGHUP)
    box.write("go")
    same(box.end(w)[:2], (0, "ran\n"), "result")
    box.end(p)


@case
def stopped_while_waiting(box):
    """A waiter that lost its place while stopped takes a new one."""
    p = hold(box, "a")
    w = box.start("-t", "500ms", "a", "true")
    until(lambda: box.waiters("a") == 1, "it waits")
    w.send_signal(signal.SIGTSTP)
    # a new session has no shell to look after it, so only SIGSTOP is sure to stop it
    w.send_signal(signal.SIGSTOP)
    until(lambda: state(w.pid) == "T", "stopped")
    other = box.start("a", "true")
    until(lambda: [t["pid"] for t in box.show("a")["waiters"]] == [other.pid], "its place has gone")
    w.send_signal(signal.SIGCONT)
    until(lambda: box.waiters("a") == 2, "it waits again")
    box.write("go")
    same(box.end(w)[0], 0, "status")
    same(box.end(other)[0], 0, "the other")
    box.end(p)


@case
def evicted_while_waiting(box):
    """Who was taken out of the queue does not queue again."""
    p = hold(box, "a")
    for status, args in ((75, []), (3, ["-E", "3"])):
        w = box.start(*args, "a", "true")
        until(lambda: box.waiters("a") == 1, "it waits")
        same(box.end(box.popen([os.environ["HF_EVICT"], "a"]))[0], 0, "evict")
        code, _, err = box.end(w)
        same((code, err), (status, "holdfast: a: taken out of the queue by an administrator\n"),
             "result")
        same(box.waiters("a"), 0, "nobody waits")
    box.write("go")
    box.end(p)


@case
def also_stopped_while_waiting(box):
    """--also: a name that was lost while we were stopped, waiting for the other, is taken anew."""
    p = hold(box, "b")
    w = box.start("-t", "3s", "--also", "b", "a", "sh", "-c",
                  'echo $HOLDFAST_FENCE; "$HF" run -n -q a true; echo $?; "$HF" run -n -q b true; echo $?')
    first = until(lambda: box.waiters("b") == 1 and box.holders("a"),
                  "it holds a and waits for b")[0]["fence"]
    w.send_signal(signal.SIGSTOP)
    until(lambda: state(w.pid) == "T", "stopped")
    same(box.run("-w", "40s", "a", "true")[0], 0, "another gets a")
    w.send_signal(signal.SIGCONT)
    box.write("go")
    code, out, err = box.end(w)
    same((code, out.split()[1:]), (0, ["75", "75"]), f"result {err}")
    check(int(out.split()[0]) > first, "the fence is that of the first hold")
    box.end(p)


@case
def says_who_holds(box):
    """-v: a waiting run says who holds the name, why, and its own position."""
    p = hold(box, "--note", "nightly dump", "a")
    first = box.start("a", "true")
    until(lambda: box.waiters("a") == 1, "the first waits")
    with open(box.path("err"), "w") as err:
        w = box.start("-v", "a", "true", stderr=err)
    until(lambda: "number 2 in line for a: held by" in box.read("err") and ", in local:" in box.read("err"),
          "its position and the store")
    text = box.read("err")
    check(f"pid {p.pid}" in text and "(nightly dump)" in text, f"message {text!r}")
    box.write("go")
    same(box.end(w)[0], 0, "status")
    box.end(first)
    box.end(p)
    check("waited" in box.read("err"), "how long")


@case
def silent_without_terminal(box):
    """Without -v and without a terminal a waiting run is silent."""
    p = hold(box, "a")
    w = box.start("a", "true")
    until(lambda: box.waiters("a") == 1, "it waits")
    stays(lambda: w.poll() is None, 0.6, "it waits on")
    box.write("go")
    same(box.end(w), (0, "", ""), "result")
    box.end(p)


# ---- nested ----------------------------------------------------------------------------------------

@case
def nested(box):
    """A run inside a run: another name is fine, the parent's is refused at once."""
    code, out, err = box.run("a", "sh", "-c",
                             '"$HF" run b echo inner; "$HF" run a echo never; echo $?; '
                             '"$HF" run -E 5 a true; echo $?')
    same((code, out), (0, "inner\n75\n5\n"), f"result {err}")
    check("held by your parent run, fence" in err, f"message {err!r}")


@case
def nested_deeper(box):
    """The grandparent's name is refused too."""
    code, out, err = box.run("a", "sh", "-c", '"$HF" run b "$HF" run a echo never; echo $?')
    same((code, out), (0, "75\n"), f"result {err}")


@case
def cycle_through_children(box):
    """Two runs whose children want each other's name: one is told (75), the other goes on."""
    text = ('touch $DIR/has-{0}; while [ ! -e $DIR/has-{1} ]; do sleep 0.02; done; '
            '"$HF" run -q {1} true')
    a = box.start("-q", "a", "sh", "-c", text.format("a", "b"))
    b = box.start("-q", "b", "sh", "-c", text.format("b", "a"))
    got = sorted([box.end(a)[0], box.end(b)[0]])
    same(got, [0, 75], "statuses")


# ---- time ------------------------------------------------------------------------------------------

@case
def at_least(box):
    """--at-least: we end with the command, the name stays taken until then."""
    since = time.monotonic()
    same(box.run("--at-least", "8s", "a", "sh", "-c", "exit 3")[0], 3, "status")
    check(time.monotonic() - since < 6, "did not stay")
    same(box.run("-n", "a", "true")[0], 75, "taken")
    same(box.run("-w", "40s", "a", "true")[0], 0, "free in the end")
    check(time.monotonic() - since >= 7.9, f"not before: {time.monotonic() - since}")
    same(box.run("--at-least", "0", "a", "true")[0], 0, "0 is nothing")
    same(box.run("-n", "a", "true")[0], 0, "free")


@case
def at_least_is_nobodys(box):
    """--at-least: what is kept after the run is not the parent's; who was left behind waits for it."""
    left = ("until [ -e $DIR/ended ]; do sleep 0.02; done; "
            '"$HF" run -n b true; echo $?; "$HF" run -w 40 b echo got; echo $?')
    same(box.run("--at-least", "6s", "b", "sh", "-c", f"({left}) > $DIR/out 2> $DIR/err &")[0], 0, "status")
    kept = box.holders("b")[0]
    same((kept["kept"], kept["owner"]), (True, ""), "the ticket")
    box.write("ended")
    until(lambda: len(box.read("out").split()) == 3, "it has ended")
    same(box.read("out").split(), ["75", "got", "0"], f"result {box.read('err')!r}")
    check("parent" not in box.read("err"), f"message {box.read('err')!r}")


@case
def at_most(box):
    """--at-most: the command gets TERM, then KILL, and is gone by then: 124."""
    since = time.monotonic()
    code, out, err = box.run("--at-most", "6s", "a", "sh", "-c",
                             "trap 'echo term; exit 0' TERM; sleep 100 & wait")
    took = time.monotonic() - since
    same((code, out), (124, "term\n"), f"result {err}")
    check(took < 6 + SLACK, f"took {took}")
    check("at-most" in err, f"message {err!r}")
    since = time.monotonic()
    code, _, _ = box.run("--at-most", "2s", "a", "sh", "-c", "trap '' TERM; sleep 100; sleep 100")
    same(code, 124, "it will not go")
    check(time.monotonic() - since < 2 + SLACK, "killed in time")
    same(box.run("--at-most", "20s", "a", "sh", "-c", "exit 4")[0], 4, "soon enough")


@case
def at_most_keeps_at_least(box):
    """--at-most does not end --at-least: a command that hangs does not lift the rate limit."""
    since = time.monotonic()
    same(box.run("--at-least", "8s", "--at-most", "1s", "a", "sleep", "100")[0], 124, "status")
    check(time.monotonic() - since < 6, "did not stay")
    same(box.run("-n", "-q", "a", "true")[0], 75, "taken")
    kept = box.holders("a")[0]
    same(kept["kept"], True, "kept")
    check("kept by no process" in box.run("-n", "a", "true")[2], "says so")


@case
def at_most_given_up_after_at_least(box):
    """--on-lost warn: the lock is given up when --at-least is over too, and that is said."""
    p = box.start("--at-least", "2s", "--at-most", "1s", "--on-lost", "warn", "a", "sleep", "3")
    code, _, err = box.end(p)
    same(code, 124, "status")
    check("a is given up after the 2.0 s of --at-least: the command runs on" in err, f"message {err!r}")


@case
def keeps_the_lock(box):
    """A command that runs much longer than the ttl keeps its lock."""
    p = hold(box, "-t", "2s", "a")
    since = time.monotonic()
    stays(lambda: p.poll() is None and box.held("a"), 6, "lost it")
    box.write("go")
    same(box.end(p)[0], 0, f"status after {time.monotonic() - since}")


# ---- signals ------------------------------------------------------------------------------------------

@case
def forwards_signals(box):
    """Signals sent to us reach the command's whole group."""
    for sig in ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH"):
        # what sh starts in the background ignores INT and QUIT for good
        both = sig not in ("INT", "QUIT")
        p = box.start("a", "sh", "-c",
                      f"sh -c 'trap \"echo inner; exit\" {sig}; touch $DIR/up; "
                      "until [ -e $DIR/go ]; do sleep 0.02; done' & "
                      f"trap 'touch $DIR/go; wait; echo outer; exit 0' {sig}; touch $DIR/up2; wait; wait"
                      .replace("touch $DIR/go; ", "" if both else "touch $DIR/go; "))
        until(lambda: box.there("up") and box.there("up2"), "up")
        p.send_signal(getattr(signal, "SIG" + sig))
        code, out, err = box.end(p)
        same((code, sorted(out.split())), (0, ["inner", "outer"] if both else ["outer"]),
             f"SIG{sig} {err}")
        for name in ("up", "up2", "go"):
            if box.there(name):
                os.unlink(box.path(name))


@case
def stop_and_continue(box):
    """Without a terminal SIGTSTP and SIGCONT go to the command while we keep the lock."""
    os.mkfifo(box.path("fifo"))  # a shell that waits for a vfork cannot be stopped
    p = box.start("-t", "2s", "a", "sh", "-c", "echo $$ > $DIR/held; read x < $DIR/fifo")
    child = int(until(lambda: box.read("held").strip(), "held"))
    p.send_signal(signal.SIGTSTP)
    until(lambda: state(child) == "T", "the command has stopped")
    stays(lambda: state(child) == "T" and box.held("a"), 3.5, "the lock was not kept")
    p.send_signal(signal.SIGCONT)
    until(lambda: state(child) in ("S", "R"), "the command goes on")
    with open(box.path("fifo"), "w") as f:
        f.write("x\n")
    same(box.end(p)[0], 0, "status")


@case
def leaves_daemons_alone(box):
    """What a command that ended well has left in the background runs on."""
    code, out, _ = box.run("a", "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!")
    pid = int(out)
    same(code, 0, "status")
    check(alive(pid), "it was killed")
    same(box.run("-n", "a", "true")[0], 0, "the name is free")
    os.kill(pid, signal.SIGKILL)


@case
def own_group_and_no_zombies(box):
    """The command has its own group; orphans are reaped; nothing is left."""
    p = hold(box, "a")
    child = int(box.read("held"))
    s, own = stat_of(child), stat_of(p.pid)
    same((s["pgrp"], s["session"]), (child, own["session"]), "group and session")
    guard = until(lambda: guard_of(p.pid), "a guard")
    same(stat_of(guard)["session"], guard, "the guard's own session")
    box.write("go")
    same(box.end(p)[0], 0, "status")
    check(not alive(guard) and stat_of(guard) is None, "the guard is gone and reaped")
    p = box.start("a", "sh", "-c", "sh -c 'sleep 1000 & echo $! > $DIR/orphan'; touch $DIR/up; "
                  "while [ ! -e $DIR/go2 ]; do sleep 0.02; done")
    until(lambda: box.there("up"), "up")
    orphan = int(box.read("orphan"))
    until(lambda: stat_of(orphan)["ppid"] == p.pid, "the orphan is ours")
    os.kill(orphan, signal.SIGKILL)
    until(lambda: stat_of(orphan) is None, "the orphan is reaped")
    box.write("go2")
    same(box.end(p)[0], 0, "status")


def copy_for_everybody(box, folder):
    """The command, its library, a set-uid tool and a store where another user can reach them."""
    linked = subprocess.run(["ldd", box.holdfast], capture_output=True, text=True).stdout
    for line in linked.splitlines():
        if "libholdfast" in line and "=> /" in line:
            shutil.copy(line.split("=>")[1].split()[0], folder)
    box.holdfast = shutil.copy(box.holdfast, folder)
    tool = shutil.copy("/bin/cat", folder + "/mycat")
    os.chmod(tool, 0o4755)
    os.mkdir(folder + "/store", 0o700)
    os.chown(folder + "/store", 65534, 65534)
    box.env.update(LD_LIBRARY_PATH=folder, HOLDFAST_URL=f"local://{folder}/store")
    return tool


@case
def set_uid_command(box):
    """A command with rights of its own is warned about."""
    folder = tempfile.mkdtemp(prefix="holdfast-run-", dir="/tmp")
    try:
        os.chmod(folder, 0o755)
        if os.geteuid() == 0:  # a set-uid program of ours, run by somebody else
            tool = copy_for_everybody(box, folder)
            who = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/"}
        else:  # one of the system's, which waits for a password
            tool, who = "su", {}
        with open(box.path("err"), "w") as err:
            p = box.start("a", tool, stdin=subprocess.PIPE, stderr=err, **who)
        until(lambda: "rights of its own" in box.read("err"), "the warning")
        check(os.path.basename(tool) in box.read("err"), "it names the command")
        box.end(p, "")
        same(box.run("a", "sleep", "0.05", **who), (0, "", ""), "an ordinary one")
    finally:
        shutil.rmtree(folder)


@case
def strangers_from_before_exec(box):
    """Children that our process had before it became holdfast are never touched."""
    p = box.popen(["sh", "-c", 'for i in $(seq 150); do sleep 1000 > /dev/null 2>&1 & echo $!; done '
                   '> $DIR/strangers; exec "$HF" run --at-most 500ms --on-lost kill a sleep 1000'])
    same(box.end(p)[0], 124, "status")
    strangers = [int(s) for s in box.read("strangers").split()]
    dead = [s for s in strangers if not alive(s)]
    end_all(strangers)
    same((len(strangers), dead), (150, []), "how many, and those killed")


@case
def closed_descriptors(box):
    """Started with stdin, stdout or stderr closed: the command finds them closed, nothing breaks."""
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        p = box.popen(["sh", "-c", f'exec "$HF" run -v a sleep 1000 {closed}'])
        pid = until(lambda: child_of(p.pid), "the command")
        until(lambda: stat_of(pid)["name"] == "sleep", "it runs")
        number = {"<&-": "0", ">&-": "1", "2>&-": "2"}
        gone = [number[word] for word in closed.split()]
        same(sorted({"0", "1", "2"} - set(os.listdir(f"/proc/{pid}/fd"))), gone, "closed")
        os.kill(pid, signal.SIGTERM)
        same(box.end(p)[0], -signal.SIGTERM, f"status with {closed}")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
