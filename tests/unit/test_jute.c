/* test_jute.c: ZooKeeper's wire form: what is written is read back, what is known from
 * the protocol has the bytes it must have, and nothing that a server may send is read
 * beyond its end. What stands in a ticket's node. */
#include "unit.h"

#include "driver/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

static void numbers_and_texts(void **state)
{
    struct jute_out out = { 0 };
    struct jute_in in;
    struct jute_text text;

    (void)state;
    hf__jute_put_int(&out, -2);
    hf__jute_put_long(&out, INT64_MIN + 5);
    hf__jute_put_bool(&out, true);
    hf__jute_put_text(&out, "abc", 3);
    hf__jute_put_text(&out, "", 0);
    assert_false(out.failed);
    assert_memory_equal(out.buf,
                        "\xff\xff\xff\xfe\x80\0\0\0\0\0\0\x05\x01\0\0\0\x03"
                        "abc\0\0\0\0",
                        out.len);
    hf__jute_open(&in, out.buf, out.len);
    assert_int_equal(hf__jute_int(&in), -2);
    assert_true(hf__jute_long(&in) == INT64_MIN + 5);
    assert_true(hf__jute_bool(&in));
    text = hf__jute_text(&in);
    assert_int_equal(text.len, 3);
    assert_memory_equal(text.at, "abc", 3);
    assert_int_equal(hf__jute_text(&in).len, 0);
    assert_false(in.bad);
    assert_ptr_equal(in.at, in.end);
    hf__jute_int(&in);
    assert_true(in.bad);
    free(out.buf);
}

static void lengths_that_lie(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        bool text, good;
    } cases[] = {
        { "\0\0\0\x04"
          "abc",
          7, true, false },
        { "\x7f\xff\xff\xff"
          "abc",
          7, true, false },
        { "\xff\xff\xff\xff", 4, true, true },  /* null */
        { "\xff\xff\xff\xfe", 4, true, false }, /* less than null */
        { "\x80\0\0\0", 4, true, false },
        { "\0\0\0", 3, true, false },
        { "\0\0\0\0", 4, true, true },
        { "\0\0\0\x02\0\0\0\0", 8, false, false }, /* two strings of four bytes at least */
        { "\0\0\0\x01\0\0\0\0", 8, false, true },
        { "\x7f\xff\xff\xff\0\0\0\0", 8, false, false },
        { "\xff\xff\xff\xff", 4, false, true },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        /* exactly as long as it says: a read behind it is seen by the sanitizer */
        unsigned char *copy = malloc(cases[i].len);
        struct jute_in in;

        assert_non_null(copy);
        memcpy(copy, cases[i].bytes, cases[i].len);
        hf__jute_open(&in, copy, cases[i].len);
        if (cases[i].text)
            hf__jute_text(&in);
        else
            hf__jute_count(&in, 4);
        assert_int_equal(!in.bad, cases[i].good);
        free(copy);
    }
}

static void frames(void **state)
{
    (void)state;
    assert_int_equal(hf__jute_length("\0\0\0", 3), 0);
    assert_int_equal(hf__jute_length("\0\0\0\x10", 4), 20);
    assert_int_equal(hf__jute_length("\0\0\0\0", 4), 4);
    assert_int_equal(hf__jute_length("\xff\xff\xff\xff", 4), -1);
    assert_int_equal(hf__jute_length("\x7f\xff\xff\xff", 4), -1);
    assert_int_equal(hf__jute_length("\x04\0\0\x01", 4), -1);
    assert_int_equal(hf__jute_length("\x04\0\0\0", 4), (64 << 20) + 4);
}

static void connecting(void **state)
{
    struct jute_session s = { .id = 0x1234, .timeout_ms = 4000 }, got;
    struct jute_out out = { 0 };

    (void)state;
    memset(s.password, 7, sizeof s.password);
    hf__jute_put_connect(&out, &s, 99);
    assert_int_equal(out.len, 4 + 4 + 8 + 4 + 8 + 4 + 16 + 1);
    assert_int_equal(hf__jute_length(out.buf, out.len), (int64_t)out.len);
    out.len = 0;
    hf__jute_put_int(&out, 0);
    hf__jute_put_int(&out, 6000);
    hf__jute_put_long(&out, 77);
    hf__jute_put_text(&out, s.password, 16);
    assert_true(hf__jute_connected(out.buf, out.len,
                                   &got)); /* without the last byte of newer ones */
    assert_int_equal(got.id, 77);
    assert_int_equal(got.timeout_ms, 6000);
    assert_memory_equal(got.password, s.password, 16);
    for (size_t n = 0; n < out.len; n++)
        assert_false(hf__jute_connected(out.buf, n, &got));
    out.len = 0;
    hf__jute_put_int(&out, 0);
    hf__jute_put_int(&out, 6000);
    hf__jute_put_long(&out, 77);
    hf__jute_put_text(&out, s.password, 15);
    assert_false(
        hf__jute_connected(out.buf, out.len, &got)); /* a password of another length */
    free(out.buf);
}

static void replies(void **state)
{
    struct jute_out out = { 0 };
    struct jute_reply reply;
    struct jute_stat stat;

    (void)state;
    hf__jute_put_int(&out, 5);
    hf__jute_put_long(&out, 1000);
    hf__jute_put_int(&out, JUTE_NO_NODE);
    for (size_t n = 0; n < out.len; n++)
        assert_false(hf__jute_reply(out.buf, n, &reply));
    assert_true(hf__jute_reply(out.buf, out.len, &reply));
    assert_int_equal(reply.xid, 5);
    assert_int_equal(reply.zxid, 1000);
    assert_int_equal(reply.err, JUTE_NO_NODE);
    assert_false(hf__jute_stat(&reply.body, &stat));
    out.len = 0;
    for (int64_t i = 1; i <= 4; i++)
        hf__jute_put_long(&out, i); /* czxid mzxid ctime mtime */
    for (int32_t i = 5; i <= 7; i++)
        hf__jute_put_int(&out, i); /* version cversion aversion */
    hf__jute_put_long(&out, 8);    /* owner */
    hf__jute_put_int(&out, 9);
    hf__jute_put_int(&out, 10);
    hf__jute_put_long(&out, 11);
    assert_int_equal(out.len, 68);
    hf__jute_open(&reply.body, out.buf, out.len);
    assert_true(hf__jute_stat(&reply.body, &stat));
    assert_int_equal(stat.czxid, 1);
    assert_int_equal(stat.mzxid, 2);
    assert_int_equal(stat.ctime, 3);
    assert_int_equal(stat.version, 5);
    assert_int_equal(stat.owner, 8);
    assert_int_equal(stat.children, 10);
    assert_int_equal(stat.pzxid, 11);
    free(out.buf);
}

static void put_result(struct jute_out *out, int32_t type, int32_t err)
{
    hf__jute_put_int(out, type);
    hf__jute_put_bool(out, false);
    hf__jute_put_int(out, err);
    if (type == -1)
        hf__jute_put_int(out, err);
}

static int32_t multi_of(const int32_t *errs, size_t n, int32_t type)
{
    struct jute_out out = { 0 };
    struct jute_in in;
    int32_t err;

    for (size_t i = 0; i < n; i++)
        put_result(&out, type, errs[i]);
    hf__jute_put_int(&out, -1);
    hf__jute_put_bool(&out, true);
    hf__jute_put_int(&out, -1);
    hf__jute_open(&in, out.buf, out.len);
    err = hf__jute_multi_error(&in);
    free(out.buf);
    return err;
}

static void multis(void **state)
{
    (void)state;
    assert_int_equal(multi_of((int32_t[]){ 0, 0 }, 2, JUTE_DELETE), 0);
    assert_int_equal(multi_of((int32_t[]){ 0, JUTE_NO_NODE }, 2, -1), JUTE_NO_NODE);
    assert_int_equal(multi_of((int32_t[]){ JUTE_NODE_EXISTS, JUTE_RUNTIME }, 2, -1),
                     JUTE_NODE_EXISTS);
    assert_int_equal(
        multi_of((int32_t[]){ JUTE_RUNTIME, JUTE_BAD_VERSION, JUTE_RUNTIME }, 3, -1),
        JUTE_BAD_VERSION);
}

static void many_bytes(void **state)
{
    struct jute_out out = { 0 };
    char text[5000];
    size_t begun;

    (void)state;
    memset(text, 'x', sizeof text);
    begun = hf__jute_begin(&out);
    for (int i = 0; i < 100; i++)
        hf__jute_put_text(&out, text, sizeof text);
    hf__jute_end(&out, begun);
    assert_false(out.failed);
    assert_int_equal(out.len, 4 + 100 * (4 + sizeof text));
    assert_int_equal(hf__jute_length(out.buf, out.len), (int64_t)out.len);
    free(out.buf);
}

static int64_t wall(struct env *env)
{
    (void)env;
    return 0;
}

/* What an owner holds stands in its tickets, for the deadlock walk: of every name. */
static void names_in_records(void **state)
{
    static const char holds[] = "a\nb\0%\0\x1f\0c";
    static struct ticket_record rec;
    char data[RECORD_MAX];
    struct env env = { .wall = wall };
    struct zk z = { .store.env = &env };
    struct ticket t = { .note = "a note", .hints = holds, .hints_len = sizeof holds };

    (void)state;
    hf__record_read(&rec, data, hf__zk_record(data, &z, &t, 0, false));
    assert_int_equal(rec.hints_len, sizeof holds);
    assert_memory_equal(rec.hints, holds, sizeof holds);
    assert_string_equal(rec.note, t.note);
}

/* Older and newer clients read each other's nodes. */
static void a_record_byte_by_byte(void **state)
{
    static const char text[] =
        "holdfast 1\nbroken\nowner 00000000000000ab 7\nhost h\npid 0\n"
        "since 0\nttl 4000\ntoken 01000000000000000000000000000000\n"
        "fence 9\nholds a%0Ab\nnote a note";
    char data[RECORD_MAX];
    struct env env = { .wall = wall };
    struct zk z = { .store.env = &env, .session.timeout_ms = 4000, .alone = true };
    struct ticket t = { .note = "a note",
                        .owner = { 0xab, 7 },
                        .token = { 1 },
                        .hints = "a\nb",
                        .hints_len = 4 };
    size_t n;

    (void)state;
    strcpy(z.open.host, "h");
    n = hf__zk_record(data, &z, &t, 9, true);
    assert_int_equal(n, sizeof text - 1);
    assert_memory_equal(data, text, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_and_texts),
        cmocka_unit_test(lengths_that_lie),
        cmocka_unit_test(frames),
        cmocka_unit_test(connecting),
        cmocka_unit_test(replies),
        cmocka_unit_test(multis),
        cmocka_unit_test(many_bytes),
        cmocka_unit_test(names_in_records),
        cmocka_unit_test(a_record_byte_by_byte),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
