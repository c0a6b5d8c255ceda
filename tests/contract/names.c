/* names.c: every name that is allowed is a lock of its own, and every other is refused
 * with an error that names it, escaped, before anything happens (G11).
 */
#include "rig.h"

#include <stdlib.h>
#include <string.h>

static const char *const good[] = {
    "a",
    "A",
    "b",
    "/",
    "//",
    "a/b",
    "a/",
    "/a",
    "a/../b",
    ".",
    "..",
    "...",
    "./a",
    " ",
    "  ",
    " a",
    "a ",
    "ä",
    "a\xcc\x88",
    "€",
    "\xf0\x9f\x94\x92",
    "'",
    "\"",
    "`",
    "\\",
    "\\0",
    "{}",
    "{a}",
    "{a}b",
    "a{b}",
    "\r\n",
    "\n",
    "\t",
    "\x01",
    "\x7f",
    "%s",
    "%n%n%n",
    "%00",
    "'; DROP TABLE lines; --",
    "\" OR \"\"=\"",
    "*",
    "?",
    "[a]",
    "a:b",
    "a,b",
    "a=b",
    "a&b",
    "a#b",
    "a?b",
    "a;b",
    "$(id)",
    "~",
    "-",
    "--",
    "-n",
    "\xef\xbb\xbf",
    "0",
    "00",
    "null",
    "\xf4\x8f\xbf\xbf",
    "line",
    "queue",
    "namespace",
    "a\x1f-b",
    "holdfast",
};

enum { GOOD = sizeof(good) / sizeof(good[0]), LONG = 5, ALL = GOOD + LONG };

/* 511 bytes, and four of 512 that differ in one byte or share a long beginning. */
static void make_long(char (*names)[516])
{
    for (int i = 0; i < LONG; i++)
        memset(names[i], 'n', 512);
    names[0][511] = '\0';
    names[2][511] = 'm';
    names[3][0] = 'm';
    memcpy(names[4] + 509, "€", 3);
    for (int i = 1; i < LONG; i++)
        names[i][512] = '\0';
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* What a list has; a store without a line has none to give. */
static void check_listed(hf_client *c, const char *const *names, size_t n)
{
    hf_list *list = NULL;

    if (!(hf_client_caps(c) & HF_CAP_LINE)) {
        CHECK_RC(hf_ls(c, NULL, 0, &list, E()), HF_ENOTSUP);
        return;
    }
    CHECK_RC(hf_ls(c, NULL, 0, &list, E()), 0);
    CHECK_NUM(hf_list_count(list), ==, n);
    for (size_t i = 0; i < n; i++)
        CHECK_STR(hf_line_name(hf_list_at(list, i)), names[i]);
    hf_list_free(list);
}

/* All at once, so that any two that touched each other would show. */
static void good_names(void)
{
    static char longs[LONG][516];
    const char *names[ALL];
    hf_client *a = opened(), *b = opened();
    hf_lease *l[ALL];
    hf_list *list = NULL;

    make_long(longs);
    for (int i = 0; i < ALL; i++) {
        names[i] = i < GOOD ? good[i] : longs[i - GOOD];
        l[i] = taken(a, names[i], NULL);
        CHECK_STR(hf_lease_name(l[i]), names[i]);
    }
    for (int i = 0; i < ALL; i++) {
        CHECK_RC(tried(b, names[i], NULL), HF_EBUSY);
        CHECK_RC(hf_look(b, names[i], &list, E()), 0);
        CHECK_NUM(hf_list_count(list), ==, 1);
        CHECK_STR(hf_line_name(hf_list_at(list, 0)), names[i]);
        hf_list_free(list);
    }
    qsort(names, ALL, sizeof(names[0]), by_bytes);
    check_listed(b, names, ALL);
    for (int i = 0; i < ALL; i++)
        given(l[i]);
    for (int i = 0; i < ALL; i++)
        CHECK(line_is(b, names[i], 0, 0));
    check_listed(b, NULL, 0);
    closed(a);
    closed(b);
}

static bool printable_line(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || (unsigned char)*s >= 0x7f)
            return false;
    return true;
}

static void bad_names(void)
{
    static char n513[514], n5000[5001];
    const char *const bad[] = { NULL,
                                "",
                                n513,
                                n5000,
                                "\x80",
                                "\xff",
                                "a\xff-b",
                                "\xc0\xaf",
                                "\xe2\x82",
                                "\xed\xa0\x80",
                                "\xf4\x90\x80\x80",
                                "\xf8\x88",
                                "a\n\xfe" };
    hf_client *c = opened();
    hf_list *list = NULL;

    memset(n513, 'n', 513);
    memset(n5000, 'n', 5000);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const char *pair[2] = { nm("ok"), bad[i] };
        hf_lease *none = NULL;

        CHECK_RC(tried(c, bad[i], NULL), HF_EINVAL);
        CHECK(last_error()->code == HF_EINVAL && last_error()->text[0]);
        CHECK(printable_line(last_error()->text));
        CHECK_RC(rig.face->acquire(c, bad[i], HF_FOREVER, NULL, &none, E()), HF_EINVAL);
        CHECK_RC(rig.face->acquire_all(c, pair, 2, 0, NULL, &none, E()), HF_EINVAL);
        CHECK_RC(hf_look(c, bad[i], &list, E()), HF_EINVAL);
        CHECK_RC(hf_evict(c, bad[i], "00000000000000000000000000000000", 0, E()),
                 HF_EINVAL);
        CHECK(!none && !list);
    }
    check_listed(c, NULL, 0);
    closed(c);
}

/* A name ends at its NUL: the byte after it is not part of it. */
static void byte_after_the_name(void)
{
    static const char x[] = "end\0x", y[] = "end\0y";
    hf_client *c = opened();
    hf_lease *l = taken(c, x, NULL);

    CHECK_STR(hf_lease_name(l), "end");
    CHECK_RC(tried(c, y, HF_REQUEST(.owner = 2)), HF_EBUSY);
    CHECK(line_is(c, "end", 1, 0));
    given(l);
    closed(c);
}

const struct test_case name_cases[] = {
    { "good-names", good_names, ON_ALL, 0, CASE_OWN_STORE | CASE_TOPOLOGY },
    { "bad-names", bad_names, ON_ALL, 0, CASE_OWN_STORE },
    { "byte-after-the-name", byte_after_the_name, ON_ALL, 0, CASE_OWN_STORE },
    { NULL, NULL, 0, 0, 0 },
};
