/* redlock_libraries.c: beside the locks of other libraries on the same key, both ways: the
 * distribution's redis-py itself (package python3-redis), and the commands that redsync and
 * node-redlock send. Each excludes us and is excluded; none can release or extend what is
 * another's; whoever dies is outlived by its ttl. Nothing is promised about whose turn it
 * is. */
#include "redlock_fault.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static struct server *const s = &servers[0];

static hf_client *plain_node(void)
{
    hf_client *c = NULL;
    char url[100];

    redis_init(s);
    redis_run(s);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d?mode=plain", s->port);
    CHECK_RC(rig.face->open(url, NULL, &c, E()), 0);
    return c;
}

/* ---- redis-py -------------------------------------------------------------------- */

/* One line per call of a Lock, and what it returned or raised. */
static const char program[] =
    "import sys, redis\n"
    "server = redis.Redis(host='127.0.0.1', port=int(sys.argv[1]))\n"
    "lock = None\n"
    "def new(name, seconds):\n"
    "    global lock\n"
    "    lock = server.lock(name, timeout=float(seconds), sleep=0.01)\n"
    "def take(seconds):\n"
    "    wait = float(seconds)\n"
    "    return lock.acquire(blocking=wait > 0, blocking_timeout=wait or None)\n"
    "def give():\n"
    "    lock.release()\n"
    "def extend(seconds):\n"
    "    return lock.extend(float(seconds), replace_ttl=True)\n"
    "def owned():\n"
    "    return lock.owned()\n"
    "def count(times, counter):\n"
    "    for _ in range(int(times)):\n"
    "        with lock:\n"
    "            server.set(counter, int(server.get(counter) or 0) + 1)\n"
    "print('ready', flush=True)\n"
    "for line in sys.stdin:\n"
    "    verb, *args = line.split()\n"
    "    try:\n"
    "        print(globals()[verb](*args), flush=True)\n"
    "    except redis.exceptions.RedisError as e:\n"
    "        print(type(e).__name__, flush=True)\n";

static FILE *to, *from;

static const char *heard(void)
{
    static char line[256];

    CHECK(fgets(line, sizeof(line), from)); /* else: is python3-redis installed? */
    line[strcspn(line, "\n")] = 0;
    return line;
}

#define ASK(...) (fprintf(to, __VA_ARGS__), fputc('\n', to), CHECK(fflush(to) == 0))
#define SAYS(text, ...)                                                                    \
    do {                                                                                   \
        ASK(__VA_ARGS__);                                                                  \
        CHECK_STR(heard(), text);                                                          \
    } while (0)

static void python_start(void)
{
    int in[2], out[2];
    char port[16];
    pid_t pid;

    snprintf(port, sizeof(port), "%d", s->port);
    CHECK(pipe(in) == 0 && pipe(out) == 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(in[0], 0);
        dup2(out[1], 1);
        for (int i = 0; i < 2; i++) {
            close(in[i]);
            close(out[i]);
        }
        execl("/usr/bin/python3", "/usr/bin/python3", "-c", program, port, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    to = fdopen(in[1], "w");
    from = fdopen(out[0], "r");
    CHECK(to && from);
    CHECK_STR(heard(), "ready");
}

/* It ends with its input. */
static void python_end(void)
{
    char line[16];

    fclose(to);
    CHECK(!fgets(line, sizeof(line), from));
    fclose(from);
}

static void python_excludes(void)
{
    hf_client *c = plain_node();
    struct pend *p;
    hf_lease *l;

    python_start();
    SAYS("None", "new %s 60", nm("n"));
    SAYS("True", "take 0");
    CHECK_RC(tried(c, nm("n"), NULL), HF_EBUSY);
    SAYS("True", "owned");
    p = begun(c, nm("n"), HF_FOREVER, HF_REQUEST(.ttl_ms = 6000));
    STAYS(!pend_done(p), 200);
    SAYS("True", "extend 60");
    SAYS("None", "give");
    l = pend_granted(p);
    SAYS("False", "take 0");
    SAYS("False", "take 0.3");
    SAYS("LockError", "give"); /* it has nothing to give */
    CHECK_RC(hf_lease_check(l), 0);
    ASK("take 60");
    STAYS(hf_lease_check(l) == 0, 100);
    given(l);
    CHECK_STR(heard(), "True");
    CHECK_RC(tried(c, nm("n"), NULL), HF_EBUSY);
    SAYS("None", "give");
    CHECK_RC(tried(c, nm("n"), NULL), 0);
    python_end();
    closed(c);
    server_remove(s);
}

static void python_expires(void)
{
    hf_client *c = plain_node();
    char value[2000];
    hf_lease *l;

    python_start();
    SAYS("None", "new %s 0.5", nm("n"));
    SAYS("True", "take 0");
    l = taken(c, nm("n"), NULL); /* when theirs has expired */
    snprintf(value, sizeof(value), "%s", redis_text(s, "GET %s", nm("n")));
    SAYS("LockNotOwnedError", "extend 60");
    SAYS("LockNotOwnedError", "give");
    SAYS("False", "owned");
    CHECK_STR(redis_text(s, "GET %s", nm("n")), value);
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = 500, .flags = HF_NO_RENEW));
    SAYS("True", "take 60"); /* when ours has */
    CHECK_RC(hf_lease_check(l), HF_ELOST);
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    SAYS("None", "new %s 60", nm("n"));
    AWAIT(redis_number(s, "EXISTS %s", nm("n")) == 0);
    SAYS("True", "take 0");
    SAYS("True", "owned");
    SAYS("None", "give");
    python_end();
    closed(c);
    server_remove(s);
}

enum { COUNTS = 60 };

/* What is read and written back is never written by two. */
static void python_counts(void)
{
    hf_client *c = plain_node();

    python_start();
    SAYS("None", "new %s 60", nm("n"));
    ASK("count %d %s", COUNTS, nm("counter"));
    for (int i = 0; i < COUNTS; i++) {
        hf_lease *l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = 6000));
        int before = atoi(redis_text(s, "GET %s", nm("counter")));

        redis_do(s, "SET %s %d", nm("counter"), before + 1);
        given(l);
    }
    CHECK_STR(heard(), "None");
    CHECK_NUM(atoi(redis_text(s, "GET %s", nm("counter"))), ==, 2 * COUNTS);
    python_end();
    closed(c);
    server_remove(s);
}

/* ---- redsync, node-redlock ------------------------------------------------------- */

/* Each is EVAL of a script with the key, the value and the ttl; NULL: SET NX PX. */
struct library {
    const char *name, *value;
    const char *take, *extend, *give;
    int64_t not_mine, nothing; /* what giving back answers then */
};

static const struct library libraries[] = {
    { "redsync", "c2l4dGVlbiByYW5kb20gYg==", NULL,
      "if redis.call('GET', KEYS[1]) == ARGV[1] then "
      "return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end",
      "local v = redis.call('GET', KEYS[1]) if v == ARGV[1] then "
      "return redis.call('DEL', KEYS[1]) elseif v == false then return -1 else return 0 "
      "end",
      0, -1 },
    { "redsync, SET NX on extend", "YW5vdGhlciBzaXh0ZWVuIA==", NULL,
      "if redis.call('GET', KEYS[1]) == ARGV[1] then "
      "return redis.call('PEXPIRE', KEYS[1], ARGV[2]) "
      "elseif redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then return 1 "
      "else return 0 end",
      "local v = redis.call('GET', KEYS[1]) if v == ARGV[1] then "
      "return redis.call('DEL', KEYS[1]) elseif v == false then return -1 else return 0 "
      "end",
      0, -1 },
    { "node-redlock", "00112233445566778899aabbccddeeff",
      "for _, k in ipairs(KEYS) do if redis.call('exists', k) == 1 then return 0 end end "
      "for _, k in ipairs(KEYS) do redis.call('set', k, ARGV[1], 'PX', ARGV[2]) end "
      "return #KEYS",
      "for _, k in ipairs(KEYS) do if redis.call('get', k) ~= ARGV[1] then return 0 end "
      "end "
      "for _, k in ipairs(KEYS) do redis.call('set', k, ARGV[1], 'PX', ARGV[2]) end "
      "return #KEYS",
      "local n = 0 for _, k in ipairs(KEYS) do if redis.call('get', k) == ARGV[1] then "
      "redis.pcall('del', k) n = n + 1 end end return n",
      0, 0 },
};

static int64_t evaluated(const char *script, const struct library *o, int ms)
{
    return redis_number(s, "EVAL %s 1 %s %s %d", script, nm("n"), o->value, ms);
}

static bool other_takes(const struct library *o, int ms)
{
    redisReply *r;
    bool ok;

    if (o->take)
        return evaluated(o->take, o, ms) == 1;
    r = redis_ask(s, "SET %s %s NX PX %d", nm("n"), o->value, ms);
    ok = r && r->type == REDIS_REPLY_STATUS;
    freeReplyObject(r);
    return ok;
}

static void beside(hf_client *c, const struct library *o)
{
    hf_lease *l = taken(c, nm("n"), NULL);
    struct pend *p;

    fprintf(stderr, "# %s\n", o->name);
    CHECK(!other_takes(o, 10000));
    CHECK_NUM(evaluated(o->extend, o, 10000), ==, 0);
    CHECK_NUM(evaluated(o->give, o, 0), ==, o->not_mine);
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    CHECK_NUM(evaluated(o->give, o, 0), ==, o->nothing);
    CHECK(other_takes(o, 60000));
    CHECK_RC(tried(c, nm("n"), NULL), HF_EBUSY);
    CHECK_NUM(evaluated(o->extend, o, 60000), ==, 1);
    p = begun(c, nm("n"), HF_FOREVER, HF_REQUEST(.ttl_ms = 6000));
    STAYS(!pend_done(p), 100);
    CHECK_STR(redis_text(s, "GET %s", nm("n")), o->value);
    CHECK_NUM(evaluated(o->give, o, 0), ==, 1);
    given(pend_granted(p));
    CHECK(other_takes(o, 300)); /* and dies */
    given(taken(c, nm("n"), NULL));
}

static void other_libraries(void)
{
    hf_client *c = plain_node();

    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++)
        beside(c, &libraries[i]);
    closed(c);
    server_remove(s);
}

const struct test_case redlock_libraries_cases[] = {
    { "python-excludes", python_excludes, ON_ALL, 0, 0 },
    { "python-expires", python_expires, ON_ALL, 0, 0 },
    { "python-counts", python_counts, ON_ALL, 0, 0 },
    { "other-libraries", other_libraries, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
