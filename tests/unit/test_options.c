/* Structures that grow: those of older and of newer headers are copied by the caller's own
 * size. Today only one form of each public structure exists, so the rule is tried on a
 * made-up one. */
#include "unit.h"

#include "core/core.h"

struct thing { /* as this library knows it; its first form ended after `name` */
    uint32_t size, mode;
    const char *name;
    int64_t limit;
    const char *note;
};

struct newer {
    struct thing thing;
    int64_t more[3];
};

enum {
    FIRST = offsetof(struct thing, limit),
    SECOND = offsetof(struct thing, note),
    KNOWN = sizeof(struct thing)
};

static const struct thing given = { KNOWN, 3, "name", 7, "note" };

static bool copy(struct thing *to, const void *from, size_t size)
{
    memset(to, 0xa5, sizeof *to);
    return hf__copy_sized(to, KNOWN, from, size, FIRST);
}

static void the_same_form_is_copied(void **state)
{
    struct thing to;

    (void)state;
    assert_true(copy(&to, &given, KNOWN));
    assert_memory_equal(&to, &given, KNOWN);
}

/* The caller's memory ends where its size says: exactly so much is allocated, for
 * sanitizers. */
static void what_an_older_form_lacks_is_zero(void **state)
{
    struct thing to;
    void *older = malloc(FIRST);

    (void)state;
    assert_non_null(older);
    memcpy(older, &given, FIRST);
    assert_true(copy(&to, older, FIRST));
    free(older);
    assert_int_equal(to.mode, 3);
    assert_ptr_equal(to.name, given.name);
    assert_int_equal(to.limit, 0);
    assert_null(to.note);
    assert_true(copy(&to, &given, SECOND));
    assert_int_equal(to.limit, 7);
    assert_null(to.note);
}

static void a_size_that_no_header_has_is_refused(void **state)
{
    struct thing to;

    (void)state;
    assert_false(copy(&to, &given, 0));
    assert_false(copy(&to, &given, FIRST - sizeof(void *)));
    assert_false(copy(&to, &given, FIRST - 1));
    assert_false(copy(&to, &given, FIRST + 1)); /* it ends inside a field */
    assert_false(copy(&to, &given, KNOWN - 1));
    assert_false(copy(&to, &given, UINT32_MAX));
}

static void a_newer_form_is_taken_if_its_rest_is_zero(void **state)
{
    struct newer n = { given, { 0, 0, 0 } };
    struct thing to;

    (void)state;
    assert_true(copy(&to, &n, sizeof n));
    assert_memory_equal(&to, &given, KNOWN);
    for (size_t i = KNOWN; i < sizeof n; i++) {
        unsigned char *at = (unsigned char *)&n + i;

        *at = 1;
        assert_false(copy(&to, &n, sizeof n));
        assert_true(copy(&to, &n, KNOWN)); /* not the caller's: not looked at */
        *at = 0;
    }
}

/* What is given out: never more bytes than the caller has. */
static void an_older_form_is_filled_by_its_own_size(void **state)
{
    struct newer to;
    unsigned char *bytes = (unsigned char *)&to;

    (void)state;
    memset(&to, 0xa5, sizeof to);
    hf__fill_sized(&to, FIRST, &given, KNOWN);
    assert_int_equal(to.thing.size, FIRST);
    assert_int_equal(to.thing.mode, 3);
    assert_ptr_equal(to.thing.name, given.name);
    for (size_t i = FIRST; i < sizeof to; i++)
        assert_int_equal(bytes[i], 0xa5);
    hf__fill_sized(&to, sizeof to, &given, KNOWN);
    assert_int_equal(to.thing.size, sizeof to);
    assert_string_equal(to.thing.note, "note");
    for (size_t i = KNOWN; i < sizeof to; i++)
        assert_int_equal(bytes[i], 0xa5);
}

/* Programs of that version say these numbers, so no later one may ask for more. */
static void sizes_of_0_1(void **state)
{
    (void)state;
    if (sizeof(void *) != 8)
        return;
    assert_int_equal(HF_OPTIONS_SIZE_0_1, 40);
    assert_int_equal(HF_REQUEST_SIZE_0_1, 64);
    assert_int_equal(HF_BACKEND_SIZE_0_1, 280);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_form_is_copied),
        cmocka_unit_test(what_an_older_form_lacks_is_zero),
        cmocka_unit_test(a_size_that_no_header_has_is_refused),
        cmocka_unit_test(a_newer_form_is_taken_if_its_rest_is_zero),
        cmocka_unit_test(an_older_form_is_filled_by_its_own_size),
        cmocka_unit_test(sizes_of_0_1),
    };

    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
