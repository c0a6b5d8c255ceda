/* test_known.c: which module a scheme needs, where it is searched, and what is said when it
 * is not there. The tables that the build makes are replaced by our own: a driver that was
 * left out, one that is a module. Whether the process is a set-id program is what a case
 * says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver/builtin.h"

#include <cmocka.h>
#include <holdfast/tool.h>

const struct hf_driver *const hf__builtin_drivers[] = { NULL };
const struct known_driver hf__known_drivers[] = {
    { "left", "left lefts", HF_BACKEND_MISSING },
    { "away", "away away+tls", HF_BACKEND_MODULE },
    { NULL, NULL, 0 },
};
const struct tls_module *const hf__builtin_tls = NULL;
const int hf__tls_state = HF_BACKEND_MISSING;

static bool set_id;
static char folder[64], file[96];

unsigned long __real_getauxval(unsigned long);
unsigned long __wrap_getauxval(unsigned long);

unsigned long __wrap_getauxval(unsigned long type)
{
    return type == AT_SECURE ? set_id : __real_getauxval(type);
}

static int setup(void **state)
{
    (void)state;
    set_id = false;
    snprintf(folder, sizeof folder, "/tmp/hfmod.XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(file, sizeof file, "%s/holdfast-away.so", folder);
    return setenv("HOLDFAST_MODULE_DIR", folder, 1);
}

static int teardown(void **state)
{
    (void)state;
    unsetenv("HOLDFAST_MODULE_DIR");
    unlink(file);
    return rmdir(folder);
}

static void check_preload(const char *scheme, int code, const char *text)
{
    hf_error err = { 0 };

    assert_int_equal(hf_preload(scheme, &err), code);
    assert_int_equal(err.code, code);
    if (!strstr(err.text, text))
        fail_msg("'%s' is not in '%s'", text, err.text);
}

static void a_driver_that_was_left_out(void **state)
{
    (void)state;
    check_preload("lefts", HF_EMODULE,
                  "lefts: its module holdfast-left.so is missing: this library was built "
                  "without it");
}

static void a_module_that_is_not_installed(void **state)
{
    (void)state;
    check_preload("away+tls", HF_EMODULE,
                  "away+tls: its module holdfast-away.so is not installed");
}

static void a_scheme_that_nobody_has_heard_of(void **state)
{
    (void)state;
    check_preload("nosuch+tls", HF_EINVAL, "no store is called nosuch+tls:");
}

/* It is no module: that it was looked at is enough. */
static void a_set_id_program_searches_where_it_was_built_for(void **state)
{
    hf_backend b = { .size = sizeof b };
    FILE *f = fopen(file, "w");

    (void)state;
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(file, 0755), 0);
    check_preload("away", HF_EMODULE, file);
    assert_int_equal(hf_backend_at(1, &b), 0);
    assert_string_equal(b.detail, file);
    set_id = true;
    check_preload("away", HF_EMODULE, "not installed");
    assert_int_equal(hf_backend_at(1, &b), 0);
    assert_int_equal(b.state, HF_BACKEND_MISSING);
    assert_null(strstr(b.detail, folder));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_driver_that_was_left_out),
        CASE(a_module_that_is_not_installed),
        CASE(a_scheme_that_nobody_has_heard_of),
        CASE(a_set_id_program_searches_where_it_was_built_for),
    };

    return cmocka_run_group_tests_name("module-known", cases, NULL, NULL);
}
