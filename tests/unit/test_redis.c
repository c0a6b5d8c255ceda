/* The pure parts of the redis driver: names of keys, slots, stored records, commands, and
 * whole lines as look.lua gives them. Keys, buckets and records are the stored form: what
 * is asserted of them here never changes. */
#include "unit.h"

#include "count_memcmp.h"
#include "driver/redis/redis.h"
#include "util/bytes.h"

static struct redis r;

static int setup(void **state)
{
    (void)state;
    memset(&r, 0, sizeof r);
    r.prefix_len = (size_t)snprintf(r.prefix, sizeof r.prefix, "holdfast:ns:");
    memcpy(r.client, "0123456789abcdef", CLIENT_ID);
    snprintf(r.open.host, sizeof r.open.host, "host");
    r.open.pid = 4711;
    return 0;
}

/* ---- keys ------------------------------------------------------------------------ */

/* CRC-16 (XMODEM) of "000", "001", ... modulo 16384, computed elsewhere. */
static void slots_are_those_of_a_cluster(void **state)
{
    static const struct {
        unsigned bucket, slot;
    } known[] = { { 0x000, 13923 },
                  { 0x001, 9794 },
                  { 0x0ff, 10313 },
                  { 0x3f1, 6923 },
                  { 0x3ff, 12569 } };

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        assert_int_equal(hf__redis_bucket_slot(known[i].bucket), known[i].slot);
}

static void buckets_never_change(void **state)
{
    (void)state;
    assert_int_equal(hf__redis_bucket("", 0), 755);
    assert_int_equal(hf__redis_bucket("a", 1), 102);
    assert_int_equal(hf__redis_bucket("a/b", 3), 500);
    assert_int_equal(hf__redis_bucket("backup", 6), 540);
    assert_int_equal(hf__redis_bucket("\xc3\xa4", 2), 515);
}

static void every_bucket_is_used(void **state)
{
    static bool used[BUCKETS];
    char name[32];
    size_t n = 0;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        unsigned b =
            hf__redis_bucket(name, (size_t)snprintf(name, sizeof name, "job-%d", i));

        assert_true(b < BUCKETS);
        n += !used[b];
        used[b] = true;
    }
    assert_int_equal(n, BUCKETS);
}

static void assert_key(const char *key, size_t len, const char *want)
{
    assert_int_equal(len, strlen(want));
    assert_memory_equal(key, want, len);
}

static void keys_of_a_name_share_its_tag(void **state)
{
    char key[KEY_MAX];

    (void)state;
    assert_key(key, hf__redis_bucket_key(&r, key, 'l', "a", 1), "holdfast:ns:{066}:l:a");
    assert_key(key, hf__redis_bucket_key(&r, key, 'w', "a", 1), "holdfast:ns:{066}:w:a");
    assert_key(key, hf__redis_bucket_mark(&r, key, hf__redis_bucket("a", 1)),
               "holdfast:ns:{066}:m");
    assert_key(key, hf__redis_bucket_wake(&r, key, hf__redis_bucket("a", 1)),
               "holdfast:ns:@");
    r.topology = TOPOLOGY_CLUSTER;
    assert_key(key, hf__redis_bucket_wake(&r, key, hf__redis_bucket("a", 1)),
               "holdfast:ns:{066}:@");
}

static void a_name_is_found_in_its_key_only(void **state)
{
    char key[KEY_MAX], name[HF_NAME_MAX + 1];
    size_t len, n;

    (void)state;
    memset(name, 'x', sizeof name);
    n = hf__redis_bucket_key(&r, key, 'l', name, HF_NAME_MAX);
    assert_ptr_equal(hf__redis_bucket_name(&r, key, n, &len), key + n - HF_NAME_MAX);
    assert_int_equal(len, HF_NAME_MAX);
    key[0] = 'H';
    assert_null(hf__redis_bucket_name(&r, key, n, &len));
    n = hf__redis_bucket_key(&r, key, 'w', "a", 1);
    assert_null(hf__redis_bucket_name(&r, key, n, &len)); /* another kind */
    n = hf__redis_bucket_key(&r, key, 'l', "a", 1);
    key[n - 1] = 'b';
    assert_null(hf__redis_bucket_name(&r, key, n, &len)); /* a tag that is not its own */
    assert_null(hf__redis_bucket_name(&r, key, n - 1, &len));
    assert_null(hf__redis_bucket_name(&r, key, 0, &len));
}

static void namespaces_are_escaped(void **state)
{
    char to[40];

    (void)state;
    assert_int_equal(hf__redis_bucket_escape(to, sizeof to, "plain-1_x."), 0);
    assert_string_equal(to, "plain-1_x.");
    assert_int_equal(hf__redis_bucket_escape(to, sizeof to, "a:{b}%*@ \\"), 0);
    assert_string_equal(to, "a%3a%7bb%7d%25%2a%40%20%5c");
    assert_int_equal(hf__redis_bucket_escape(to, 4, "abc"), HF_EINVAL);
    assert_int_equal(hf__redis_bucket_escape(to, sizeof to, ""), 0);
    assert_string_equal(to, "");
}

/* ---- commands -------------------------------------------------------------------- */

static void commands_are_arrays_of_bytes(void **state)
{
    static const char want[] = "*4\r\n$3\r\nSET\r\n$2\r\na\0\r\n$0\r\n\r\n$20\r\n"
                               "-9223372036854775808\r\n";
    struct command c = { 0 };

    (void)state;
    hf__redis_command_begin(&c, 4);
    hf__redis_command_text(&c, "SET");
    hf__redis_command_arg(&c, "a\0", 2);
    hf__redis_command_arg(&c, "", 0);
    hf__redis_command_number(&c, INT64_MIN);
    assert_false(c.failed);
    assert_int_equal(c.len, sizeof want - 1);
    assert_memory_equal(c.buf, want, c.len);
    free(c.buf);
}

static void long_arguments_make_it_grow(void **state)
{
    struct command c = { 0 };
    static char big[5000];

    (void)state;
    memset(big, 'z', sizeof big);
    hf__redis_command_begin(&c, 3);
    for (int i = 0; i < 3; i++)
        hf__redis_command_arg(&c, big, sizeof big);
    assert_false(c.failed);
    assert_int_equal(c.len, 4 + 3 * (7 + sizeof big + 2));
    assert_memory_equal(c.buf + c.len - 4, "zz\r\n", 4);
    free(c.buf);
}

static void a_script_goes_by_name_or_as_text(void **state)
{
    struct redis_call q = { .bucket = 1 };
    struct command c = { 0 };

    (void)state;
    hf__redis_request_script(&c, &q, SCRIPT_RENEW, 2, 4);
    assert_memory_equal(c.buf, "*9\r\n$7\r\nEVALSHA\r\n$40\r\n", 22);
    assert_memory_equal(c.buf + 22, hf__redis_scripts[SCRIPT_RENEW].sha, 40);
    assert_memory_equal(c.buf + c.len - 7, "$1\r\n2\r\n", 7);
    c.len = 0;
    q.text = true;
    hf__redis_request_script(&c, &q, SCRIPT_RENEW, 2, 4);
    assert_memory_equal(c.buf, "*9\r\n$4\r\nEVAL\r\n", 14);
    assert_int_equal(strlen(hf__redis_scripts[SCRIPT_RENEW].text),
                     hf__redis_scripts[SCRIPT_RENEW].len);
    free(c.buf);
}

/* ---- records --------------------------------------------------------------------- */

static void records_come_back(void **state)
{
    static const char hints[] = "one\0two";
    struct ticket t = { .owner = { UINT64_MAX - 1, 7 },
                        .note = "why",
                        .hints = hints,
                        .hints_len = sizeof hints };
    unsigned char bytes[OWNER_RECORD_MAX];
    struct owner_record rec;
    size_t n = hf__owner_record_write(bytes, &r.open, &t);

    (void)state;
    assert_int_equal(hf__owner_record_read(&rec, bytes, n), 0);
    assert_true(rec.owner.process == UINT64_MAX - 1 && rec.owner.number == 7);
    assert_int_equal(rec.pid, 4711);
    assert_int_equal(rec.host_len, 4);
    assert_memory_equal(rec.host, "host", 4);
    assert_int_equal(rec.note_len, 3);
    assert_memory_equal(rec.note, "why", 3);
    assert_int_equal(rec.hints_len, sizeof hints);
    assert_memory_equal(rec.hints, hints, sizeof hints);
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(hf__owner_record_read(&rec, bytes, cut), HF_EDAMAGED);
    bytes[0]++;
    assert_int_equal(hf__owner_record_read(&rec, bytes, n), HF_EDAMAGED);
}

static void the_longest_record_fits(void **state)
{
    static char note[HF_NOTE_MAX + 1], hints[1024];
    struct ticket t = { .note = note, .hints = hints, .hints_len = sizeof hints };
    unsigned char bytes[OWNER_RECORD_MAX];
    struct owner_record rec;
    size_t n;

    (void)state;
    memset(note, 'n', HF_NOTE_MAX);
    memset(hints, 'h', sizeof hints - 1);
    memset(r.open.host, 'x', sizeof r.open.host - 1);
    n = hf__owner_record_write(bytes, &r.open, &t);
    assert_true(n <= OWNER_RECORD_MAX);
    assert_int_equal(hf__owner_record_read(&rec, bytes, n), 0);
    assert_int_equal(rec.host_len, sizeof r.open.host - 1);
    assert_int_equal(rec.note_len, HF_NOTE_MAX);
    assert_int_equal(rec.hints_len, sizeof hints);
}

/* Whoever reads hints walks from NUL to NUL. */
static void hints_without_an_end_are_refused(void **state)
{
    struct ticket t = { .note = "", .hints = "ab", .hints_len = 2 };
    unsigned char bytes[OWNER_RECORD_MAX];
    struct owner_record rec;
    size_t n = hf__owner_record_write(bytes, &r.open, &t);

    (void)state;
    assert_int_equal(hf__owner_record_read(&rec, bytes, n), HF_EDAMAGED);
    bytes[n - 1] = '\0';
    assert_int_equal(hf__owner_record_read(&rec, bytes, n), 0);
}

/* ---- answers --------------------------------------------------------------------- */

static redisReply *parsed(const char *text, size_t n)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;

    assert_int_equal(redisReaderFeed(reader, text, n), REDIS_OK);
    assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
    assert_non_null(reply);
    redisReaderFree(reader);
    return reply;
}

static int error_of(const char *line)
{
    redisReply *reply = parsed(line, strlen(line));
    hf_error err;
    int rc = hf__redis_reply_error(&r, reply, &err);

    assert_int_equal(err.code, rc);
    freeReplyObject(reply);
    return rc;
}

static void errors_have_their_code(void **state)
{
    hf_error err;

    (void)state;
    r.open.shown = (char *)(uintptr_t) "redis://h";
    assert_int_equal(error_of("-NOAUTH Authentication required.\r\n"), HF_EAUTH);
    assert_int_equal(error_of("-WRONGPASS invalid\r\n"), HF_EAUTH);
    assert_int_equal(error_of("-NOPERM no\r\n"), HF_EAUTH);
    assert_int_equal(error_of("-OOM command not allowed\r\n"), HF_EFULL);
    assert_int_equal(error_of("-MISCONF disk\r\n"), HF_EFULL);
    assert_int_equal(error_of("-NOREPLICAS few\r\n"), HF_EREPLICAS);
    assert_int_equal(error_of("-ERR Error running script: -OOM command not allowed\r\n"),
                     HF_EFULL);
    assert_int_equal(error_of("-WRONGTYPE Operation\r\n"), HF_EDAMAGED);
    assert_int_equal(error_of("-ERR max number of clients reached\r\n"), HF_EUNREACHABLE);
    assert_int_equal(error_of("*2\r\n$1\r\nf\r\n:9\r\n"), HF_EVERSION);
    assert_int_equal(error_of(":5\r\n"), HF_EPROTO);
    assert_int_equal(hf__redis_reply_error(&r, NULL, &err), HF_EUNREACHABLE);
}

static void numbers_and_words_are_checked(void **state)
{
    static const char text[] = "*3\r\n$1\r\nh\r\n:1794745440245359\r\n*0\r\n";
    redisReply *reply = parsed(text, sizeof text - 1);

    (void)state;
    assert_true(hf__redis_reply_is(reply, 0, "h"));
    assert_false(hf__redis_reply_is(reply, 0, "w"));
    assert_false(hf__redis_reply_is(reply, 1, "h"));
    assert_false(hf__redis_reply_is(reply, 3, "h"));
    assert_false(hf__redis_reply_is(NULL, 0, "h"));
    assert_true(hf__redis_reply_number(reply, 1) == 1794745440245359);
    assert_int_equal(hf__redis_reply_number(reply, 0), 0);
    assert_int_equal(hf__redis_reply_number(reply, 2), 0);
    assert_int_equal(hf__redis_reply_number(reply, 3), 0);
    assert_int_equal(hf__redis_reply_number(reply->element[1], 0), 0);
    freeReplyObject(reply);
}

static int rows_of(const char *text, size_t n)
{
    redisReply *reply = parsed(text, n);
    struct look look = { .name = "n", .name_len = 1 };
    hf_error err;
    int64_t next_ms;
    int rc = hf__redis_line_rows("n", 1, reply, &look, &next_ms, &err);

    freeReplyObject(reply);
    return rc;
}

static void damaged_lines_are_refused(void **state)
{
    static const char
        no_line[] = "*3\r\n:9\r\n*0\r\n*0\r\n",
        odd[] = "*3\r\n:9\r\n*1\r\n$0\r\n\r\n*0\r\n",
        number[] = "*3\r\n:9\r\n*2\r\n:1\r\n:2\r\n*0\r\n",
        newer[] = "*3\r\n:9\r\n*2\r\n$0\r\n\r\n$1\r\n\1\r\n*0\r\n",
        cut[] = "*3\r\n:9\r\n*2\r\n$0\r\n\r\n$1\r\n\2\r\n*0\r\n",
        ticket[] = "*3\r\n:9\r\n*2\r\n$16\r\n0123456789abcdef\r\n$3\r\nabc\r\n*0\r\n";

    (void)state;
    assert_int_equal(rows_of(no_line, sizeof no_line - 1), 0);
    assert_int_equal(rows_of(odd, sizeof odd - 1), HF_EPROTO);
    assert_int_equal(rows_of(number, sizeof number - 1), HF_EPROTO);
    assert_int_equal(rows_of(newer, sizeof newer - 1), HF_EVERSION);
    assert_int_equal(rows_of(cut, sizeof cut - 1), HF_EDAMAGED);
    assert_int_equal(rows_of(ticket, sizeof ticket - 1), HF_EDAMAGED);
    assert_int_equal(rows_of(":1\r\n", 4), HF_EPROTO);
}

/* ---- many waiters ---------------------------------------------------------------- */

enum { CROWD = 2000, GROUP_LEN = 25, OWNER_LEN = 25 + 1 + 2 + 2 };

void __wrap_hf__ev_row(struct look *, const struct row *);

static struct {
    size_t rows;
    bool right;
} shown;

void __wrap_hf__ev_row(struct look *look, const struct row *row)
{
    (void)look;
    shown.rows++;
    shown.right = shown.right && row->has_ticket && row->position == shown.rows &&
                  row->expires_ms == (int64_t)shown.rows;
}

static char *add_bytes(char *to, const void *bytes, size_t n)
{
    to += sprintf(to, "$%zu\r\n", n);
    memcpy(to, bytes, n);
    memcpy(to + n, "\r\n", 2);
    return to + n + 2;
}

/* Number i of the queue, of a client of its own: its record and, with the number of ms that
 * it has left, its group. The groups stand in another order than the queue. */
static char *add_waiter(char *to, unsigned i, unsigned of)
{
    unsigned char token[HF_TOKEN + 1], record[48 + OWNER_LEN] = { 0 }, client[17];
    unsigned char group[GROUP_LEN] = "g", alive[12] = { 0 };
    unsigned other = (i * 7 + 1) % of;

    snprintf((char *)token, sizeof token, "%016u", i);
    snprintf((char *)client, sizeof client, "%016u", i);
    bytes_put(record, 1, 8);
    bytes_put(record + 8, i + 1, 8);
    bytes_put(record + 24, 30000, 8);
    memcpy(record + 32, client, 16);
    record[48] = 1;
    to = add_bytes(add_bytes(to, token, HF_TOKEN), record, sizeof record);
    snprintf((char *)client, sizeof client, "%016u", other);
    memcpy(group + 1, client, 16);
    bytes_put(group + 17, 30000, 8);
    bytes_put(bytes_put(alive, 1000 + other + 1, 8), 1, 4);
    return add_bytes(add_bytes(to, group, GROUP_LEN), alive, sizeof alive);
}

/* A line of as many clients as waiters costs the reader n log n comparisons of bytes. */
static void a_long_line_is_read_once(void **state)
{
    char *text = malloc(200 + CROWD * 400), *end = text;

    (void)state;
    assert_non_null(text);
    end += sprintf(end, "*3\r\n:1000000\r\n*0\r\n*%d\r\n", CROWD * 4);
    for (unsigned i = 0; i < CROWD; i++)
        end = add_waiter(end, i, CROWD);
    shown.rows = 0;
    shown.right = true;
    compared = 0;
    assert_int_equal(rows_of(text, (size_t)(end - text)), 0);
    assert_int_equal(shown.rows, CROWD);
    assert_true(shown.right);
    assert_true(compared <= CROWD * 64);
    free(text);
}

/* ---- the map of a cluster -------------------------------------------------------- */

unsigned __real_hf__redis_bucket_slot(unsigned bucket);
unsigned __wrap_hf__redis_bucket_slot(unsigned bucket);

static size_t slots_computed;

unsigned __wrap_hf__redis_bucket_slot(unsigned bucket)
{
    slots_computed++;
    return __real_hf__redis_bucket_slot(bucket);
}

enum { RANGES = 512 };

/* Slots in many ranges, by turns of two nodes: reading costs once the slots, not the
 * buckets once for every range. */
static void a_map_is_read_once(void **state)
{
    static char host[] = "h", text[RANGES * 64];
    struct node nodes[2] = { { .redis = &r, .host = host, .port = 1 },
                             { .redis = &r, .host = host, .port = 2 } };
    redisReply *reply;
    hf_error err;
    size_t n = (size_t)snprintf(text, sizeof text, "*%d\r\n", RANGES);

    (void)state;
    list_init(&r.nodes);
    for (size_t i = 0; i < 2; i++)
        list_push(&r.nodes, &nodes[i].in_redis);
    assert_int_equal(hf__redis_cluster_start(&r, &err), 0);
    for (int i = 0; i < RANGES; i++)
        n += (size_t)snprintf(
            text + n, sizeof text - n, "*3\r\n:%d\r\n:%d\r\n*2\r\n$1\r\nh\r\n:%d\r\n",
            i * (SLOTS / RANGES), (i + 1) * (SLOTS / RANGES) - 1, 1 + i % 2);
    reply = parsed(text, n);
    slots_computed = 0;
    hf__redis_cluster_read(&r, reply, &nodes[0]);
    assert_true(slots_computed <= 8 * BUCKETS);
    for (unsigned b = 0; b < BUCKETS; b++)
        assert_ptr_equal(hf__redis_cluster_of(&r, b),
                         &nodes[hf__redis_bucket_slot(b) / (SLOTS / RANGES) % 2]);
    assert_true(nodes[0].wanted && nodes[1].wanted);
    freeReplyObject(reply);
    free(r.cluster);
}

/* ---- without memory -------------------------------------------------------------- */

static int left_rc;
bool __wrap_hf__redis_ask(struct redis *, const struct request_type *, void *, unsigned);
void __wrap_hf__ev_left(struct ticket *, int);

bool __wrap_hf__redis_ask(struct redis *redis, const struct request_type *type, void *about,
                          unsigned bucket)
{
    (void)redis;
    (void)type;
    (void)about;
    (void)bucket;
    return false;
}

void __wrap_hf__ev_left(struct ticket *t, int rc)
{
    (void)t;
    left_rc = rc;
}

static int64_t no_time(struct env *env)
{
    (void)env;
    return 1;
}

static void no_timer(struct env *env, struct timer *t, int64_t at)
{
    (void)env;
    (void)t;
    (void)at;
}

static void no_dice(struct env *env, void *bytes, size_t n)
{
    (void)env;
    memset(bytes, 0, n);
}

/* It is repeated after UP, not in a second: its owner could wait in another line by then,
 * and seem to wait in both (G10). */
static void leave_without_memory_ends_the_connection(void **state)
{
    static const struct scripted_ops ops = { .leave = hf__redis_send_leave };
    struct env env = { .now = no_time, .timer = no_timer, .random = no_dice };
    struct ticket t = { .name = "n", .name_len = 1 };
    struct node n = { .redis = &r,
                      .commands.link = { .env = &env, .state = LINK_UP, .where = "" } };
    struct list dirty;

    (void)state;
    r.one = &n;
    r.store.env = &env;
    list_init(&dirty);
    list_init(&n.commands.link.on_dirty);
    list_init(&t.on_life);
    n.commands.link.dirty = &dirty;
    assert_int_equal(hf__scripted_init(&r.scripted, &ops, &r.store), 0);
    seat_of(&t)->sent = true;
    hf__scripted_leave(&r.scripted, &t);
    assert_int_equal(left_rc, HF_EUNKNOWN);
    assert_true(n.commands.link.broken);
    hf__scripted_done(&r.scripted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(slots_are_those_of_a_cluster, setup),
        cmocka_unit_test_setup(buckets_never_change, setup),
        cmocka_unit_test_setup(every_bucket_is_used, setup),
        cmocka_unit_test_setup(keys_of_a_name_share_its_tag, setup),
        cmocka_unit_test_setup(a_name_is_found_in_its_key_only, setup),
        cmocka_unit_test_setup(namespaces_are_escaped, setup),
        cmocka_unit_test_setup(commands_are_arrays_of_bytes, setup),
        cmocka_unit_test_setup(long_arguments_make_it_grow, setup),
        cmocka_unit_test_setup(a_script_goes_by_name_or_as_text, setup),
        cmocka_unit_test_setup(records_come_back, setup),
        cmocka_unit_test_setup(the_longest_record_fits, setup),
        cmocka_unit_test_setup(hints_without_an_end_are_refused, setup),
        cmocka_unit_test_setup(errors_have_their_code, setup),
        cmocka_unit_test_setup(numbers_and_words_are_checked, setup),
        cmocka_unit_test_setup(damaged_lines_are_refused, setup),
        cmocka_unit_test_setup(a_long_line_is_read_once, setup),
        cmocka_unit_test_setup(a_map_is_read_once, setup),
        cmocka_unit_test_setup(leave_without_memory_ends_the_connection, setup),
    };

    return cmocka_run_group_tests_name("redis", tests, NULL, NULL);
}
