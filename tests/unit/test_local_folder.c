/* test_local_folder.c: which folder, who may use it, and what it may contain. */
#include "driver/local/local.h"
#include "local_harness.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void edit(const char *file, off_t at, const void *bytes, size_t n)
{
    int fd = open(folder_file(folder, file), O_RDWR);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, at), n);
    close(fd);
}

/* ---- rights ---------------------------------------------------------------------- */

static void files_are_private(void **state)
{
    struct stat st;
    struct side s;
    struct pass p;
    mode_t old = umask(0);

    (void)state;
    assert_int_equal(side_open(&s, folder, ""), 0);
    pass_hold(&p, &s, "x");
    assert_int_equal(hf__driver_local.life_fds(s.store), 0);
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(folder_file(folder, "gate"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(stat(folder_file(folder, "store"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(stat(folder_file(folder, "w.1.1"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(stat(folder_file(folder, "l.1"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    pass_leave(&p);
    side_close(&s);
    assert_int_equal(access(folder_file(folder, "w.1.1"), F_OK), -1);
    assert_int_equal(access(folder_file(folder, "l.1"), F_OK), -1);
    umask(old);
}

static void an_open_folder_is_refused(void **state)
{
    (void)state;
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(chmod(folder, 0750), 0);
    assert_int_equal(open_and_close(""), HF_EAUTH);
    assert_int_equal(chmod(folder, 0701), 0);
    assert_int_equal(open_and_close(""), HF_EAUTH);
    assert_int_equal(chmod(folder, 0700), 0);
    assert_int_equal(open_and_close(""), 0);
}

static void a_foreign_folder_is_refused(void **state)
{
    int status;
    pid_t pid;

    (void)state;
    assert_int_equal(mkdir(folder, 0700), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(folder, 12345, 12345), 0);
        assert_int_equal(open_and_close(""), HF_EAUTH);
        return;
    }
    /* Nobody else's folder can be made here; / is root's. */
    pid = fork();
    if (pid == 0) {
        struct side s;

        _exit(side_open(&s, "/", "") == HF_EAUTH ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void links_and_files_are_refused(void **state)
{
    int fd;

    (void)state;
    assert_int_equal(symlink("/tmp", folder), 0);
    assert_int_equal(open_and_close(""), HF_EINVAL);
    assert_int_equal(unlink(folder), 0);
    fd = open(folder, O_CREAT | O_WRONLY, 0600);
    close(fd);
    assert_int_equal(open_and_close(""), HF_EINVAL);
    assert_int_equal(unlink(folder), 0);
}

static void urls(void **state)
{
    struct side s;

    (void)state;
    assert_int_equal(open_and_close("?share=all"), HF_EINVAL);
    assert_int_equal(open_and_close("?nonsense=1"), HF_EINVAL);
    assert_int_equal(side_open(&s, "host/dir", ""), HF_EINVAL);
    assert_int_equal(side_open(&s, "user@/dir", ""), HF_EINVAL);
    assert_int_equal(side_open(&s, "/no/such/place/at/all", ""), HF_EINVAL);
    assert_int_equal(access(folder, F_OK), -1); /* nothing was made */
}

static void shared_by_a_group(void **state)
{
    struct side s, t;
    struct stat st;
    struct pass p, q;
    mode_t old = umask(077);

    (void)state;
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(open_and_close("?share=group"), HF_EAUTH);
    assert_int_equal(chmod(folder, 0770), 0);
    assert_int_equal(open_and_close(""), HF_EAUTH);
    assert_int_equal(side_open(&s, folder, "?share=group"), 0);
    assert_int_equal(side_open(&t, folder, ""), HF_EAUTH);
    assert_int_equal(side_open(&t, folder, "?share=group"), 0);
    pass_hold(&p, &s, "x");
    pass_wait(&q, &t, "x");
    assert_int_equal(stat(folder_file(folder, "gate"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0660);
    assert_int_equal(stat(folder_file(folder, "store"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0660);
    assert_int_equal(stat(folder_file(folder, "w.1.1"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0660);
    pass_leave(&p);
    side_until(&t, &q.granted);
    pass_leave(&q);
    side_close(&s);
    side_close(&t);
    umask(old);
    if (geteuid() == 0) {
        pid_t other;
        int status;

        assert_int_equal(chown(folder, 0, 54321), 0);
        assert_int_equal(unlink(folder_file(folder, "gate")), 0);
        assert_int_equal(open_and_close("?share=group"), 0); /* root is in every group */
        assert_int_equal(stat(folder_file(folder, "gate"), &st), 0);
        assert_int_equal(st.st_gid, 54321);
        assert_int_equal(chown(folder, 65534, 54321), 0);
        other = fork();
        if (other == 0)
            _exit(setgid(65534) == 0 && setuid(65534) == 0 &&
                          open_and_close("?share=group") == HF_EAUTH
                      ? 0
                      : 1);
        assert_int_equal(waitpid(other, &status, 0), other);
        assert_int_equal(status, 0);
    }
}

static void the_default_is_by_file_system_and_uid(void **state)
{
    static const char *names[] = { "XDG_RUNTIME_DIR", "TMPDIR", "HOME", "USER",
                                   "HOLDFAST_DIR" };
    static const struct {
        mode_t run_lock;
        const char *where;
    } cases[] = {
        { S_IFDIR | 01777, "/run/lock" },
        { S_IFDIR | 00777, "/var/tmp" }, /* anybody could take our folder away */
        { S_IFDIR | 01755, "/var/tmp" },
        { S_IFLNK | 01777, "/var/tmp" },
        { 0, "/var/tmp" },
    };
    char before[64], after[64];

    (void)state;
    hf__local_folder_default(before, sizeof before);
    for (size_t i = 0; i < 5; i++)
        setenv(names[i], "/elsewhere", 1);
    hf__local_folder_default(after, sizeof after);
    assert_string_equal(before, after);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pretend_run_lock = &cases[i].run_lock;
        hf__local_folder_default(after, sizeof after);
        snprintf(before, sizeof before, "%s/holdfast-%u", cases[i].where,
                 (unsigned)geteuid());
        assert_string_equal(after, before);
    }
    pretend_run_lock = NULL;
}

static void a_network_file_system_is_refused(void **state)
{
    static const long types[] = { 0x6969, 0xFE534D42, 0x65735546 }; /* NFS, SMB, FUSE */
    struct side s;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        pretend_fs = types[i];
        assert_int_equal(side_open(&s, folder, ""), HF_EFOREIGN);
        assert_non_null(strstr(s.err.text, "network file system"));
    }
    pretend_fs = 0;
    assert_int_equal(open_and_close(""), 0);
}

/* ---- contents -------------------------------------------------------------------- */

static void kept_tickets_survive(void **state)
{
    (void)state;
    use_once("kept");
    assert_int_equal(try_once("kept"), HF_EBUSY);
    assert_int_equal(try_once("other"), 1);
}

static void another_boot_starts_anew(void **state)
{
    struct side s;
    struct pass p;
    uint64_t fence;

    (void)state;
    use_once("kept");
    close(open(folder_file(folder, "w.7.7"), O_CREAT | O_WRONLY, 0600));
    edit("gate", offsetof(struct gate, boot), "another boot id.", 16);
    assert_int_equal(try_once("kept"), 1);
    assert_int_equal(access(folder_file(folder, "w.7.7"), F_OK), -1);

    /* While somebody is inside it is not touched. */
    assert_int_equal(side_open(&s, folder, "?connect_timeout=100ms"), 0);
    pass_hold(&p, &s, "x");
    fence = p.t.fence;
    edit("gate", offsetof(struct gate, boot), "another boot id.", 16);
    {
        pid_t pid = fork();
        int status;

        if (pid == 0) {
            struct side t;

            _exit(side_open(&t, folder, "?connect_timeout=100ms") == HF_EFOREIGN ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    pass_leave(&p);
    side_close(&s);
    assert_int_equal(side_open(&s, folder, ""), 0);
    pass_hold(&p, &s, "x");
    assert_true(p.t.fence > fence);
    pass_leave(&p);
    side_close(&s);
}

/* Killed between the two renames of hf__local_folder_build. */
static void half_replaced_files_are_replaced(void **state)
{
    const uint32_t out_of_use = 0, nonsense = 7;

    (void)state;
    use_once("kept");
    edit("gate", offsetof(struct gate, state), &out_of_use, sizeof out_of_use);
    assert_int_equal(try_once("kept"), 1);
    edit("gate", offsetof(struct gate, state), &nonsense, sizeof nonsense);
    assert_int_equal(open_and_close(""), HF_EDAMAGED);
}

static void a_newer_format_is_refused(void **state)
{
    const uint32_t newer = GATE_FORMAT + 1;
    char before[64], after[64];
    int fd;

    (void)state;
    use_once("x");
    edit("gate", offsetof(struct gate, format), &newer, sizeof newer);
    fd = open(folder_file(folder, "store"), O_RDONLY);
    assert_int_equal(pread(fd, before, 64, 4096), 64);
    assert_int_equal(open_and_close(""), HF_EVERSION);
    assert_int_equal(pread(fd, after, 64, 4096), 64);
    assert_memory_equal(before, after, 64);
    close(fd);

    /* Another format may have another size; after a boot it is replaced. */
    assert_int_equal(truncate(folder_file(folder, "gate"), 8352), 0);
    assert_int_equal(open_and_close(""), HF_EVERSION);
    edit("gate", offsetof(struct gate, boot), "another boot id.", 16);
    assert_int_equal(open_and_close(""), 0);
    assert_int_equal(truncate(folder_file(folder, "gate"), 8352), 0);
    assert_int_equal(open_and_close(""), HF_EDAMAGED);
}

static void a_damaged_gate_is_refused(void **state)
{
    static const struct {
        size_t at, n;
    } hurt[] = {
        { offsetof(struct gate, magic), 4 },
        { offsetof(struct gate, map_size), 8 },
        { offsetof(struct gate, commit), 8 },
        { offsetof(struct gate, id), 8 },
    };
    unsigned char was[8], bad[8];

    (void)state;
    use_once("x");
    memset(bad, 0xee, sizeof bad);
    for (size_t i = 0; i < sizeof hurt / sizeof *hurt; i++) {
        int fd = open(folder_file(folder, "gate"), O_RDONLY);

        assert_int_equal(pread(fd, was, hurt[i].n, (off_t)hurt[i].at), hurt[i].n);
        close(fd);
        edit("gate", (off_t)hurt[i].at, bad, hurt[i].n);
        assert_int_equal(open_and_close(""), HF_EDAMAGED);
        edit("gate", (off_t)hurt[i].at, was, hurt[i].n);
        assert_int_equal(try_once("x"), HF_EBUSY);
    }
    assert_int_equal(truncate(folder_file(folder, "gate"), 100), 0);
    assert_int_equal(open_and_close(""), HF_EDAMAGED);
}

static void a_damaged_store_is_refused(void **state)
{
    (void)state;
    use_once("x");
    assert_int_equal(truncate(folder_file(folder, "store"), 8192), 0);
    assert_int_equal(open_and_close(""), HF_EDAMAGED);
    assert_int_equal(truncate(folder_file(folder, "store"), 1 << 20), 0);
    assert_int_equal(open_and_close(""), HF_EDAMAGED); /* its pages are gone */
    edit("store", 0, "garbage garbage garbage garbage", 32);
    assert_int_equal(open_and_close(""), HF_EDAMAGED);
}

static void a_damaged_record_is_refused(void **state)
{
    /* The line's record: its format and kind stand before the capacity of a lock. */
    const int64_t full = HF_FULL, beyond = -1;
    unsigned char pages[1 << 16];
    struct side s;
    int fd, hits = 0;
    ssize_t n;

    (void)state;
    use_once("x");
    fd = open(folder_file(folder, "store"), O_RDWR);
    n = pread(fd, pages, sizeof pages, 0);
    for (ssize_t i = 8; i + 8 < n; i++)
        if (memcmp(pages + i, &full, 8) == 0 && pages[i - 8] == RECORD_FORMAT) {
            assert_int_equal(pwrite(fd, &beyond, 8, i), 8);
            hits++;
        }
    close(fd);
    assert_true(hits > 0);
    assert_int_equal(side_open(&s, folder, ""), HF_EDAMAGED); /* the sweep reads it */
}

/* The bytes of an earlier moment, and the gate's word that they count. */
static void restore(int store, const unsigned char *good, size_t size)
{
    int gate = open(folder_file(folder, "gate"), O_RDWR);
    uint64_t txn[2], commit;

    assert_int_equal(pwrite(store, good, size, 0), size);
    for (size_t i = 0; i < 2; i++) /* the last field of each meta page */
        memcpy(&txn[i], good + 4096 * i + 16 + 128, sizeof txn[i]);
    commit = txn[0] > txn[1] ? txn[0] : txn[1];
    assert_int_equal(pwrite(gate, &commit, sizeof commit, offsetof(struct gate, commit)),
                     sizeof commit);
    close(gate);
}

/* Any bytes anywhere in the store: an error or not, but no crash and no hang. */
static void any_damage_is_survived(void **state)
{
    enum { ROUNDS = 200, SIZE = STORE_FIRST };
    uint64_t random = test_seed();
    unsigned char *good = malloc(SIZE), *bad = malloc(SIZE);
    int fd, refused = 0;

    (void)state;
    for (int i = 0; i < 30; i++) {
        char name[300];

        memset(name, 'a' + i % 26, sizeof name);
        name[100 + 5 * i] = '\0';
        use_once(name);
    }
    fd = open(folder_file(folder, "store"), O_RDWR);
    assert_int_equal(pread(fd, good, SIZE, 0), SIZE);
    for (int round = 0; round < ROUNDS; round++) {
        int status, hits = 1 + (int)(test_random(&random) % 8);
        pid_t pid;

        memcpy(bad, good, SIZE);
        for (int i = 0; i < hits; i++) {
            size_t page = test_random(&random) % 12, at = test_random(&random) % 4096;

            if (test_random(&random) % 2)
                at %= 64;
            bad[page * 4096 + at] = (unsigned char)test_random(&random);
        }
        assert_int_equal(pwrite(fd, bad, SIZE, 0), SIZE);
        fflush(NULL);
        pid = fork();
        if (pid == 0) {
            struct glance *g = calloc(1, sizeof *g);
            struct side s;
            struct pass p;

            alarm(20);
            if (side_open(&s, folder, "") < 0)
                _exit(1);
            glance_at(g, &s, "", true);
            pass_init(&p, &s, "a new one");
            if (pass_join(&p) == 1)
                pass_leave(&p);
            side_close(&s);
            _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!WIFEXITED(status))
            fail_msg("round %d: signal %d", round, WTERMSIG(status));
        refused += WEXITSTATUS(status) == 1;
        restore(fd, good, SIZE);
    }
    print_message("# %d of %d refused at open\n", refused, ROUNDS);
    assert_true(refused > 0);
    close(fd);
    free(good);
    free(bad);
}

static void a_replaced_folder_is_noticed(void **state)
{
    struct side s, t;
    struct pass p, q;
    char *moved = strdup(folder_file(folder, "../moved"));

    (void)state;
    assert_int_equal(side_open(&s, folder, ""), 0);
    pass_hold(&p, &s, "x");
    pass_renew(&p);
    assert_int_equal(p.alive, 1);
    assert_int_equal(rename(folder, moved), 0);
    pass_renew(&p);
    assert_true(p.dead);
    s.ahead_us = 2 * 1000000;
    pass_init(&q, &s, "y");
    assert_int_equal(pass_join(&q), HF_EDAMAGED);

    assert_int_equal(side_open(&t, folder, ""), 0); /* a new one under the old name */
    p.dead = 0;
    pass_renew(&p);
    assert_true(p.dead);
    pass_hold(&q, &t, "x");
    pass_leave(&q);
    side_close(&t);
    pass_leave(&p);
    side_close(&s);
    free(moved);
}

static void a_removed_gate_is_noticed(void **state)
{
    struct side s, t;
    struct pass p;

    (void)state;
    assert_int_equal(side_open(&s, folder, ""), 0);
    pass_hold(&p, &s, "x");
    assert_int_equal(unlink(folder_file(folder, "gate")), 0);
    assert_int_equal(side_open(&t, folder, ""),
                     HF_EDAMAGED); /* open here, but not the same */
    pass_renew(&p);
    assert_true(p.dead);
    pass_leave(&p);
    side_close(&s);
    assert_int_equal(open_and_close(""), 0);
}
#define T(f) cmocka_unit_test_setup_teardown(f, folder_setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(files_are_private),
        T(an_open_folder_is_refused),
        T(a_foreign_folder_is_refused),
        T(links_and_files_are_refused),
        T(urls),
        T(shared_by_a_group),
        T(the_default_is_by_file_system_and_uid),
        T(a_network_file_system_is_refused),
        T(kept_tickets_survive),
        T(another_boot_starts_anew),
        T(half_replaced_files_are_replaced),
        T(a_newer_format_is_refused),
        T(a_damaged_gate_is_refused),
        T(a_damaged_store_is_refused),
        T(a_damaged_record_is_refused),
        T(any_damage_is_survived),
        T(a_replaced_folder_is_noticed),
        T(a_removed_gate_is_noticed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
