/* What drivers share: names in order, as a list of lines collects them; a renewal that must
 * be sent again; passwords in files; tickets as text. */
#include "unit.h"

#include "kit/listing.h"
#include "kit/login.h"
#include "kit/scripted.h"
#include "kit/ticket_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROUNDS = 400, NAMES = 300 };

static unsigned seed;

static unsigned below(unsigned n)
{
    return (unsigned)rand_r(&seed) % n;
}

/* Beside a table that says which names are there. Some are added twice, some are taken, and
 * what is taken is always the least. */
static void names_are_in_order_and_once(void **state)
{
    (void)state;
    for (unsigned round = 1; round < 50; round++) {
        struct name_set s = { 0 };
        bool there[NAMES] = { false };
        size_t count = 0;

        seed = round;
        for (int i = 0; i < ROUNDS; i++) {
            unsigned few = below(4) == 0 ? below(100) : below(3);
            char name[16], *least;
            unsigned expected = 0;

            for (unsigned k = 0; k < few; k++) {
                unsigned n = below(NAMES);

                snprintf(name, sizeof name, "%03u", n);
                assert_true(hf__names_add(&s, name, 3));
                count += !there[n];
                there[n] = true;
            }
            hf__names_settle(&s);
            assert_int_equal(s.n - s.first, count);
            if (below(3) == 0)
                continue;
            least = hf__names_take(&s);
            while (expected < NAMES && !there[expected])
                expected++;
            assert_int_equal(least != NULL, count > 0);
            if (!least)
                continue;
            assert_int_equal(strtoul(least, NULL, 10), expected);
            there[expected] = false;
            count--;
            free(least);
        }
        hf__names_done(&s);
    }
}

static void only_the_least_are_kept(void **state)
{
    struct name_set s = { .most = 10 };
    char name[16];

    (void)state;
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "%04d", i * 7919 % 5000);
        assert_true(hf__names_add(&s, name, 4));
        assert_true(s.n <= 1021);
        if (i == 8)
            hf__names_settle(&s);
        assert_true(i > 8 || !s.cut);
    }
    hf__names_settle(&s);
    assert_true(s.cut);
    assert_int_equal(s.n, 10);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(strtoul(s.at[i], NULL, 10), i);
    hf__names_done(&s);
    assert_null(hf__names_take(&s));
}

/* ---- renewals --------------------------------------------------------------------- */

static struct scripted_renewal *sent;

static void draw(struct env *env, void *to, size_t n)
{
    (void)env;
    memset(to, 1, n);
}

static void send_renewal(struct scripted *s, struct scripted_renewal *k)
{
    (void)s;
    sent = k;
    assert_int_equal(hf__scripted_trim(s, k), 1);
}

/* It may come behind another one, by hand, with a longer ttl: the store must not give it
 * the shorter one that was asked for first. */
static void a_renewal_sent_again_asks_for_the_present_ttl(void **state)
{
    static const struct scripted_ops ops = { .renew = send_renewal };
    struct env env = { .random = draw };
    struct store store = { .env = &env };
    struct life life = { .kind = LIFE_OWN, .ttl_ms = 100 }, *own = &life;
    struct ticket t = { .token = { 7 }, .own = own };
    struct scripted s = { 0 };

    (void)state;
    assert_int_equal(hf__scripted_init(&s, &ops, &store), 0);
    t.life = own;
    list_init(&own->tickets);
    list_push(&own->tickets, &t.on_life);
    hf__seat_in(&s.seats, &t);
    hf__scripted_renew(&s, &own, 1);
    hf__scripted_flush(&s);
    assert_int_equal(sent->holds[0].ttl_ms, 100);
    own->ttl_ms = 1000;
    assert_int_equal(hf__scripted_trim(&s, sent), 1);
    assert_int_equal(sent->holds[0].ttl_ms, 1000);
    hf__scripted_ask(&s, &t); /* asks, and goes on asking */
    hf__scripted_flush(&s);
    assert_int_equal(hf__scripted_trim(&s, sent), 1);
    assert_int_equal(sent->holds[0].ttl_ms, 0);
    hf__scripted_done(&s);
}

/* ---- a password in a file -------------------------------------------------------- */

static const char *written(const char *path, const void *bytes, size_t n, mode_t mode)
{
    FILE *f;

    unlink(path);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    assert_int_equal(chmod(path, mode), 0);
    return path;
}

static int read_from(const char *path, char text[PASSWORD_MAX + 1])
{
    struct login l = { 0 };
    hf_error err;
    int rc = hf__login_init(&l, "u", NULL, path, "here", &err);

    if (rc == 0)
        rc = hf__login_password(&l, text, &err);
    if (rc < 0)
        assert_null(strstr(err.text, "secret"));
    hf__login_done(&l);
    return rc;
}

static void password_file_is_read(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        mode_t mode;
        const char *password; /* NULL: refused */
    } files[] = {
        { "secret", 6, 0600, "secret" },
        { "secret\n", 7, 0400, "secret" },
        { "secret\r\n", 8, 0440, "secret" },
        { " sec ret \n\n", 11, 0640, " sec ret \n" },
        { "secret", 6, 0644, NULL },
        { "secret", 6, 0604, NULL },
        { "secret", 6, 0620, NULL },
        { "secret", 6, 0602, NULL },
        { "\n", 1, 0600, NULL },
        { "", 0, 0600, NULL },
        { "secret\0secret", 13, 0600, NULL },
    };
    char dir[] = "/tmp/holdfast-login-XXXXXX", path[64], other[64], text[PASSWORD_MAX + 1];
    static char large[PASSWORD_MAX + 1];

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/f", dir);
    snprintf(other, sizeof other, "%s/g", dir);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        int rc = read_from(written(path, files[i].bytes, files[i].n, files[i].mode), text);

        assert_int_equal(rc, files[i].password ? 0 : HF_EAUTH);
        if (files[i].password)
            assert_string_equal(text, files[i].password);
    }
    memset(large, 'x', sizeof large);
    assert_int_equal(read_from(written(path, large, sizeof large - 1, 0600), text), 0);
    assert_int_equal(strlen(text), PASSWORD_MAX);
    assert_int_equal(read_from(written(path, large, sizeof large, 0600), text), HF_EAUTH);
    assert_int_equal(symlink("f", other), 0);
    written(path, "secret", 6, 0600);
    assert_int_equal(read_from(other, text), 0);
    unlink(path);
    assert_int_equal(read_from(path, text), HF_EAUTH);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(read_from(path, text), HF_EAUTH); /* and does not wait */
    assert_int_equal(read_from("f", text), HF_EINVAL);
    if (geteuid() == 0) {
        written(path, "secret", 6, 0600);
        assert_int_equal(chown(path, 12345, 12345), 0);
        assert_int_equal(read_from(path, text), HF_EAUTH);
    }
    unlink(path);
    unlink(other);
    rmdir(dir);
}

static void password_or_file(void **state)
{
    char text[PASSWORD_MAX + 1];
    struct login l = { 0 };
    hf_error err;

    (void)state;
    assert_int_equal(hf__login_init(&l, "", NULL, NULL, "", &err), 0);
    assert_false(login_wanted(&l) || l.user);
    assert_int_equal(hf__login_init(&l, NULL, "p", "/f", "", &err), HF_EINVAL);
    assert_int_equal(hf__login_init(&l, "u", "p", NULL, "", &err), 0);
    assert_int_equal(hf__login_password(&l, text, &err), 0);
    assert_string_equal(text, "p");
    hf__login_done(&l);
}

/* ---- tickets as text ------------------------------------------------------------- */

static const struct ticket example = { .kind = LINE_PERMITS,
                                       .weight = 2,
                                       .capacity = 3,
                                       .token = { 1, 2, 3, 0xff },
                                       .owner = { 0xabcdef, 17 },
                                       .hints = "a\nb\0c%\0",
                                       .hints_len = 7,
                                       .note = "first\nbroken\nsecond" };
static const struct ticket_facts example_facts = { .host = "host",
                                                   .pid = 12,
                                                   .since_ms = 1000,
                                                   .ttl_ms = 30000,
                                                   .form = true,
                                                   .token = true };

static void a_record_says_what_was_written(void **state)
{
    char text[RECORD_MAX];
    struct ticket_record rec;

    (void)state;
    hf__record_read(&rec, text, hf__record_write(text, &example, &example_facts));
    assert_true(rec.ours && !rec.broken && rec.kept_ms == 0);
    assert_memory_equal(rec.token, example.token, HF_TOKEN);
    assert_true(rec.kind == LINE_PERMITS && rec.weight == 2 && rec.capacity == 3);
    assert_true(rec.owner.process == 0xabcdef && rec.owner.number == 17);
    assert_true(rec.pid == 12 && rec.since_ms == 1000 && rec.ttl_ms == 30000);
    assert_string_equal(rec.host, "host");
    assert_string_equal(rec.note, example.note);
    assert_int_equal(rec.hints_len, example.hints_len);
    assert_memory_equal(rec.hints, example.hints, example.hints_len);
}

static void a_record_is_marked_once(void **state)
{
    char text[RECORD_MAX], marked[RECORD_MAX], again[RECORD_MAX];
    struct ticket_record rec;
    size_t n = hf__record_write(text, &example, &example_facts), m, k;

    (void)state;
    m = hf__record_set(marked, text, n, "broken\n");
    k = hf__record_set(again, marked, m, "broken\n");
    assert_true(m == n + strlen("broken\n") && k == m && memcmp(marked, again, k) == 0);
    m = hf__record_set(marked, again, k, "kept 5000\n");
    m = hf__record_set(text, marked, m, "kept 6000\n");
    hf__record_read(&rec, text, m);
    assert_true(rec.broken && rec.kept_ms == 6000);
    assert_string_equal(rec.note, example.note); /* which has such lines, too */
    assert_int_equal(hf__record_set(text, "x", 1, "broken\n"), 0);
}

/* What nobody of ours has written is exclusive. */
static void an_unreadable_record_is_exclusive(void **state)
{
    static const char *const texts[] = { "",
                                         "holdfast 2\nlock 1\n",
                                         "holdfast 1\nlock 0\n",
                                         "holdfast 1\nlock 12\n",
                                         "holdfast 1\npermits 4 3\n",
                                         "holdfast 1\npermits 0 3\n",
                                         "holdfast 1\npermits -1 3\n",
                                         "holdfast 1\npermits 1 4294967296\n",
                                         "holdfast 1\nnote lock 1\n" };
    struct ticket_record rec;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        hf__record_read(&rec, texts[i], strlen(texts[i]));
        assert_true(rec.kind == LINE_LOCK && rec.weight == HF_FULL &&
                    rec.capacity == HF_FULL);
    }
    hf__record_read(&rec, "holdfast 1\nlock 1\n", 18);
    assert_int_equal(rec.weight, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_in_order_and_once),
        cmocka_unit_test(only_the_least_are_kept),
        cmocka_unit_test(a_renewal_sent_again_asks_for_the_present_ttl),
        cmocka_unit_test(password_file_is_read),
        cmocka_unit_test(password_or_file),
        cmocka_unit_test(a_record_says_what_was_written),
        cmocka_unit_test(a_record_is_marked_once),
        cmocka_unit_test(an_unreadable_record_is_exclusive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
