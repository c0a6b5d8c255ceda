/* Descriptors: none left. */
#include "drive_harness.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

/* What a wait with a stop button says when it finds no descriptor to watch the button with. */
static void no_descriptor_for_a_stop_button(void **state)
{
    hf_lease *x = hold(other, "x", 0), *l;
    struct rlimit was, now;
    hf_error e = { 0 };
    hf_cancel *stop;
    int lowest, rc;

    (void)state;
    assert_int_equal(hf_acquire(c, "x", 1, NULL, &l, NULL), HF_ETIMEDOUT); /* it has all it needs */
    assert_int_equal(hf_cancel_new(&stop, NULL), 0);
    lowest = dup(0);
    close(lowest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    now = (struct rlimit){ (rlim_t)lowest, was.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    rc = hf_acquire(c, "x", HF_FOREVER, HF_REQUEST(.cancel = stop), &l, &e);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(rc, HF_ESYS);
    assert_int_equal(e.sys, EMFILE);
    hf_cancel_free(stop);
    hf_release(x, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_descriptor_for_a_stop_button),
    };

    return cmocka_run_group_tests_name("descriptors", tests, make_folder, remove_folder);
}
