/* test_local_folder.c: which folder, who may use it, what it may contain, and a full disk.
 */
#include "driver/local/local.h"
#include "local_harness.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
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
#include <sys/wait.h>
#include <unistd.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

static char *folder;

static int setup(void **state)
{
    (void)state;
    folder = folder_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    folder_free(folder);
    return 0;
}

/* Opens, takes a lock and leaves something kept behind; closes. */
static void use_once(const char *name)
{
    struct side s;
    struct pass p;

    assert_int_equal(side_open(&s, folder, ""), 0);
    pass_init(&p, &s, name);
    assert_int_equal(pass_join(&p), 1);
    p.t.keep_ms = 3600 * 1000;
    assert_int_equal(pass_leave(&p), 0);
    side_close(&s);
}

static int try_once(const char *name)
{
    struct side s;
    struct pass p;
    int rc;

    assert_int_equal(side_open(&s, folder, ""), 0);
    pass_init(&p, &s, name);
    p.t.try_only = true;
    rc = pass_join(&p);
    if (rc == 1)
        pass_leave(&p);
    side_close(&s);
    return rc;
}

static void edit(const char *file, off_t at, const void *bytes, size_t n)
{
    int fd = open(folder_file(folder, file), O_RDWR);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, at), n);
    close(fd);
}

static int open_and_close(const char *query)
{
    struct side s;
    int rc = side_open(&s, folder, query);

    if (rc == 0)
        side_close(&s);
    else
        print_message("# %s\n", s.err.text);
    return rc;
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
    pass_init(&p, &s, "x");
    assert_int_equal(pass_join(&p), 1);
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
    pass_init(&p, &s, "x");
    pass_init(&q, &t, "x");
    assert_int_equal(pass_join(&p), 1);
    assert_int_equal(pass_join(&q), 0);
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
        assert_int_equal(chown(folder, 0, 54321), 0);
        assert_int_equal(open_and_close("?share=group"), HF_EAUTH);
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
    pass_init(&p, &s, "x");
    assert_int_equal(pass_join(&p), 1);
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
    pass_init(&p, &s, "x");
    assert_int_equal(pass_join(&p), 1);
    assert_true(p.t.fence > fence);
    pass_leave(&p);
    side_close(&s);
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
    enum { ROUNDS = 200, SIZE = 1 << 20 };
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
    pass_init(&p, &s, "x");
    assert_int_equal(pass_join(&p), 1);
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
    pass_init(&q, &t, "x");
    assert_int_equal(pass_join(&q), 1);
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
    pass_init(&p, &s, "x");
    assert_int_equal(pass_join(&p), 1);
    assert_int_equal(unlink(folder_file(folder, "gate")), 0);
    assert_int_equal(side_open(&t, folder, ""),
                     HF_EDAMAGED); /* open here, but not the same */
    pass_renew(&p);
    assert_true(p.dead);
    pass_leave(&p);
    side_close(&s);
    assert_int_equal(open_and_close(""), 0);
}

/* ---- no room --------------------------------------------------------------------- */

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

enum { CANNOT = 77 }; /* said by a child whose rights do not suffice */

static int in_child(int (*body)(const char *), const char *arg)
{
    int status;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0)
        _exit(body(arg));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        fail_msg("ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
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

static bool put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    if (fd >= 0)
        close(fd);
    return good;
}

static bool map_id(const char *path, unsigned id)
{
    char text[32];

    snprintf(text, sizeof text, "%u %u 1\n", id, id);
    return put(path, text);
}

/* A new namespace; a user who has no right to one is given it inside one of his own. */
static bool enter(int flags)
{
    const uid_t uid = geteuid();
    const gid_t gid = getegid();

    if (uid == 0)
        return unshare(flags) == 0;
    return unshare(CLONE_NEWUSER | flags) == 0 && put("/proc/self/setgroups", "deny") &&
           map_id("/proc/self/uid_map", uid) && map_id("/proc/self/gid_map", gid);
}

static int on_a_full_disk(const char *where)
{
    char path[256];

    if (mkdir(where, 0700) < 0 || !enter(CLONE_NEWNS) ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("small", where, "tmpfs", 0, "size=3m,mode=700") < 0)
        return CANNOT;
    snprintf(path, sizeof path, "%s/store", where);
    return fill_up(path);
}

/* From now on the system has no block for us beyond `size`, in no file. */
static bool refuse_blocks(unsigned size)
{
    const unsigned low = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0 : 4;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwrite64, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwritev, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 (unsigned)offsetof(struct seccomp_data, args[3]) + low),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, size, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSPC),
    };
    const struct sock_fprog program = { sizeof code / sizeof *code, code };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int without_more_blocks(const char *where)
{
    return refuse_blocks(3 << 20) ? fill_up(where) : CANNOT;
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

static int too_small_to_begin(const char *where)
{
    const struct rlimit lim = { 1 << 19, 1 << 19 };
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

static void no_room_to_begin(void **state)
{
    (void)state;
    assert_int_equal(in_child(too_small_to_begin, folder), 0);
    assert_int_equal(open_and_close(""), 0);
}

/* ---- namespaces ------------------------------------------------------------------ */

static int namespace_flags; /* CLONE_NEWPID or CLONE_NEWTIME */

static void go_there(void)
{
    bool time = namespace_flags == CLONE_NEWTIME;

    if (enter(namespace_flags) &&
        (!time || put("/proc/self/timens_offsets", "boottime 5000 0\n")))
        return;
    print_message("# no namespace can be made here: the driver is told of one\n");
    fflush(stdout);
    *(time ? &pretend.time_ns : &pretend.pid_ns) = 1;
}

/* In a grandchild that is in the new namespace: opens and tries "x". */
static int over_there(const char *where)
{
    int status;
    pid_t pid;

    go_there();
    pid = fork();
    if (pid == 0) {
        struct side s;
        struct pass p;
        int rc = side_open(&s, where, "");

        if (rc < 0)
            _exit(-rc);
        pass_init(&p, &s, "x");
        p.t.try_only = true;
        if (pass_join(&p) == 1)
            pass_leave(&p);
        rc = p.granted ? 0 : p.why;
        side_close(&s);
        _exit(-rc);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return 76;
    return WEXITSTATUS(status);
}

static void check_namespace(int flags)
{
    struct side s;
    struct pass p;
    int rc;

    namespace_flags = flags;
    assert_int_equal(side_open(&s, folder, ""), 0);
    pass_init(&p, &s, "x");
    assert_int_equal(pass_join(&p), 1);
    rc = in_child(over_there, folder);
    assert_int_equal(rc, -HF_EFOREIGN);
    pass_renew(&p); /* still ours */
    assert_int_equal(p.alive, 1);
    pass_leave(&p);
    side_close(&s);
    assert_int_equal(in_child(over_there, folder), 0); /* nobody inside: re-homed */
    assert_int_equal(try_once("x"), 1);                /* and back */
    use_once("x");
    rc = in_child(over_there, folder);
    /* A kept ticket lives on in another PID namespace, but has no meaning on another clock.
     */
    assert_int_equal(rc, flags == CLONE_NEWPID ? -HF_EBUSY : -HF_EFOREIGN);
    assert_int_equal(try_once("x"), HF_EBUSY);
}

static void another_pid_namespace(void **state)
{
    (void)state;
    check_namespace(CLONE_NEWPID);
}

static void another_time_namespace(void **state)
{
    (void)state;
    check_namespace(CLONE_NEWTIME);
}

/* The first process of a PID namespace that has the /proc of another one holds "x"; its
 * children try to take it, with every number that comes, until one has the same number in
 * both. Its /proc has another process by the number of the holder, which lives. */
static int try_with_our_number(const char *where, int to)
{
    char number[32] = "";
    struct side s;
    struct pass p;

    if (readlink("/proc/self", number, sizeof number - 1) < 0)
        return 1;
    if (atoi(number) != getpid())
        return write(to, number, sizeof number) == sizeof number ? CANNOT : 1;
    if (side_open(&s, where, "") < 0)
        return 2;
    pass_init(&p, &s, "x");
    p.t.try_only = true;
    return pass_join(&p) == 1 ? 3 : p.why == HF_EBUSY ? 0 : 4;
}

static int hold_as_first(const char *where)
{
    char number[32] = "1";
    int status = 0, ends[2];
    struct side s;
    struct pass p;

    if (side_open(&s, where, "") < 0)
        return 5;
    pass_init(&p, &s, "x");
    if (pass_join(&p) != 1 || pipe(ends) < 0)
        return 6;
    for (int i = 0; i < 4000; i++) {
        pid_t pid;

        /* the last one outside; others, or a thread of a sanitizer, may take some */
        snprintf(number, sizeof number, "%d", atoi(number) + i % 4);
        if (!put("/proc/sys/kernel/ns_last_pid", number))
            return CANNOT;
        if ((pid = fork()) == 0)
            _exit(try_with_our_number(where, ends[1]));
        if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
            return 7;
        if (WEXITSTATUS(status) != CANNOT)
            return WEXITSTATUS(status);
        if (read(ends[0], number, sizeof number) != sizeof number)
            return 8;
    }
    return 9;
}

static int as_first(const char *where)
{
    int status;
    pid_t pid;

    if (!enter(CLONE_NEWPID))
        return CANNOT;
    if ((pid = fork()) == 0)
        _exit(hold_as_first(where));
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 10;
}

static void a_foreign_proc_with_our_number(void **state)
{
    int rc = in_child(as_first, folder);

    (void)state;
    if (rc == CANNOT)
        print_message("# numbers of processes cannot be chosen here\n");
    else
        assert_int_equal(rc, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

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
        T(a_newer_format_is_refused),
        T(a_damaged_gate_is_refused),
        T(a_damaged_store_is_refused),
        T(a_damaged_record_is_refused),
        T(any_damage_is_survived),
        T(a_replaced_folder_is_noticed),
        T(a_removed_gate_is_noticed),
        T(a_file_size_limit),
        T(a_full_disk),
        T(no_room_to_begin),
        T(another_pid_namespace),
        T(a_foreign_proc_with_our_number),
        T(another_time_namespace),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
