/* The URL parser: what it takes, what it refuses, and that no secret gets out. */
#include "unit.h"

#include "core/url.h"
#include "util/text.h"

#include <holdfast/tool.h>
#include <sys/stat.h>
#include <unistd.h>

static void takes_every_part(void **state)
{
    struct url u;
    hf_error e;

    (void)state;
    assert_int_equal(hf__url_parse(&u,
                                   "redis://me:p%40ss%3a@h1:6379,[::1]:7,h3/2?tls_ca=%2Fca&"
                                   "namespace=n%20s&ttl=500ms&connect_timeout=2",
                                   &e),
                     0);
    assert_string_equal(u.scheme, "redis");
    assert_string_equal(u.user, "me");
    assert_string_equal(u.password, "p@ss:");
    assert_int_equal(u.nhosts, 3);
    assert_string_equal(u.hosts[0].host, "h1");
    assert_int_equal(u.hosts[0].port, 6379);
    assert_string_equal(u.hosts[1].host, "::1");
    assert_int_equal(u.hosts[1].port, 7);
    assert_string_equal(u.hosts[2].host, "h3");
    assert_int_equal(u.hosts[2].port, 0);
    assert_string_equal(u.path, "/2");
    assert_int_equal(u.nparams, 1);
    assert_string_equal(hf__url_param(&u, "tls_ca"), "/ca");
    assert_string_equal(u.ns, "n s");
    assert_int_equal(u.ttl_ms, 500);
    assert_int_equal(u.connect_ms, 2000);
    assert_null(strstr(u.shown, "p%40ss"));
    assert_int_equal(hf__url_known(&u, "tls_ca", &e), 0);
    assert_int_equal(hf__url_known(&u, "tls tls_caX ca", &e), HF_EINVAL);
    hf__url_done(&u);
}

static void takes_spin(void **state)
{
    static const struct {
        const char *url;
        int64_t us;
    } cases[] = { { "local:", 0 },
                  { "local:?spin=auto", 0 },
                  { "local:?spin=0", HF_SPIN_NEVER },
                  { "local:?spin=250", 250 },
                  { "local:?spin=10000", 10000 } };
    struct url u;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(hf__url_parse(&u, cases[i].url, NULL), 0);
        assert_int_equal(u.spin_us, cases[i].us);
        assert_int_equal(u.nparams, 0);
        hf__url_done(&u);
    }
}

static void takes_the_short_forms(void **state)
{
    struct url u;

    (void)state;
    assert_int_equal(hf__url_parse(&u, "local:", NULL), 0);
    assert_string_equal(u.path, "");
    assert_int_equal(u.nhosts, 0);
    hf__url_done(&u);
    assert_int_equal(hf__url_parse(&u, "local:///var/lib/x%20y", NULL), 0);
    assert_string_equal(u.path, "/var/lib/x y");
    hf__url_done(&u);
    assert_int_equal(hf__url_parse(&u, "x://me:pw@/db", NULL), 0);
    assert_string_equal(u.user, "me");
    assert_string_equal(u.path, "/db");
    assert_int_equal(u.nhosts, 0);
    hf__url_done(&u);
    assert_int_equal(hf__url_parse(&u, "local:?ttl=5m", NULL), 0);
    assert_int_equal(u.ttl_ms, 300000);
    hf__url_done(&u);
}

static void shows_no_secrets(void **state)
{
    static const char *const urls[][2] = {
        { "redis://:hunter2@h/0", "redis://@h/0" },
        { "redis://u:hunter2@h", "redis://u@h" },
        { "redis://u:hun@ter2@h/x%40y", "redis://u@h/x%40y" },
        { "zk://h/r?auth=digest:hunter2&ttl=5s", "zk://h/r?auth=***&ttl=5s" },
        { "x://h?sslpassword=hunter2", "x://h?sslpassword=***" },
        { "x://h?SslPassWord=hunter2&pas%73=hunter2", "x://h?SslPassWord=***&pas%73=***" },
        { "x://u:hunter2@h?a=b&token=hunter2", "x://u@h?a=b&token=***" },
        { "x://h?password_file=/run/pw&sentinel_password=hunter2",
          "x://h?password_file=/run/pw&sentinel_password=***" },
        { "x:/a:b@c://d", "x:/a:b@c://d" },
    };
    struct url u;

    (void)state;
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        assert_int_equal(hf__url_parse(&u, urls[i][0], NULL), 0);
        assert_string_equal(u.shown, urls[i][1]);
        hf__url_done(&u);
    }
}

static void refuses_and_says_what(void **state)
{
    static const char *const urls[][2] = {
        { "", "scheme" },
        { "local", "scheme" },
        { "Local:", "scheme" },
        { ":x", "scheme" },
        { "x://h:0", "port" },
        { "x://h:65536", "port" },
        { "x://h:", "port" },
        { "x://h:6x", "port" },
        { "x://h1,,h2", "host 2 is empty" },
        { "x://h1,", "host 2 is empty" },
        { "x://u@", "no host" },
        { "x://u@?a=b", "no host" },
        { "x://[::1", "[address] as host 1" },
        { "x://h1,h2:x", "port number after host 2" },
        { "x://h1,h%ff", "name of host 2 is not UTF-8" },
        { "x://u:secret/@h", "port number after host 1" },
        { "x://u:12/secret@h", "'@' behind the host" },
        { "x://u:p@ss/secret@h", "'@' behind the host" },
        { "x://u:12?secret@h", "option 1: options have the form" },
        { "x://h/%zz", "path" },
        { "x://h/%00", "path" },
        { "x://h/%f", "path" },
        { "x://h/%ff", "UTF-8" },
        { "x://h?a", "option 1 ('a'): options have the form key=value" },
        { "x://h?=b", "option 1 has no name: options have the form key=value" },
        { "x://h?&&", "option 1 has no name" },
        { "x://h?a=1&&b=2", "option 2 has no name" },
        { "x://h?namespace=%00", "bad %-escape in the value of option 1 ('namespace')" },
        { "x://h?ttl=5s&namespace=%ff", "value of option 2 ('namespace') is not UTF-8" },
        { "x://h?a%=1", "bad %-escape in the name of option 1 ('a%')" },
        { "x://h?%1b%ff=1", "the name of option 1 ('%1b%ff') is not UTF-8" },
        { "x://h?\033=%", "value of option 1 ('\\x1b')" },
        { "x://h?password=secret%zz", "value of option 1 ('password')" },
        { "x://h?password=a&secret", "option 2: options have the form" },
        { "x://h?a=1&auth=a&secret=%", "value of option 3" },
        { "x://h?Auth%3Asecret", "option 1: options have the form" },
        { "x://h?auth%3", "option 1: options have the form" },
        { "x://h?auth%", "option 1: options have the form" },
        { "x://h?a=1&a=2", "twice" },
        { "x://h?a+b%20c=2", "('a+b%20c'): no option" },
        { "x://h?ttl=0", "ttl" },
        { "x://h?ttl=-1s", "ttl" },
        { "x://h?ttl=5w", "ttl" },
        { "x://h?connect_timeout=soon", "connect_timeout" },
        { "x://h?spin=", "spin" },
        { "x://h?spin=never", "spin" },
        { "x://h?spin=-1", "spin" },
        { "x://h?spin=10001", "spin" },
        { "x://h#f", "#" },
        { "x://u:secret%zz@h", "password" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        struct url u;
        hf_error e = { 0 };

        assert_int_equal(hf__url_parse(&u, urls[i][0], &e), HF_EINVAL);
        assert_non_null(strstr(e.text, urls[i][1]));
        assert_null(strstr(e.text, "secret"));
        assert_null(u.scheme);
    }
    assert_int_equal(hf__url_parse(&(struct url){ 0 }, NULL, NULL), HF_EINVAL);
}

static void reads_times(void **state)
{
    static const struct {
        const char *text;
        int64_t ms;
    } t[] = { { "2.5", 2500 },
              { "500ms", 500 },
              { "30s", 30000 },
              { "5m", 300000 },
              { "1h", 3600000 },
              { "0.0005", 1 },
              { "0", 0 },
              { ".5", 500 },
              { "0.0001", 1 },
              { "2.0001", 2001 },
              { "0.00000000001", 1 },
              { "0.00000000000", 0 },
              { "8784h", 31622400000 },
              { "1d", 86400000 },
              { "366d", 31622400000 },
              { "1h30m", 5400000 },
              { "1d2h3m4s5ms", 93784005 },
              { "1m0.5s", 60500 } };
    static const char *const bad[] = { "",
                                       ".",
                                       "s",
                                       "-1",
                                       "1e3",
                                       "1 s",
                                       "5x",
                                       "1h30",
                                       "30m1h",
                                       "1h1h",
                                       "1.5h30m",
                                       "1h30",
                                       "1h 30m",
                                       "1h30x",
                                       "366d1ms",
                                       "1hm",
                                       "99999999999h",
                                       "8784.1h",
                                       "99999999999999999999ms" };
    int64_t ms;

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        assert_true(hf__parse_time(t[i].text, &ms));
        assert_int_equal(ms, t[i].ms);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(hf__parse_time(bad[i], &ms));
}

/* As a shell runs it, with a folder whose name needs quotes. */
static void says_what_an_administrator_runs(void **state)
{
    char base[] = "/tmp/hf-admin-XXXXXX", url[128], path[128], *text = NULL;
    hf_error e = { 0 };
    struct stat st;

    (void)state;
    assert_non_null(mkdtemp(base));
    snprintf(path, sizeof path, "%s/it's \"$here\"", base);
    for (int group = 0; group < 2; group++) {
        snprintf(url, sizeof url, "local://%s/it%%27s%%20%%22$here%%22%s", base,
                 group ? "?share=group" : "");
        assert_int_equal(hf_admin_text(url, &text, &e), 0);
        assert_int_equal(system(text), 0);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, group ? 0770 : 0700);
        free(text);
    }
    assert_int_equal(hf_admin_text("local:", &text, &e), 0);
    assert_non_null(strstr(text, "/holdfast-"));
    free(text);
    text = NULL;
    assert_int_equal(hf_admin_text("nosuch://h", &text, &e), HF_EINVAL);
    assert_int_equal(hf_admin_text("local", &text, NULL), HF_EINVAL);
    assert_null(text);
    rmdir(path);
    rmdir(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_every_part),
        cmocka_unit_test(takes_spin),
        cmocka_unit_test(takes_the_short_forms),
        cmocka_unit_test(shows_no_secrets),
        cmocka_unit_test(refuses_and_says_what),
        cmocka_unit_test(reads_times),
        cmocka_unit_test(says_what_an_administrator_runs),
    };

    return cmocka_run_group_tests_name("url", tests, NULL, NULL);
}
