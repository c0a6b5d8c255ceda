/* Random bytes, when the kernel gives none: a filter of system calls, as services have
 * them. */
#include "drive_harness.h"

#include "util/prf.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TOKENS = 200 };

/* RFC 8439, A.1: the first two test vectors, of a key and a nonce of zeros. */
static void prf_is_chacha20(void **state)
{
    static const unsigned char first[8] = {
        0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90
    };
    static const unsigned char second[8] = {
        0x9f, 0x07, 0xe7, 0xbe, 0x55, 0x51, 0x38, 0x7a
    };
    unsigned char key[PRF_KEY] = { 0 }, out[PRF_BLOCK];

    (void)state;
    hf__prf(out, key, 0);
    assert_memory_equal(out, first, sizeof first);
    hf__prf(out, key, 1);
    assert_memory_equal(out, second, sizeof second);
}

static void forbid_getrandom(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrandom, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = { sizeof code / sizeof *code, code };

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
        _exit(3);
}

/* In a process of its own: a filter cannot be taken off, and what loops for ever is killed.
 */
static void in_child(int (*body)(void))
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        alarm(30 * TEST_SLOW);
        _exit(body());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static int open_without(void)
{
    hf_error e = { 0 };
    hf_client *one;

    forbid_getrandom();
    return hf_open(url, NULL, &one, &e) == HF_ESYS && e.sys == EPERM &&
                   strstr(e.text, "random")
               ? 0
               : 1;
}

static void open_fails_without_random_bytes(void **state)
{
    hf_client *one; /* so that there is a store, which needs some to be built */

    (void)state;
    assert_int_equal(hf_open(url, NULL, &one, NULL), 0);
    hf_close(one);
    in_child(open_without);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int draw_without(void)
{
    static char ids[TOKENS][64];
    hf_client *one;
    hf_list *list;

    if (hf_open(url, NULL, &one, NULL) < 0)
        return 1;
    forbid_getrandom();
    for (int i = 0; i < TOKENS; i++) {
        hf_lease *l;

        if (hf_acquire(one, "n", 0, NULL, &l, NULL) < 0 ||
            hf_look(one, "n", &list, NULL) < 0)
            return 1;
        snprintf(ids[i], sizeof ids[i], "%s",
                 hf_ticket_id(hf_line_ticket(hf_list_at(list, 0), 0)));
        hf_list_free(list);
        if (hf_release(l, NULL) < 0)
            return 1;
    }
    hf_close(one);
    qsort(ids, TOKENS, sizeof ids[0], by_text);
    for (int i = 1; i < TOKENS; i++)
        if (strcmp(ids[i - 1], ids[i]) == 0)
            return 2;
    return 0;
}

static void tokens_differ_when_the_kernel_gives_no_more(void **state)
{
    (void)state;
    in_child(draw_without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prf_is_chacha20),
        cmocka_unit_test(open_fails_without_random_bytes),
        cmocka_unit_test(tokens_differ_when_the_kernel_gives_no_more),
    };

    return cmocka_run_group_tests_name("random", tests, make_folder, remove_folder);
}
