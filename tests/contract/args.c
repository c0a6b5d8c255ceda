/* args.c: bad input gets HF_EINVAL with a text, and changes nothing (G11): no ticket, no
 * descriptor, and `ret` as it was. Sizes and unknown bytes are checked, so that a
 * program made for a newer header is told rather than misunderstood.
 */
#include "rig.h"

#include <stdio.h>
#include <string.h>

static hf_lease *const untouched = (hf_lease *)(void *)&untouched;

static void refused(hf_client *c, int64_t wait_ms, const hf_request *req, int want)
{
    hf_lease *ret = untouched;

    CHECK_RC(rig.face->acquire(c, nm("n"), wait_ms, req, &ret, E()), want);
    CHECK(ret == untouched);
    CHECK(last_error()->code == want && last_error()->text[0]);
    CHECK(line_is(c, nm("n"), 0, 0));
}

static void bad_requests(void)
{
    static char note[1026];
    hf_client *c = opened();
    const hf_request bad[] = {
        { .size = 0 },
        { .size = 4 },
        { .size = sizeof(hf_request), .mode = 4 },
        { .size = sizeof(hf_request), .mode = UINT32_MAX },
        { .size = sizeof(hf_request), .flags = 1u << 31 },
        { .size = sizeof(hf_request), .flags = 1u << 3 },
        { .size = sizeof(hf_request), .reserved = 1 },
        { .size = sizeof(hf_request), .permits = 1 },
        { .size = sizeof(hf_request), .capacity = 1 },
        { .size = sizeof(hf_request), .mode = HF_PERMITS },
        { .size = sizeof(hf_request), .mode = HF_PERMITS, .permits = 1 },
        { .size = sizeof(hf_request), .mode = HF_PERMITS, .capacity = 1 },
        { .size = sizeof(hf_request), .mode = HF_PERMITS, .permits = 4, .capacity = 3 },
        { .size = sizeof(hf_request),
          .mode = HF_PERMITS,
          .permits = 1,
          .capacity = (1u << 31) + 1 },
        { .size = sizeof(hf_request),
          .mode = HF_PERMITS,
          .permits = UINT32_MAX,
          .capacity = UINT32_MAX },
        { .size = sizeof(hf_request), .ttl_ms = -1 },
        { .size = sizeof(hf_request), .ttl_ms = INT64_MIN },
        { .size = sizeof(hf_request), .max_hold_ms = -1 },
        { .size = sizeof(hf_request), .note = note },
        { .size = sizeof(hf_request), .note = "\xc3(" },
    };

    memset(note, 'x', 1025);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        fprintf(stderr, "bad request %zu\n", i);
        refused(c, 0, &bad[i], HF_EINVAL);
        refused(c, HF_FOREVER, &bad[i], HF_EINVAL);
    }
    refused(c, 0, HF_REQUEST(.ttl_ms = 1), HF_ENOTSUP); /* shorter than any store can do */
    closed(c);
}

static void unknown_bytes(void)
{
    struct {
        hf_request req;
        unsigned char more[16];
    } newer = { .req = { .size = sizeof(newer) } };
    struct {
        hf_options options;
        unsigned char more[8];
    } newer_options = { .options = { .size = sizeof(newer_options) } };
    hf_client *c = opened(), *none = NULL;

    CHECK_RC(tried(c, nm("n"), &newer.req), 0); /* nothing unknown is asked for */
    newer.more[15] = 1;
    refused(c, 0, &newer.req, HF_EINVAL);
    newer.more[15] = 0;
    newer.more[0] = 1;
    refused(c, 0, &newer.req, HF_EINVAL);
    CHECK_RC(hf_open(rig.place->url, &newer_options.options, &none, E()), 0);
    hf_close(none);
    none = NULL;
    newer_options.more[7] = 1;
    CHECK_RC(hf_open(rig.place->url, &newer_options.options, &none, E()), HF_EINVAL);
    CHECK(!none);
    closed(c);
}

static void not_opened(const char *url, const hf_options *options)
{
    hf_client *c = NULL;
    int fds = open_fds();

    fprintf(stderr, "opening %s\n", url ? url : "(null)");
    CHECK_RC(hf_open(url, options, &c, E()), HF_EINVAL);
    CHECK(!c && last_error()->code == HF_EINVAL && last_error()->text[0]);
    CHECK_NUM(open_fds(), ==, fds);
}

static void bad_opens(void)
{
    static const char *const urls[] = { NULL,
                                        "",
                                        "nonsense",
                                        ":",
                                        "://",
                                        "nosuch://host/",
                                        "local:relative/path",
                                        "local://host/dir",
                                        "%zz:",
                                        " local:" };
    const char *url = rig.place->url;
    char next = strchr(url, '?') ? '&' : '?', more[600];

    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++)
        not_opened(urls[i], NULL);
    snprintf(more, sizeof(more), "%s%cnosuch=1", url, next);
    not_opened(more, NULL);
    snprintf(more, sizeof(more), "%s%cttl=abc", url, next);
    not_opened(more, NULL);
    snprintf(more, sizeof(more), "%s%cttl=10s&ttl=20s", url, next);
    not_opened(more, NULL);
    snprintf(more, sizeof(more), "%s%cconnect_timeout=-1", url, next);
    not_opened(more, NULL);
    not_opened(url, &(hf_options){ .size = 0 });
    not_opened(url, &(hf_options){ .size = 4 });
    not_opened(url, HF_OPTIONS(.drive = 3));
    not_opened(url, HF_OPTIONS(.ttl_ms = -1));
    not_opened(url, HF_OPTIONS(.spin_us = HF_SPIN_NEVER - 1));
    not_opened(url, HF_OPTIONS(.spin_us = 10001));
    not_opened(url, HF_OPTIONS(.owner = "nonsense"));
    CHECK_RC(hf_open(url, NULL, NULL, E()), HF_EINVAL);
}

static int no_body(hf_lease *l, void *user)
{
    (void)l;
    (void)user;
    check_failed(__FILE__, __LINE__, "the body must not run");
}

static void no_callback(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    (void)op;
    (void)rc;
    (void)lease;
    (void)err;
    (void)user;
    check_failed(__FILE__, __LINE__, "a callback of what was not started");
}

static void null_handles(void)
{
    const char *name = nm("n");
    hf_client *c = opened();
    hf_lease *l = taken(c, name, NULL), *none = NULL;
    hf_list *list = NULL;
    hf_op *op = NULL;

    hf_close(NULL);
    hf_op_free(NULL);
    hf_list_free(NULL);
    hf_cancel_free(NULL);
    CHECK_RC(hf_release(NULL, NULL), 0);
    CHECK_RC(hf_acquire(NULL, name, 0, NULL, &none, E()), HF_EINVAL);
    CHECK_RC(hf_acquire(c, nm("m"), 0, NULL, NULL, E()), HF_EINVAL);
    CHECK_RC(hf_acquire(c, nm("m"), 0, HF_REQUEST(.mode = 9), &none, NULL), HF_EINVAL);
    CHECK_RC(hf_acquire_start(c, nm("m"), 0, NULL, NULL, NULL, &op, E()), HF_EINVAL);
    CHECK_RC(rig.face->acquire_all(c, NULL, 1, 0, NULL, &none, E()), HF_EINVAL);
    CHECK_RC(rig.face->acquire_all(c, &name, 0, 0, NULL, &none, E()), HF_EINVAL);
    CHECK_RC(hf_with(c, nm("m"), 0, NULL, NULL, NULL, NULL, E()), HF_EINVAL);
    CHECK_RC(hf_with(c, NULL, 0, NULL, no_body, NULL, NULL, E()), HF_EINVAL);
    CHECK_RC(hf_look(NULL, name, &list, E()), HF_EINVAL);
    CHECK_RC(hf_look(c, name, NULL, E()), HF_EINVAL);
    CHECK_RC(hf_ls(c, NULL, 0, NULL, E()), HF_EINVAL);
    CHECK_RC(hf_evict(c, name, NULL, 0, E()), HF_EINVAL);
    CHECK_RC(hf_evict(c, name, "not a ticket", 0, E()), HF_EINVAL);
    CHECK_RC(hf_lease_note(NULL, "x", E()), HF_EINVAL);
    CHECK_RC(hf_lease_downgrade(NULL, E()), HF_EINVAL);
    CHECK_RC(hf_lease_renew(NULL, 0, E()), HF_EINVAL);
    CHECK_RC(hf_lease_renew(l, -1, E()), HF_EINVAL);
    CHECK_RC(hf_watch_start(c, name, NULL, NULL, &op, E()), HF_EINVAL);
    CHECK_RC(hf_look_start(c, name, NULL, NULL, &op, E()), HF_EINVAL);
    CHECK_RC(hf_ls_start(c, NULL, 0, NULL, NULL, &op, E()), HF_EINVAL);
    CHECK_RC(hf_name_state_start(c, name, NULL, NULL, &op, E()), HF_EINVAL);
    CHECK_RC(hf_evict_start(c, name, hf_lease_ticket(l), 0, NULL, NULL, &op, E()),
             HF_EINVAL);
    CHECK_RC(hf_renew_start(l, 0, NULL, NULL, &op, E()), HF_EINVAL);
    CHECK_RC(hf_renew_start(NULL, 0, no_callback, NULL, &op, E()), HF_EINVAL);
    CHECK_RC(hf_note_start(l, "x", no_callback, NULL, NULL, E()), HF_EINVAL);
    CHECK_RC(hf_note_start(NULL, "x", no_callback, NULL, &op, E()), HF_EINVAL);
    CHECK_RC(hf_downgrade_start(NULL, no_callback, NULL, &op, E()), HF_EINVAL);
    CHECK_RC(hf_release_after_start(NULL, 1, no_callback, NULL, &op, E()), HF_EINVAL);
    CHECK_RC(hf_release_after_start(l, 1, no_callback, NULL, NULL, E()), HF_EINVAL);
    CHECK_RC(hf_release_after_start(l, 0, no_callback, NULL, &op, E()), HF_EINVAL);
    CHECK_RC(hf_evict(c, name, hf_lease_ticket(l), 6, E()), HF_EINVAL);
    CHECK(strstr(last_error()->text, "0x6"));
    CHECK(!none && !list && !op);
    CHECK(line_is(c, nm("m"), 0, 0) && line_is(c, name, 1, 0));
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    closed(c);
}

static void errors_have_names(void)
{
#define ERROR_CHECK(symbol, number, text, retry)                                           \
    CHECK(symbol == (number));                                                             \
    CHECK_STR(hf_errname(symbol), #symbol);                                                \
    CHECK_STR(hf_strerror(symbol), text);
    HF_ERRORS(ERROR_CHECK)
#undef ERROR_CHECK
    CHECK(hf_errname(-9999) && hf_strerror(-9999) && hf_errname(0) && hf_strerror(0));
    CHECK_STR(hf_version(), HF_VERSION_TEXT);
}

static void capabilities(void)
{
    hf_client *c = opened();

    CHECK_RC(tried(c, nm("n"), NULL), 0); /* a server's are known once it has answered */
    CHECK_NUM(hf_client_caps(c), ==, rig.setup->caps);
    CHECK(hf_client_url(c) && hf_client_url(c)[0]);
    CHECK_RC(tried(c, nm("n"), HF_REQUEST(.flags = HF_NEED_DEADLINE)),
             rig.setup->caps & HF_CAP_DEADLINE ? 0 : HF_ENOTSUP);
    closed(c);
}

const struct test_case args_cases[] = {
    { "bad-requests", bad_requests, ON_ALL, 0, 0 },
    { "unknown-bytes", unknown_bytes, ON_ALL, 0, 0 },
    { "bad-opens", bad_opens, ON_BLOCKING, 0, 0 },
    { "null-handles", null_handles, ON_ALL, 0, 0 },
    { "errors-have-names", errors_have_names, ON_BLOCKING, 0, 0 },
    { "capabilities", capabilities, ON_ALL, 0, CASE_TOPOLOGY },
    { NULL, NULL, 0, 0, 0 },
};
