"""rows.py: the stores and modes that are compared, one row each.

A row needs a set-up of tests/lib, and what is said about the store; everything else is measured, or read from
docs/guarantees.md. Words here quote figures by placeholders only: {{key}} of the same store, {{STORE.key}} of another
one; document.py has the keys.
"""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Row:
    name: str  # on the command line
    title: str
    setup: str  # of tests/lib: with-store --serve starts it
    scheme: str  # the row of the table "Per store" in docs/guarantees.md begins so
    anchor: str  # of the section there
    version: tuple  # a command and, in its output, a pattern of the version
    counts: str  # what the server counts as its work; "": nothing
    operate: str  # what has to be run and cared for
    failover: str  # what a change of the server does
    clock: str  # what a stepped clock does
    good: str
    bad: str
    take: str
    query: str = ""  # more parameters of the URL
    server: bool = True  # there is one, which can be killed and stopped
    several: bool = False  # servers that do the same: one of them may be killed
    env: dict = dataclasses.field(default_factory=dict)  # for the set-up


# As ZooKeeper is shipped: the set-up of the tests saves compile time, memory and fsync.
JAVA = {"_JAVA_OPTIONS": "-XX:TieredStopAtLevel=4 -Xmx512m -Dzookeeper.forceSync=yes -Dzookeeper.preAllocSize=65536"}

ZOOKEEPER = Row("zookeeper", "zookeeper", "zookeeper", "`zk:`, `zks:`", "zk-zks", (["dpkg-query", "-W", "-f", "${Version}", "libzookeeper-java"], r"[\d.]+"),
    counts="packets",
    operate="an ensemble of three or five Java servers with a log disk of their own",
    failover="nothing, if the election is shorter than the session time-out",
    clock="nothing: wall clocks have no part in it",
    good="Exclusion rests on a majority of servers, not on wall clocks. The queue is exact, also among Curator, kazoo and other programs that use "
         "the same recipe. Waiting costs little: each waiter watches its predecessor only.",
    bad="The time limit is that of the session, for all locks of a client, and servers bound it. No barging, no places kept without a process. "
        "It is Java, with {{memory}} of memory here, and needs care. Old releases can lose committed changes; "
        "see [the guarantees](guarantees.md#zk-zks).",
    take="The lock must never be held twice, whatever server fails, and you run ZooKeeper already, or share locks with programs that use it.",
    env=JAVA)

ETCD = Row("etcd", "etcd", "etcd", "`etcd:`, `etcds:`", "etcd-etcds", (["etcd", "--version"], r"etcd Version: ([\d.]+)"),
    counts="gRPC messages",
    operate="a cluster of three or five servers with fast disks; compaction; a release without known faults of leases",
    failover="nothing is lost, but all leases start anew: a dead holder blocks for longer",
    clock="nothing: leases count elapsed time",
    good="Exclusion rests on a majority of servers, not on wall clocks. The queue is exact, also with `etcdctl lock` and the Go client. "
         "It is one static program without Java. Per-request time limits and places kept without a process work.",
    bad="Every join and every release is a write that a majority has to agree on: {{pair_p50}} for a pair, and {{cpu_own_1}} of server time. "
        "With {{waiters}} waiters it made {{crowd_rate}} hand-offs per second. The time limit is in whole seconds. Debian's release has known "
        "faults of leases, which the client tells by a missing capability.",
    take="The lock must never be held twice, whatever server fails, and you run etcd already, for instance below Kubernetes.")

POSTGRES = Row("postgres", "postgres", "postgres", "`postgres:`", "postgres-postgresql", (["psql", "--version"], r"[\d.]+"),
    counts="statements",
    operate="the database server that you have; synchronous replication, if a failover must not forget",
    failover="synchronous replication: nothing; asynchronous: what had not reached the new primary is forgotten",
    clock="stepped forward: holds end early by the step",
    good="You have it already, it is backed up and watched, and a grant is as durable as any other commit. The queue is exact, every "
         "capability is there, and the lock can stand beside the data that it protects, where a write can check the fence in the same statement.",
    bad="A pair is two commits: {{pair_p50}}, and {{cpu_own_1}} of server time. A client that waits has {{connections_one_8}} connections, each with a process "
        "of the server behind it, and a busy lock makes dead rows, which vacuum has to remove. Behind a transaction pooler waiters have to poll.",
    take="The data are in PostgreSQL and the rate of locks is moderate: then it is the one store less to run.")


def three(row):
    """The same with three servers, which are what is run in production."""
    return dataclasses.replace(
        row, name=f"{row.name}-three", title=f"{row.title}, three", setup=f"{row.setup}-three", several=True,
        counts=f"{row.counts} of all servers", operate="as above",
        good="Any one server may die, also the leader. Measured: the holder keeps its lock: {{member_keeps}}; the next one after its release: {{member_next}}.",
        bad="Every write waits for a second server: {{pair_p50}} for a pair here, against {{" + row.name + ".pair_p50}} with one, and {{cpu_own_1}} of "
            "processor time on all of them.",
        take=f"You take [{row.title}](#{row.name}): this is how it is run in production.")


MYSQL = Row("mysql", "mysql", "mysql", "`mysql:`", "mysql-mariadb", (["mariadbd", "--version"], r"[\d.]+"),
    counts="statements",
    operate="the database server that you have; a failover may forget what had not reached the replica",
    failover="what had not reached the new primary is forgotten",
    clock="stepped forward: holds end early by the step",
    good="You have it already, it is backed up and watched, and a grant is as durable as any other commit. The queue is exact and every capability is there.",
    bad="A pair is two commits: {{pair_p50}}, and {{cpu_own_1}} of server time. The server cannot send messages: who waits sleeps in a user lock on a session of its own, and "
        "beyond some of these it looks again and again.",
    take="The data are in MariaDB and the rate of locks is moderate: then it is the one store less to run.")

ROWS = [
    Row("local", "local", "local", "`local:`", "local", (["dpkg-query", "-W", "-f", "LMDB ${Version}", "liblmdb0"], r"LMDB [\d.]+"),
        counts="transactions",
        operate="nothing",
        failover="there is no server",
        clock="nothing: expiry does not use the wall clock",
        good="There is nothing to run, a pair takes {{pair_p50}}, and a holder that dies is noticed at once: the next one had the lock "
             "{{kill_median}} after the `kill -9`. It has every capability, and its queue is exact.",
        bad="One machine, and one user or group on it. No network file system, and no sharing across containers with PID namespaces of their own.",
        take="All programs that share the lock run on one machine: cron jobs, deployment scripts, workers of one host. Also take it "
             "to try things out; only the URL changes later.",
        server=False),
    Row("redis", "redis", "redis", "`redis:` (all forms)", "redis-rediss-redisunix-redissentinel-rediscluster",
        (["redis-cli", "--version"], r"[\d.]+"),
        counts="commands, those inside scripts included",
        operate="one server, better with Sentinel or Cluster; `appendfsync always`; a clock that is not stepped",
        failover="what had not reached the new master is forgotten, and may be granted twice",
        clock="stepped forward: holds end early by the step",
        good="{{pair_p50}} for a pair, {{handoff_p50}} for a hand-off, and {{rate_own_64}} pairs per second by {{many}} clients, with little "
             "work for the server: {{cpu_own_1}} for a pair. It has every capability: queue, shared locks, semaphores, per-request time limits. One server is easy to run.",
        bad="Exclusion rests on the server's clock and on its memory. With `appendfsync always` a restart loses nothing, as measured here; with "
            "less persistence, and at every failover, the last grants can be forgotten. Only resources that check fences are safe then. "
            "A holder that is killed blocks the others until its time limit ends.",
        take="You run Redis already, want many locks per second with a fair queue, and either it is acceptable that a failover can let "
             "two hold a lock, or the resource checks fences."),
    Row("redis-plain", "redis, plain", "redis", "`redlock:` and `redis:` with `mode=plain`", "redlock-and-redis-with-modeplain",
        (["redis-cli", "--version"], r"[\d.]+"),
        counts="commands, those inside scripts included",
        operate="as redis",
        failover="as redis: what had not reached the new master is forgotten, and may be granted twice",
        clock="stepped forward: holds end early by the step",
        good="`redis:` with `mode=plain` is the lock of most Redis libraries, one key with an expiry: so holdfast, redis-py, redsync and others "
             "exclude each other on the same key. {{pair_p50}} for a pair.",
        bad="No queue: whoever comes first after a release gets the lock. With {{clients}} clients on one name the unluckiest one got {{spread}} of the "
            "pairs of the luckiest. No shared locks, no semaphores, nobody can see who waits.",
        take="Other programs take such a lock on the same key. Else [redis](#redis) is the better one on the same server.",
        query="mode=plain"),
    Row("redlock", "redlock", "redlock", "`redlock:` and `redis:` with `mode=plain`", "redlock-and-redis-with-modeplain",
        (["redis-cli", "--version"], r"[\d.]+"),
        counts="commands on all nodes, those inside scripts included",
        operate="five independent servers, which must not share a fault; clocks that are not stepped",
        failover="a minority of nodes may be lost at any time; nothing is handed over",
        clock="one node: nothing, as a rule; several nodes forward: exclusion is lost",
        good="No single server matters: a minority of the nodes may be lost, restarted or cut off at any moment. It excludes other programs that "
             "use the Redlock algorithm on the same keys. holdfast adds a fence, which Redlock lacks.",
        bad="There is no queue: whoever comes first after a release gets the lock, and somebody may starve. With {{clients}} clients on one name the "
            "unluckiest one got {{spread}} of the pairs of the luckiest. No shared locks, no semaphores, nobody can see who waits. Every step costs all "
            "nodes: {{cpu_own_1}} of server time for a pair, against {{redis.cpu_own_1}} on one Redis; and more clients do not make it faster, also if each has a name of its own: "
            "{{rate_own_64}} pairs per second by {{many}}, {{rate_own_1}} by one. It is not a consensus system.",
        take="You run several independent Redis servers, a lock must outlive the loss of one of them, and you cannot run ZooKeeper or etcd; or other "
             "programs use Redlock already.",
        several=True),
    ZOOKEEPER,
    three(ZOOKEEPER),
    dataclasses.replace(
        ZOOKEEPER, name="zookeeper-ephemeral", title="zookeeper, ephemeral", scheme="`zk:` with `mode=ephemeral`", query="mode=ephemeral",
        operate="as zookeeper",
        good="`zk:` with `mode=ephemeral` is one node for each name, which simple programs make: holdfast excludes them there. {{pair_p50}} for a pair.",
        bad="No queue: all who wait are told of each release, and all try. With {{waiters}} waiters it made {{crowd_rate}} hand-offs per second, against "
            "{{zookeeper.crowd_rate}} in a line. No shared locks, no semaphores, nobody can see who waits.",
        take="Other programs lock by one ephemeral node of that name. Else [zookeeper](#zookeeper) is the better one on the same servers."),
    ETCD,
    three(ETCD),
    POSTGRES,
    dataclasses.replace(
        POSTGRES, name="postgres-optimistic", title="postgres, optimistic", scheme="`postgres:` with `mode=optimistic`", query="mode=optimistic",
        operate="as postgres",
        good="`postgres:` with `mode=optimistic` is one row for each name, taken by compare-and-set on its version: the least that the server can do for a lock "
             "with a lease and a fence. {{pair_p50}} for a pair.",
        bad="No queue: all who wait are told of each release, and all try. With {{waiters}} waiters it made {{crowd_rate}} hand-offs per second, against "
            "{{postgres.crowd_rate}} in a line. No shared locks, no semaphores, nobody can see who waits.",
        take="Locks are many and seldom contended. Else [postgres](#postgres) is the better one in the same database."),
    dataclasses.replace(
        POSTGRES, name="postgres-pessimistic", title="postgres, pessimistic", scheme="`postgres:` with `mode=pessimistic`", query="mode=pessimistic",
        operate="as postgres, with a connection for each holder and each waiter",
        failover="all holds are lost",
        clock="nothing, but for fences of holders that die",
        good="`postgres:` with `mode=pessimistic` is SELECT FOR UPDATE in an open transaction: the server sees a dead process at once. {{pair_p50}} for a pair.",
        bad="The server may take the lock away at any moment, so hf_lease_check is not certain. Each holder and each waiter has a connection. A transaction that stays "
            "open keeps vacuum from its work. No order is promised.",
        take="A crash must be noticed at once, holders are few, and the resource checks fences or is in the same database."),
    dataclasses.replace(
        POSTGRES, name="postgres-advisory", title="postgres, advisory", scheme="`postgres:` with `mode=advisory`", query="mode=advisory",
        operate="as postgres, with a connection for each holder and each waiter",
        failover="all holds are lost",
        clock="nothing",
        good="`postgres:` with `mode=advisory` is the server's own advisory lock, in memory, which other programs use as well. {{pair_p50}} for a pair.",
        bad="No fence, so nothing protects a resource from a holder that comes too late, and hf_lease_check is not certain. Each holder and each waiter has a connection. "
            "Two names may meet in one key.",
        take="Other programs take advisory locks by these keys, and their loss does no harm."),
    MYSQL,
    dataclasses.replace(
        MYSQL, name="mysql-fast", title="mysql, fast", setup="mysql-fast", scheme="`mysql:` with `crash=fast`",
        operate="as mysql",
        good="`mysql:` with `crash=fast` sees a process die by the end of its session: the next one had the lock {{kill_median}} after the `kill -9`, against "
             "{{mysql.kill_median}} without it. All else is as in [mysql](#mysql).",
        bad="A client that is cut off may learn of its loss later than the next holder of its grant, so hf_lease_check is not certain. A pair takes {{pair_p50}}, against "
            "{{mysql.pair_p50}}: the short way to take a free line is not used.",
        take="You take [mysql](#mysql), holders die more often than the network, and the resource checks fences."),
    dataclasses.replace(
        MYSQL, name="mysql-optimistic", title="mysql, optimistic", scheme="`mysql:` with `mode=optimistic`", query="mode=optimistic",
        operate="as mysql",
        good="`mysql:` with `mode=optimistic` is one row for each name, taken by compare-and-set on its version: the least that the server can do for a lock "
             "with a lease and a fence. {{pair_p50}} for a pair.",
        bad="No queue, and nobody is told of a release: who waits tries again. With {{waiters}} waiters it made {{crowd_rate}} hand-offs per second, against "
            "{{mysql.crowd_rate}} in a line. No shared locks, no semaphores, nobody can see who waits.",
        take="Locks are many and seldom contended. Else [mysql](#mysql) is the better one in the same database."),
    dataclasses.replace(
        MYSQL, name="mysql-pessimistic", title="mysql, pessimistic", scheme="`mysql:` with `mode=pessimistic`", query="mode=pessimistic",
        operate="as mysql, with a connection for each holder and each waiter",
        failover="all holds are lost",
        clock="nothing, but for fences of holders that die",
        good="`mysql:` with `mode=pessimistic` is a row that is updated in an open transaction: the server sees a dead process at once. {{pair_p50}} for a pair.",
        bad="The server may take the lock away at any moment, so hf_lease_check is not certain. Each holder and each waiter has a connection. No order is promised. "
            "Not in a Galera cluster.",
        take="A crash must be noticed at once, holders are few, and the resource checks fences or is in the same database."),
    dataclasses.replace(
        MYSQL, name="mysql-named", title="mysql, named", scheme="`mysql:` with `mode=named`", query="mode=named",
        operate="as mysql, with a connection for each holder and each waiter",
        failover="all holds are lost",
        clock="nothing",
        good="`mysql:` with `mode=named` is the server's own user lock, in memory, which other programs use as well. {{pair_p50}} for a pair.",
        bad="No fence, so nothing protects a resource from a holder that comes too late, and hf_lease_check is not certain. Each holder and each waiter has a connection. "
            "Not in a Galera cluster.",
        take="Other programs take user locks by these names, and their loss does no harm."),
]


def find(name):
    for row in ROWS:
        if row.name == name:
            return row
    raise SystemExit(f"compare: no store {name}; there are {' '.join(row.name for row in ROWS)}")
