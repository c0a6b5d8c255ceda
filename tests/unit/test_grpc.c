/* test_grpc.c: gRPC without HTTP/2: messages in pieces, headers, and how a call has ended;
 * above all if a server sends what it must not. */
#include "proto/grpc.h"
#include "unit.h"

#include <holdfast/holdfast.h>
#include <stdlib.h>

static struct grpc_in in;

static int begin(void **state)
{
    (void)state;
    memset(&in, 0, sizeof in);
    return 0;
}

static int end(void **state)
{
    (void)state;
    hf__grpc_done(&in);
    return 0;
}

static void header(const char *name, const char *value)
{
    hf__grpc_header(&in, name, strlen(name), value, strlen(value));
}

static void headers(void)
{
    hf__grpc_block(&in);
    header(":status", "200");
    header("content-type", "application/grpc");
}

static void trailers(const char *status, const char *text)
{
    hf__grpc_block(&in);
    header("grpc-status", status);
    if (text)
        header("grpc-message", text);
}

static void data(const void *bytes, size_t n)
{
    assert_int_equal(hf__grpc_data(&in, bytes, n), 0);
}

static void message_is(const char *text)
{
    struct grpc_message m;

    assert_true(hf__grpc_next(&in, &m));
    assert_int_equal(m.len, strlen(text));
    assert_memory_equal(m.at, text, m.len);
}

static void no_message(void)
{
    struct grpc_message m;

    assert_false(hf__grpc_next(&in, &m));
}

#define HELLO "\0\0\0\0\5hello"
#define EMPTY "\0\0\0\0\0"

static void a_call_goes_well(void **state)
{
    (void)state;
    headers();
    data(HELLO, 10);
    trailers("0", NULL);
    hf__grpc_end(&in, false, 0);
    assert_false(in.bad);
    assert_int_equal(in.status, GRPC_OK);
    message_is("hello");
    no_message();
}

static void messages_come_in_any_pieces(void **state)
{
    static const char three[] = HELLO EMPTY "\0\0\0\0\2ab";
    size_t n = sizeof three - 1;

    for (size_t first = 0; first <= n; first++)
        for (size_t second = first; second <= n; second++) {
            begin(state);
            headers();
            data(three, first);
            data(three + first, second - first);
            data(three + second, n - second);
            message_is("hello");
            message_is("");
            message_is("ab");
            no_message();
            end(state);
        }
    begin(state);
    for (size_t i = 0, taken = 0; i < n; i++) { /* and are taken as they come */
        struct grpc_message m;

        data(three + i, 1);
        if (hf__grpc_next(&in, &m))
            taken++;
        assert_int_equal(taken, i < 9 ? 0 : i < 14 ? 1 : i < 21 ? 2 : 3);
    }
}

static void a_large_message_is_put_together(void **state)
{
    size_t len = 3 << 20;
    char *bytes = malloc(GRPC_PREFIX + len);
    struct grpc_message m;

    (void)state;
    assert_non_null(bytes);
    hf__grpc_prefix((unsigned char *)bytes, len);
    for (size_t i = 0; i < len; i++)
        bytes[GRPC_PREFIX + i] = (char)(i * 7);
    for (size_t at = 0; at < GRPC_PREFIX + len; at += 16384)
        data(bytes + at, GRPC_PREFIX + len - at < 16384 ? GRPC_PREFIX + len - at : 16384);
    assert_true(hf__grpc_next(&in, &m));
    assert_int_equal(m.len, len);
    assert_memory_equal(m.at, bytes + GRPC_PREFIX, len);
    hf__grpc_rest(&in);
    assert_true(in.room <= 4096); /* of a stream that may stay open for months */
    data("\0\0\0\0\2hi\0\0", 9);
    message_is("hi");
    hf__grpc_rest(&in); /* and keeps half a message */
    data("\0\0\1x", 4);
    message_is("x");
    free(bytes);
}

static void refused(int status, const char *text)
{
    assert_true(in.bad);
    assert_int_equal(in.status, status);
    assert_string_equal(in.text, text);
    no_message();
}

static void what_is_compressed_is_refused(void **state)
{
    headers();
    data("\1\0\0\0\1x", 6);
    refused(GRPC_INTERNAL, "a compressed message");
    end(state);
    begin(state);
    headers();
    data(HELLO "\377\0\0\0\0", 15); /* the second of them */
    message_is("hello");
    no_message();
    refused(GRPC_INTERNAL, "a compressed message");
    trailers("0", "fine"); /* does not make it good */
    hf__grpc_end(&in, false, 0);
    refused(GRPC_INTERNAL, "a compressed message");
}

/* Before its bytes come, and without memory for them. */
static void too_large_a_message_is_refused_at_once(void **state)
{
    unsigned char prefix[GRPC_PREFIX];

    hf__grpc_prefix(prefix, GRPC_MESSAGE_MAX);
    data(prefix, sizeof prefix);
    assert_false(in.bad);
    end(state);
    begin(state);
    hf__grpc_prefix(prefix, GRPC_MESSAGE_MAX + 1);
    data(prefix, 4);
    assert_false(in.bad);
    data(prefix + 4, 1);
    refused(GRPC_RESOURCE_EXHAUSTED, "a message of more than 16 MiB");
    assert_true(in.room < 1024);
    data("more", 4);
    assert_int_equal(in.len, sizeof prefix);
    end(state);
    begin(state);
    data("\0\377\377\377\377", 5);
    refused(GRPC_RESOURCE_EXHAUSTED, "a message of more than 16 MiB");
}

static void more_than_anybody_takes_is_refused(void **state)
{
    static char zeros[GRPC_READ_MAX]; /* empty messages */
    size_t n = 0;

    (void)state;
    while (!in.bad && n < 2u * GRPC_MESSAGE_MAX) {
        data(zeros, sizeof zeros);
        n += sizeof zeros;
    }
    refused(GRPC_RESOURCE_EXHAUSTED, "more than 16 MiB");
    assert_true(in.room <= 2u * GRPC_MESSAGE_MAX);
}

/* ---- status ---------------------------------------------------------------------- */

static void ends_with(int status, const char *text)
{
    hf__grpc_end(&in, false, 0);
    assert_int_equal(in.status, status);
    assert_string_equal(in.text, text);
}

static void the_status_is_in_the_trailers(void **state)
{
    headers();
    trailers("5", "etcdserver: requested lease not found");
    ends_with(GRPC_NOT_FOUND, "etcdserver: requested lease not found");
    end(state);
    begin(state);
    headers(); /* trailers only */
    header("grpc-status", "14");
    header("grpc-message", "etcdserver: no leader");
    ends_with(GRPC_UNAVAILABLE, "etcdserver: no leader");
    end(state);
    begin(state);
    headers();
    header("content-type", "application/grpc+proto");
    data("\0\0\0", 3); /* a failure may cut a message */
    trailers("10", NULL);
    ends_with(GRPC_ABORTED, "");
}

static void the_text_is_percent_decoded(void **state)
{
    static const struct {
        const char *sent, *meant;
    } texts[] = {
        { "a%20b", "a b" },      { "%41%42", "AB" }, { "%e2%82%ac", "\xe2\x82\xac" },
        { "100%", "100%" },      { "%4", "%4" },     { "%zz", "%zz" },
        { "%%41", "%A" },        { "%00x", "%00x" }, { "", "" },
        { "%0a\xff", "\n\xff" }, { "%2541", "%41" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        headers();
        trailers("2", texts[i].sent);
        ends_with(GRPC_UNKNOWN, texts[i].meant);
    }
}

static void a_long_text_is_cut(void **state)
{
    char text[3 * GRPC_TEXT_MAX + 1] = "";

    (void)state;
    for (int i = 0; i < GRPC_TEXT_MAX; i++)
        strcat(text, "%41");
    headers();
    trailers("3", text);
    hf__grpc_end(&in, false, 0);
    assert_int_equal(strlen(in.text), GRPC_TEXT_MAX - 1);
    assert_int_equal(strspn(in.text, "A"), GRPC_TEXT_MAX - 1);
}

static void a_status_that_is_none_is_unknown(void **state)
{
    static const char *const wrong[] = { "",    "-1",   "17",
                                         "999", "1000", "0x0",
                                         " 0",  "0 ",   "00000000000000000000" };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        begin(state);
        headers();
        trailers(wrong[i], NULL);
        hf__grpc_end(&in, false, 0);
        assert_int_equal(in.status, GRPC_UNKNOWN);
        end(state);
    }
}

static void without_a_status_it_did_not_go_well(void **state)
{
    headers();
    data(HELLO, 10);
    ends_with(GRPC_UNKNOWN, "an answer without a status");
    end(state);
    begin(state); /* OK was promised in front of the message, and nothing followed it */
    headers();
    header("grpc-status", "0");
    data(HELLO, 10);
    ends_with(GRPC_UNKNOWN, "an answer without a status");
    end(state);
    begin(state); /* or something else did */
    headers();
    header("grpc-status", "0");
    hf__grpc_block(&in);
    header("x", "y");
    ends_with(GRPC_UNKNOWN, "an answer without a status");
    end(state);
    begin(state);
    ends_with(GRPC_UNKNOWN, "an answer without a status"); /* nothing at all */
    end(state);
    begin(state);
    headers();
    data(HELLO "\0\0\0\0\2a", 16);
    trailers("0", NULL);
    ends_with(GRPC_INTERNAL, "half a message");
}

static void a_server_of_the_web_is_none_of_grpc(void **state)
{
    static const struct {
        const char *http;
        int status;
    } of[] = { { "200", GRPC_UNKNOWN },         { "400", GRPC_INTERNAL },
               { "401", GRPC_UNAUTHENTICATED }, { "403", GRPC_PERMISSION_DENIED },
               { "404", GRPC_UNIMPLEMENTED },   { "429", GRPC_UNAVAILABLE },
               { "502", GRPC_UNAVAILABLE },     { "503", GRPC_UNAVAILABLE },
               { "504", GRPC_UNAVAILABLE },     { "500", GRPC_UNKNOWN },
               { "abc", GRPC_UNKNOWN } };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        begin(state);
        hf__grpc_block(&in);
        header(":status", of[i].http);
        header("content-type", i % 2 ? "text/html" : "application/grpcx");
        header("grpc-status", "0");
        hf__grpc_end(&in, false, 0);
        assert_int_equal(in.status, of[i].status);
        assert_true(in.bad);
        end(state);
    }
    begin(state);
    hf__grpc_block(&in);
    header(":status", "503");
    data("<html>", 6); /* whatever it says */
    ends_with(GRPC_UNAVAILABLE, "no gRPC, HTTP status 503");
}

static void a_reset_stream_was_not_answered(void **state)
{
    static const struct {
        uint32_t code;
        int status;
    } of[] = { { GRPC_RESET_NO_ERROR, GRPC_INTERNAL },
               { GRPC_RESET_REFUSED, GRPC_UNAVAILABLE },
               { GRPC_RESET_CANCEL, GRPC_CANCELLED },
               { GRPC_RESET_CALM, GRPC_RESOURCE_EXHAUSTED },
               { GRPC_RESET_SECURITY, GRPC_PERMISSION_DENIED },
               { 2, GRPC_INTERNAL },
               { 0xffffffff, GRPC_INTERNAL } };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int promised = 0; promised < 2; promised++) {
            begin(state);
            headers();
            if (promised) {
                data(HELLO, 10);
                header("grpc-status", "0");
            }
            hf__grpc_end(&in, true, of[i].code);
            assert_int_equal(in.status, of[i].status);
            assert_true(in.bad);
            end(state);
        }
    begin(state);
}

/* ---- out ------------------------------------------------------------------------- */

static void limits_have_eight_digits(void **state)
{
    static const struct {
        int64_t ms;
        const char *text;
    } of[] = { { 1, "1m" },
               { 0, "1m" },
               { -5, "1m" },
               { 5000, "5000m" },
               { 99999999, "99999999m" },
               { 100000000, "100000S" },
               { INT64_MAX, "99999999S" } };
    char text[GRPC_TIMEOUT_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        hf__grpc_timeout(text, of[i].ms);
        assert_string_equal(text, of[i].text);
    }
    assert_string_equal(hf__grpc_status_name(GRPC_UNAVAILABLE), "UNAVAILABLE");
    assert_string_equal(hf__grpc_status_name(-1), "UNKNOWN");
    assert_string_equal(hf__grpc_status_name(17), "UNKNOWN");
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_call_goes_well),
        CASE(messages_come_in_any_pieces),
        CASE(a_large_message_is_put_together),
        CASE(what_is_compressed_is_refused),
        CASE(too_large_a_message_is_refused_at_once),
        CASE(more_than_anybody_takes_is_refused),
        CASE(the_status_is_in_the_trailers),
        CASE(the_text_is_percent_decoded),
        CASE(a_long_text_is_cut),
        CASE(a_status_that_is_none_is_unknown),
        CASE(without_a_status_it_did_not_go_well),
        CASE(a_server_of_the_web_is_none_of_grpc),
        CASE(a_reset_stream_was_not_answered),
        CASE(limits_have_eight_digits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
