"""zookeeper_kazoo.py HOST:PORT: the distribution's kazoo, moved by the test over its standard input:

    new ID Lock|ReadLock|WriteLock PATH [PATTERN...]    PATTERN: extra_lock_patterns
    take ID [SECONDS]       without: for as long as it takes
    give ID
    count ID TIMES FILE     so often: takes it, adds one to the number in the file, gives it

Each answers "ID RESULT" when it is done, where RESULT is what kazoo returned or raised. They do
not wait for each other.
"""
import sys
import threading

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

client = KazooClient(hosts=sys.argv[1], timeout=40)
locks = {}
output = threading.Lock()


def say(text):
    with output:
        print(text, flush=True)


def new(name, kind, path, *patterns):
    locks[name] = getattr(client, kind)(path, name, extra_lock_patterns=patterns)


def take(name, seconds=None):
    if seconds is None:
        return locks[name].acquire()
    if float(seconds) == 0:
        return locks[name].acquire(blocking=False)
    return locks[name].acquire(timeout=float(seconds))


def give(name):
    return locks[name].release()


def count(name, times, path):
    for _ in range(int(times)):
        with locks[name]:
            with open(path, encoding="ascii") as f:
                number = int(f.read())
            with open(path, "w", encoding="ascii") as f:
                f.write(str(number + 1))


def carry_out(verb, name, *args):
    try:
        result = {"new": new, "take": take, "give": give, "count": count}[verb](name, *args)
    except KazooException as e:
        result = type(e).__name__
    say(f"{name} {result}")


client.start(timeout=100)
say("ready")
for line in sys.stdin:
    threading.Thread(target=carry_out, args=line.split(), daemon=True).start()
