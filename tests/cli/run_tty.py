#!/usr/bin/env python3
"""holdfast run on a terminal, called by an interactive shell."""
import os
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lib import (LOOK, Terminal, alive, case, check, guard_of, main, same, stat_of, state, stays,
                 until)


def pid_in(box, name):
    return int(until(lambda: box.read(name).strip(), f"a pid in {name}"))


@case
def ctrl_c(box):
    """^C ends the command and us by SIGINT; the shell has its terminal back."""
    t = Terminal(box)
    t.line('"$HF" run a -- sh -c \'echo U""P; exec sleep 1000\'')
    t.expect("UP")
    t.send("\x03")
    same(t.status(), 130, "status")
    t.line('"$HF" run -n a echo fr""ee')
    t.expect("free")
    same(t.status(), 0, "status")
    t.close()


# counts SIGINT until the file `go` is there; a shell may miss one during its own trap
COUNT = """
import os, signal, sys, time
n = 0
def got(*_):
    global n
    n += 1
    os.write(2, b"GOT %d\\n" % n)
signal.signal(signal.SIGINT, got)
os.write(2, b"UP\\n")
while not os.path.exists(os.environ["DIR"] + "/go"):
    time.sleep(0.01)
os.write(2, b"TOTAL %d.\\n" % n)
sys.exit(9)
"""


@case
def ctrl_c_once(box):
    """^C reaches the command exactly once."""
    box.write("count.py", COUNT)
    t = Terminal(box)
    t.line('"$HF" run a -- python3 $DIR/count.py')
    t.expect("UP")
    t.send("\x03")
    t.expect("GOT 1")
    t.send("\x03")
    t.expect("GOT 2")
    box.write("go")
    t.expect("TOTAL ")
    same(t.expect("."), "2", "times")
    same(t.status(), 9, "status")
    t.close()


@case
def ctrl_c_stops_a_script(box):
    """A script does not go on after ^C in a run."""
    for shell in ("bash", "sh"):
        t = Terminal(box)
        t.line(f'{shell} -c \'"$HF" run a -- sh -c "echo U\\"\\"P; exec sleep 1000"; echo RAN""ON\'; '
               "echo sta\"\"tus=$?.")
        t.expect("UP")
        t.send("\x03")
        # an interactive bash ends the whole list at ^C
        before = t.prompt()
        check("RANON" not in before, f"the script ran on: {before!r}")
        t.close()


@case
def signal_in_a_script(box):
    """A command that dies of a SIGINT of its own does not take the script along that called us."""
    t = Terminal(box)
    for shell in ("bash", "sh"):
        t.line(f"{shell} -c '\"$HF\" run a -- sh -c \"kill -INT \\$\\$\"; echo CONT\"\"INUED $?'")
        t.expect("CONTINUED 130")
        t.prompt()
    t.close()


@case
def ctrl_backslash(box):
    """^\\ too, with SIGQUIT."""
    t = Terminal(box)
    t.line('ulimit -c 0; "$HF" run a -- sh -c \'echo U""P; exec sleep 1000\'')
    t.expect("UP")
    t.send("\x1c")
    same(t.status(), 131, "status")
    t.close()


@case
def foreground(box):
    """The command has the terminal and its own group, and we take it back."""
    t = Terminal(box)
    t.line('"$HF" run a -- sh -c \'echo $$ > $DIR/pid; read x; echo GO""T $x\'')
    pid = pid_in(box, "pid")
    s = stat_of(pid)
    same((s["pgrp"], s["tpgid"]), (pid, pid), "group and terminal")
    check(stat_of(s["ppid"])["pgrp"] != pid, "we are in another group")
    t.send("hello\n")
    t.expect("GOT hello")
    same(t.status(), 0, "status")
    same(stat_of(t.pid)["tpgid"], t.pid, "the shell has the terminal")
    t.close()


@case
def interactive_child(box):
    """A shell with job control as the command works as it does alone."""
    t = Terminal(box)
    t.line('PS1="% " "$HF" run a -- bash --norc --noprofile -i')
    t.expect("% ")
    t.line("sh -c 'echo $$ > $DIR/pid; exec sleep 1000'")
    pid = pid_in(box, "pid")
    t.send("\x1a")
    t.expect("Stopped")
    t.expect("% ")
    t.line("fg")
    until(lambda: state(pid) == "S" and stat_of(pid)["tpgid"] == pid, "goes on")
    t.send("\x03")
    t.expect("% ")
    t.line("exit 7")
    same(t.status(), 7, "status")
    t.close()


@case
def ctrl_z_held(box):
    """^Z stops us too; fg with the lock still held goes on, with the terminal."""
    t = Terminal(box)
    t.line('"$HF" run -t 60s a -- sh -c \'echo $$ > $DIR/pid; read x; echo GO""T $x; exit 5\'')
    pid = pid_in(box, "pid")
    sup = stat_of(pid)["ppid"]
    t.send("\x1a")
    t.expect("unless the command is continued within")
    t.expect("Stopped")
    same((state(pid), state(sup)), ("T", "T"), "both stopped")
    for _ in range(3):
        t.prompt()
        t.line("fg")
        until(lambda: state(pid) == "S" and stat_of(pid)["tpgid"] == pid, "goes on")
        t.send("\x1a")
        t.expect("Stopped")
    t.prompt()
    t.line("fg")
    t.send("hello\n")
    t.expect("GOT hello")
    same(t.status(), 5, "status")
    same(t.text.count("unless the command is continued within"), 1, "said once")
    t.close()


@case
def ctrl_z_background(box):
    """bg after ^Z: the command runs, without the terminal; fg gives it back."""
    os.mkfifo(box.path("fifo"))
    t = Terminal(box)
    t.line('"$HF" run -t 60s a -- sh -c \'echo $$ > $DIR/pid; '
           'read y < $DIR/fifo; read x; echo GO""T $x\'')
    pid = pid_in(box, "pid")
    t.send("\x1a")
    t.expect("Stopped")
    t.prompt()
    t.line("bg")
    until(lambda: state(pid) in ("S", "R"), "goes on")
    same(stat_of(pid)["tpgid"], t.pid, "the shell has the terminal")
    with open(box.path("fifo"), "w") as f:
        f.write("y\n")
    until(lambda: (state(pid), state(stat_of(pid)["ppid"])) == ("T", "T"), "it wants to read")
    t.send("\n")
    t.prompt()
    t.line("fg")
    until(lambda: stat_of(pid)["tpgid"] == pid, "has the terminal")
    t.send("hello\n")
    t.expect("GOT hello")
    same(t.status(), 0, "status")
    t.close()


@case
def ctrl_z_lost(box):
    """^Z for longer than the ttl: the command is killed, another gets the name, fg says 76."""
    t = Terminal(box)
    t.line('"$HF" run -t 10s a -- sh -c \'echo $$ > $DIR/pids; read x; echo GO""T $x\'')
    pid_in(box, "pids")
    t.send("\x1a")
    t.expect("Stopped")
    t.prompt()
    same(box.run("-w", "40s", "a", "sh", "-c", LOOK)[0], 0, "another gets it")
    same(box.read("result").split()[0], "clean", "at its start")
    t.line("fg")
    same(t.status(), 76, "status")
    check("GOT" not in t.text.replace('GO""T', ""), "it went on")
    t.close()


@case
def ctrl_z_saves(box):
    """^Z for long: the command is continued with TERM while the lock is held, and can save its text."""
    box.write("editor.py", "import os, signal, sys, time\n"
              "d = os.environ['DIR']\n"
              "def save(*_):\n"
              "    open(d + '/saved', 'w').write(os.environ['HOLDFAST_FENCE'])\n"
              "    sys.exit(0)\n"
              "signal.signal(signal.SIGTERM, save)\n"
              "open(d + '/pids', 'w').write(str(os.getpid()) + '\\n')\n"
              "while True:\n    time.sleep(1000)\n")
    t = Terminal(box)
    t.line('"$HF" run -t 9s --grace 3s a -- python3 $DIR/editor.py')
    pid_in(box, "pids")
    t.send("\x1a")
    t.expect("it is ended, because a goes to another then")
    t.prompt()
    same(box.run("-w", "40s", "a", "sh", "-c", LOOK)[0], 0, "another gets it")
    result, fence = box.read("result").split()
    same(result, "clean", "at its start")
    check(0 < int(box.read("saved") or 0) < int(fence), f"saved: {box.read('saved')!r}")
    t.line("fg")
    same(t.status(), 76, "status")
    t.close()


@case
def ctrl_z_lost_without_guard(box):
    """The same with a stopped guard: killed without going on first."""
    box.write("stubborn.py", "import os, signal, time\n"
              "d = os.environ['DIR']\n"
              "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
              "signal.signal(signal.SIGCONT, lambda *_: open(d + '/went-on', 'w'))\n"
              "open(d + '/pid', 'w').write(str(os.getpid()))\n"
              "while True:\n    time.sleep(1000)\n")
    t = Terminal(box)
    t.line('"$HF" run -t 3s a -- python3 $DIR/stubborn.py')
    pid = pid_in(box, "pid")
    sup = stat_of(pid)["ppid"]
    guard = until(lambda: guard_of(sup), "a guard")
    os.kill(guard, signal.SIGSTOP)
    t.send("\x1a")
    t.expect("Stopped")
    t.prompt()
    same(box.run("-w", "40s", "a", "true")[0], 0, "another gets it")
    t.line("fg")
    same(t.status(), 76, "status")
    check(not box.there("went-on"), "it went on")
    t.close()


@case
def ctrl_z_script(box):
    """^Z of a run inside a script stops the whole script, fg brings it back."""
    t = Terminal(box)
    t.line("sh -c '\"$HF\" run -t 60s a -- sh -c \"echo \\$\\$ > $DIR/pid; read x; exit 3\"; "
           "echo SCRIP\"\"T $?'")
    pid = pid_in(box, "pid")
    t.send("\x1a")
    t.expect("Stopped")
    t.prompt()
    until(lambda: state(pid) == "T", "it has stopped, too")  # until then it may read what we type
    t.line("fg")
    until(lambda: state(pid) == "S" and stat_of(pid)["tpgid"] == stat_of(pid)["pgrp"], "goes on")
    t.send("\n")
    t.expect("SCRIPT 3")
    same(t.status(), 0, "status")
    t.close()


@case
def ctrl_z_while_waiting(box):
    """^Z while waiting stops; fg waits on."""
    holder = box.start("a", "sh", "-c", "touch $DIR/held; until [ -e $DIR/go ]; do sleep 0.02; done")
    until(lambda: box.there("held"), "held")
    t = Terminal(box)
    t.line('"$HF" run -t 60s a -- echo GO""T')
    t.expect("in line for a")
    t.send("\x1a")
    t.expect("Stopped")
    t.prompt()
    t.line("fg")
    t.expect("holdfast")
    box.write("go")
    t.expect("GOT")
    same(t.status(), 0, "status")
    box.end(holder)
    t.close()


@case
def waiting_line(box):
    """On a terminal a waiting run says who holds it, since when, why, and its position."""
    holder = box.start("--note", "nightly\x1b[2J dump", "a", "sh", "-c",
                       "touch $DIR/held; until [ -e $DIR/go ]; do sleep 0.02; done")
    until(lambda: box.there("held"), "held")
    t = Terminal(box)
    t.line('"$HF" run a -- true')
    t.expect(f"number 1 in line for a: held by pid {holder.pid} on ")
    text = t.expect("dump")
    check(" for " in text, f"{text!r}")
    check("nightly" in text and "\x1b[2J" not in text, f"the note is escaped: {text!r}")
    t.expect("), in local:")
    t.expect("\r\x1b[K")  # it is updated: the age
    t.send("\x03")
    same(t.status(), 130, "status")
    same(box.waiters("a"), 0, "it has left the line")
    box.write("go")
    box.end(holder)
    t.close()


@case
def pipeline(box):
    """In a pipeline the terminal belongs to all of it: its last member may read the keyboard."""
    t = Terminal(box)
    t.line('"$HF" run a -- sh -c \'echo $$ > $DIR/pid; echo one; until [ -e $DIR/go ]; do sleep 0.02; '
           'done; echo two\' | sh -c \'read x; echo LAS""T $x; read y < /dev/tty; echo GO""T $y; cat\'; '
           "echo sta\"\"tus=${PIPESTATUS[0]}.")
    t.expect("LAST one")
    pid = pid_in(box, "pid")
    same(stat_of(pid)["pgrp"], stat_of(stat_of(pid)["ppid"])["pgrp"], "the command is in our group")
    t.send("hello\n")
    t.expect("GOT hello")
    box.write("go")
    t.expect("two")
    t.expect("status=0.")
    t.close()


@case
def pipeline_to_cat(box):
    """run ... | cat ends: nobody else keeps the pipe open."""
    t = Terminal(box)
    t.line('"$HF" run a -- echo hel""lo | cat; echo en""d')
    t.expect("hello")
    t.expect("end")
    t.close()


@case
def pipeline_ctrl_c(box):
    """^C in a pipeline reaches each of its members once."""
    box.write("count.py", COUNT)
    t = Terminal(box)
    t.line('"$HF" run a -- python3 $DIR/count.py | (trap "" INT; exec cat); '
           "echo sta\"\"tus=${PIPESTATUS[0]}.")
    t.expect("UP")
    t.send("\x03")
    t.expect("GOT 1")
    box.write("go")
    t.expect("TOTAL ")
    same(t.expect("."), "1", "times")
    t.expect("status=9.")
    t.close()


@case
def pipeline_ctrl_z(box):
    """^Z and fg in a pipeline."""
    os.mkfifo(box.path("fifo"))  # a shell that waits for a vfork cannot be stopped
    t = Terminal(box)
    t.line('"$HF" run -t 60s a -- sh -c \'echo $$ > $DIR/pid; read x < $DIR/fifo; '
           'echo DON""E\' | cat')
    pid = pid_in(box, "pid")
    sup = stat_of(pid)["ppid"]
    t.send("\x1a")
    t.expect("Stopped")
    until(lambda: (state(pid), state(sup)) == ("T", "T"), "both stopped")
    t.prompt()
    t.line("fg")
    with open(box.path("fifo"), "w") as f:
        f.write("x\n")
    t.expect("DONE")
    same(t.status(), 0, "status")
    t.close()


@case
def pipeline_lost(box):
    """In a pipeline a lost lock stops the command and what it started, and nobody else."""
    t = Terminal(box)
    t.line('"$HF" run -t 60s a -- sh -c \'sleep 1000 & echo $! > $DIR/pid2; echo $$ > $DIR/pid; wait\' | '
           "sh -c 'cat; echo CA\"\"T'; echo sta\"\"tus=${PIPESTATUS[0]}.")
    pid, pid2 = pid_in(box, "pid"), pid_in(box, "pid2")
    same(box.tool("break", "--yes", "--now", "a")[0], 0, "break")
    t.expect("CAT")
    t.expect("status=76.")
    check(not alive(pid) and not alive(pid2), "they live")
    t.close()


@case
def background_job(box):
    """A background job leaves the terminal alone; if it reads, it stops until fg."""
    t = Terminal(box)
    t.line('"$HF" run -t 60s a -- sh -c \'echo $$ > $DIR/pid; read x; echo GO""T $x\' &')
    pid = pid_in(box, "pid")
    until(lambda: state(pid) == "T", "it wants to read")
    same(stat_of(pid)["tpgid"], t.pid, "the shell has the terminal")
    until(lambda: state(stat_of(pid)["ppid"]) == "T", "we have stopped too")
    t.prompt()
    t.line("fg")
    until(lambda: state(pid) == "S" and stat_of(pid)["tpgid"] == pid, "has the terminal")
    t.send("hello\n")
    t.expect("GOT hello")
    same(t.status(), 0, "status")
    t.close()


@case
def foreground_of_running_job(box):
    """fg of a background job that runs: it gets the terminal when it wants it, and ^C."""
    os.mkfifo(box.path("fifo"))
    t = Terminal(box)
    t.line('"$HF" run -t 60s a -- sh -c \'echo $$ > $DIR/pid; read y < $DIR/fifo; '
           'read x; echo GO""T $x; read y < $DIR/fifo\' &')
    pid = pid_in(box, "pid")
    t.prompt()
    t.line("fg")
    until(lambda: stat_of(pid)["tpgid"] == stat_of(stat_of(pid)["ppid"])["pgrp"], "fg")
    with open(box.path("fifo"), "w") as f:
        f.write("y\n")
    until(lambda: stat_of(pid)["tpgid"] == pid, "has the terminal")
    t.send("hello\n")
    t.expect("GOT hello")
    t.send("\x03")
    same(t.status(), 130, "status")
    t.close()


@case
def ctrl_c_of_running_job(box):
    """^C after fg of a background job that never asked for the terminal."""
    t = Terminal(box)
    t.line('"$HF" run -t 60s a -- sh -c \'echo $$ > $DIR/pid; exec sleep 1000\' &')
    pid = pid_in(box, "pid")
    t.prompt()
    t.line("fg")
    until(lambda: stat_of(pid)["tpgid"] == stat_of(stat_of(pid)["ppid"])["pgrp"], "fg")
    t.send("\x03")
    same(t.status(), 130, "status")
    t.close()


@case
def nohup(box):
    """nohup stays nohup: the command outlives the terminal and keeps the lock."""
    t = Terminal(box)
    t.line('nohup "$HF" run -t 2s a -- sh -c \'echo $$ > $DIR/pid; until [ -e $DIR/go ]; do sleep 0.02; done; '
           "touch $DIR/done' > /dev/null 2>&1 &")
    pid = pid_in(box, "pid")
    sup = stat_of(pid)["ppid"]
    t.prompt()
    t.hang_up()
    until(lambda: os.waitpid(t.pid, os.WNOHANG)[0], "the shell has ended")
    stays(lambda: alive(pid) and alive(sup) and box.held("a"), 3.5, "did not outlive the terminal")
    box.write("go")
    until(lambda: box.there("done") and not alive(sup), "done")


@case
def hangup(box):
    """Without nohup the end of the terminal ends the command, and the name is free."""
    t = Terminal(box)
    t.line('"$HF" run -t 60s a -- sh -c \'echo $$ > $DIR/pid; exec sleep 1000\'')
    pid = pid_in(box, "pid")
    sup = stat_of(pid)["ppid"]
    t.hang_up()
    until(lambda: not alive(pid) and not alive(sup), "ended")
    until(lambda: os.waitpid(t.pid, os.WNOHANG)[0], "the shell has ended")
    same(box.run("-w", "40s", "a", "true")[0], 0, "free")


@case
def no_shell(box):
    """On a terminal without a job-control shell ^Z cannot stop us for good."""
    t = Terminal(box, (box.holdfast, "run", "-t", "60s", "a", "--", "sh", "-c",
                       'echo U""P; read x; echo GO""T $x; exit 6'))
    t.expect("UP")
    t.send("\x1a")
    t.send("hello\n")
    t.expect("GOT hello")
    _, status = os.waitpid(t.pid, 0)
    same(os.WEXITSTATUS(status), 6, "status")
    t.hang_up()


COMPLETION = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../completions/bash/holdfast")


@case
def tab(box):
    """TAB completes names in use, by -u too, quoted; what stands in a name is never run."""
    for name in ("jobs/one:a b", f"odd$(touch {box.path('ran')})"):
        box.start("-q", name, "sleep", "1000")
        until(lambda: box.holders(name), f"{name} is held")
    box.env["INPUTRC"] = "/dev/null"
    t = Terminal(box)
    t.line(f'holdfast() {{ "$HF" "$@"; }}; . {COMPLETION}; stty cols 1000')
    for typed in ("holdfast show jo\t", "holdfast show --json jobs/one:a\t",
                  f"holdfast -u {box.env['HOLDFAST_URL']} show j\t", "holdfast run --also jo\t"):
        t.prompt()
        t.send(typed)
        t.expect("a\\ b")
        t.send("\x15")  # ^U: another line
        t.line("")
    t.prompt()
    t.send("holdfast wait odd\t")
    t.expect("odd\\$\\(touch")
    check(not box.there("ran"), "the name was run")
    t.send("\x15")
    t.close()
    for p in box.procs:
        p.terminate()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
