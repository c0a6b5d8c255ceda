/* test_local_disk.c: limits of size, full disks, and file systems that cannot reserve. */
#include "driver/local/local.h"
#include "local_harness.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Joins new names until refused; then everything that was held can be left, and works
 * again. */
static int fill_up(const char *where)
{
    enum { MANY = 200000 };
    struct pass *p = calloc(MANY, sizeof *p);
    struct life **lives = calloc(MANY, sizeof *lives);
    struct glance *g = calloc(1, sizeof *g);
    char note[513], name[32];
    struct side s;
    int n = 0, rc = 0;

    memset(note, 'n', 512);
    note[512] = '\0';
    if (side_open(&s, where, "") < 0)
        return 10;
    for (; n < MANY && rc == 0; n++) {
        snprintf(name, sizeof name, "name/%d", n);
        pass_init(&p[n], &s, name);
        p[n].t.note = note;
        if (pass_join(&p[n]) != 1)
            rc = p[n].why;
    }
    if (rc != HF_EFULL)
        return 11;
    snprintf(name, sizeof name, "name/%d", n - 1);
    glance_at(g, &s, name, false);
    if (g->rc != 0 || g->n != 0) /* the refused one left nothing */
        return 12;
    for (int i = 0; i < n - 1; i++)
        lives[i] = p[i].t.life;
    hf__driver_local.renew(s.store, lives, (size_t)n - 1);
    for (int i = 0; i < n - 1; i++)
        if (p[i].alive != 1)
            return 13;
    for (int i = 0; i < n - 1; i++)
        if (pass_leave(&p[i]) != 0)
            return 14;
    if (pass_join(&p[0]) != 1 || pass_leave(&p[0]) != 0)
        return 15;
    side_close(&s);
    free(p);
    free(lives);
    free(g);
    return 0;
}

static int with_a_limit(const char *where)
{
    const struct rlimit lim = { 4 << 20, 4 << 20 };

    return setrlimit(RLIMIT_FSIZE, &lim) < 0 ? 1 : fill_up(where);
}

static void a_file_size_limit(void **state)
{
    (void)state;
    assert_int_equal(in_child(with_a_limit, folder), 0);
    assert_int_equal(open_and_close(""), 0);
}

/* From now on the system answers so to whoever reserves or writes beyond `size`, in any
 * file; reserves_only: not to who writes. */
static bool refuse_blocks(unsigned size, bool reserves_only, unsigned answer)
{
    const unsigned low = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0 : 4;
    const unsigned pwrite = reserves_only ? UINT_MAX : SYS_pwrite64;
    const unsigned pwritev = reserves_only ? UINT_MAX : SYS_pwritev;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, pwrite, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, pwritev, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 (unsigned)offsetof(struct seccomp_data, args[3]) + low),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, size, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | answer),
    };
    const struct sock_fprog program = { sizeof code / sizeof *code, code };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Mounts one of our own over the folder, in a namespace that ends with this process. */
static bool mount_over(const char *where, const char *type, const char *options)
{
    return mkdir(where, 0700) == 0 && namespace_enter(CLONE_NEWNS) &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("ours", where, type, 0, options) == 0;
}

static int on_a_full_disk(const char *where)
{
    char path[256];

    if (!mount_over(where, "tmpfs", "size=3m,mode=700"))
        return CANNOT;
    snprintf(path, sizeof path, "%s/store", where);
    return fill_up(path);
}

static int without_more_blocks(const char *where)
{
    return refuse_blocks(3 << 20, false, ENOSPC) ? fill_up(where) : CANNOT;
}

static void a_full_disk(void **state)
{
    int rc;

    (void)state;
    rc = in_child(on_a_full_disk, folder);
    if (rc == CANNOT) {
        print_message("# no disk can be mounted here: a filter of system calls instead\n");
        rc = in_child(without_more_blocks, folder);
    }
    assert_int_equal(rc, 0);
}

/* A file system that cannot reserve blocks: ramfs, which has no limit of its own either. */
static int where_blocks_cannot_be_reserved(const char *where)
{
    char path[256];

    if (!mount_over(where, "ramfs", "mode=700"))
        return CANNOT;
    snprintf(path, sizeof path, "%s/store", where);
    return with_a_limit(path);
}

static int without_fallocate(const char *where)
{
    return refuse_blocks(0, true, EOPNOTSUPP) ? with_a_limit(where) : CANNOT;
}

static void blocks_that_cannot_be_reserved_are_written(void **state)
{
    int rc = in_child(where_blocks_cannot_be_reserved, folder);

    (void)state;
    if (rc != CANNOT)
        assert_int_equal(rc, 0);
    folder_teardown(state);
    folder_setup(state);
    assert_int_equal(in_child(without_fallocate, folder), 0);
}

/* As many users as a /run/lock of 5 MiB has to serve. */
static int many_on_a_small_disk(const char *where)
{
    enum { USERS = 16 };
    struct side s[USERS];
    struct pass p[USERS];

    if (!mount_over(where, "tmpfs", "size=5m,mode=700"))
        return CANNOT;
    for (int i = 0; i < USERS; i++) {
        char path[256];

        snprintf(path, sizeof path, "%s/user%d", where, i);
        if (side_open(&s[i], path, "") < 0)
            return 1 + i;
        pass_init(&p[i], &s[i], "x");
        if (pass_join(&p[i]) != 1)
            return 1 + i;
    }
    return 0;
}

static void a_small_disk_serves_many_users(void **state)
{
    int rc = in_child(many_on_a_small_disk, folder);
    struct stat st;

    (void)state;
    if (rc != CANNOT)
        assert_int_equal(rc, 0);
    folder_teardown(state);
    folder_setup(state);
    use_once("x");
    assert_int_equal(stat(folder_file(folder, "store"), &st), 0);
    assert_true(st.st_blocks * 512 <= (5 << 20) / 18);
}

static int too_small_to_begin(const char *where)
{
    const struct rlimit lim = { STORE_FIRST / 2, STORE_FIRST / 2 };
    struct side s;
    char path[512];

    signal(SIGXFSZ, SIG_IGN); /* LMDB itself makes the first file */
    if (setrlimit(RLIMIT_FSIZE, &lim) < 0)
        return 1;
    if (side_open(&s, where, "") != HF_EFULL)
        return 2;
    snprintf(path, sizeof path, "%s/store.new", where);
    return access(path, F_OK) == 0 ? 3 : 0;
}

/* A full store is collected before it refuses: whom that admits is woken. */
static int swept_on_a_full_disk(const char *where)
{
    int64_t end = hf__loop_now() + 5000000;
    struct side s, t;
    struct pass p, q;

    if (side_open(&s, where, "") < 0 || side_open(&t, where, "") < 0)
        return 30;
    pass_init(&p, &s, "x");
    p.t.ttl_ms = 100;
    pass_init(&q, &t, "x");
    if (pass_join(&p) != 1 || pass_join(&q) != 0)
        return 31;
    while (hf__loop_now() < p.sent_at + p.t.ttl_ms * 1000)
        side_turn(&s, p.sent_at + p.t.ttl_ms * 1000);
    if (with_a_limit(where) != 0)
        return 32;
    while (!q.granted && hf__loop_now() < end)
        side_turn(&t, end);
    return q.granted ? 0 : 33;
}

static void whom_a_sweep_admits_is_woken(void **state)
{
    (void)state;
    assert_int_equal(in_child(swept_on_a_full_disk, folder), 0);
}

static void no_room_to_begin(void **state)
{
    (void)state;
    assert_int_equal(in_child(too_small_to_begin, folder), 0);
    assert_int_equal(open_and_close(""), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, folder_setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_file_size_limit),
        T(a_full_disk),
        T(blocks_that_cannot_be_reserved_are_written),
        T(a_small_disk_serves_many_users),
        T(whom_a_sweep_admits_is_woken),
        T(no_room_to_begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
