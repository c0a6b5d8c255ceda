/* redis_login.c: passwords of servers and of sentinels, in URLs and in files, and passwords
 * that are changed while they are in use.
 */
#include "redis_fault.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DOWN_MS = 1500, FAILOVER_TTL_MS = 12000 };

static char file[300]; /* of a password */

/* As mounted secrets change: a new file, and a link that is switched. */
static void put_password(const char *dir, const char *password)
{
    static int number;
    char name[64], path[300], link[300], text[128];

    snprintf(name, sizeof(name), "password.%d", ++number);
    snprintf(text, sizeof(text), "%s\n", password);
    file_put(dir, name, "w", text);
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    CHECK(chmod(path, 0400) == 0);
    snprintf(link, sizeof(link), "%s/link.%d", dir, number);
    CHECK(symlink(name, link) == 0);
    snprintf(file, sizeof(file), "%s/password", dir);
    CHECK(rename(link, file) == 0);
}

static void is_refused_without(const char *url, const char *secret)
{
    hf_client *c = opened_at(url, NULL);
    hf_lease *none = NULL;

    CHECK_RC(rig.face->acquire(c, nm("n"), HF_FOREVER, NULL, &none, E()), HF_EAUTH);
    CHECK(!none && !strstr(last_error()->text, secret) &&
          !strstr(last_error()->where, secret));
    closed(c);
}

static void is_invalid(const char *url, int code, const char *word)
{
    hf_client *c = NULL;

    CHECK_RC(rig.face->open(url, NULL, &c, E()), code);
    CHECK(!c && strstr(last_error()->text, word));
}

/* ---- sentinels ------------------------------------------------------------------- */

static void is_refused_by_sentinel(const char *url)
{
    is_refused_without(url, "s3cret");
    CHECK(strstr(last_error()->text, "this sentinel")); /* not by the server behind it */
}

static void sentinel_password(void)
{
    char plain[400], url[900];
    struct redis_place *many;
    struct server *old;
    struct two t;

    redis_sentinel_start_with(rig.place, DOWN_MS, "Watchs3cret");
    many = rig.place->own;
    snprintf(plain, sizeof(plain), "%.399s", rig.place->url);
    is_refused_by_sentinel(plain);
    CHECK(strstr(last_error()->text, "sentinel_password="));
    snprintf(url, sizeof(url), "%s?sentinel_password=Wrongs3cret", plain);
    is_refused_by_sentinel(url);
    snprintf(url, sizeof(url), "%s?sentinel_user=nobody&sentinel_password=Wrongs3cret",
             plain);
    is_refused_by_sentinel(url);
    snprintf(url, sizeof(url), "%s?sentinel_user=nobody", plain);
    is_invalid(url, HF_EINVAL, "user");
    put_password(many->servers[0].dir, "Watchs3cret");
    snprintf(url, sizeof(url), "%s?sentinel_user=default&sentinel_password_file=%s", plain,
             file);
    closed(opened_at(url, NULL));
    /* one of them refuses us: the others are asked */
    redis_do(&many->servers[many->data], "ACL SETUSER default resetpass >another");
    strcpy(many->servers[many->data].login, "default another");
    for (int i = 0; i < 5; i++) {
        hf_client *c = opened_at(url, NULL);

        given(taken(c, nm("n"), NULL));
        closed(c);
    }
    snprintf(rig.place->url, sizeof(rig.place->url), "%s?sentinel_password=Watchs3cret",
             plain);
    t = hold_and_wait(FAILOVER_TTL_MS);
    old = redis_sentinel_master(many);
    redis_replicated(many, old);
    server_kill(old);
    two_renewed(&t);
    two_go_on(&t);
    redis_place_stop(rig.place);
}

/* ---- a password that is changed -------------------------------------------------- */

static void use_password(const char *password)
{
    redis_init(&server);
    redis_config(&server, "requirepass %s", password);
    snprintf(server.login, sizeof(server.login), "default %s", password);
    redis_run(&server);
    put_password(server.dir, password);
    snprintf(rig.place->url, sizeof(rig.place->url),
             "redis://127.0.0.1:%d?password_file=%s", server.port, file);
}

static void throw_out(void)
{
    redis_do(&server, "CLIENT KILL TYPE pubsub");
    redis_do(&server, "CLIENT KILL TYPE normal");
}

static int64_t refusals(void)
{
    return redis_errors(&server, "WRONGPASS");
}

/* The server has the new one first; everybody waits until the file has it too. */
static void password_file_changes(void)
{
    struct two t;
    int64_t before;

    use_password("Olds3cret");
    t = hold_and_wait(FAILOVER_TTL_MS);
    redis_do(&server, "CONFIG SET requirepass News3cret");
    strcpy(server.login, "default News3cret");
    before = refusals();
    throw_out();
    AWAIT(refusals() >= before + 6);
    CHECK_RC(hf_lease_check(t.held), 0);
    CHECK(!pend_done(t.waits));
    is_refused_without(rig.place->url, "s3cret"); /* whoever comes now */
    put_password(server.dir, "News3cret");
    two_renewed(&t);
    two_go_on(&t);
    done();
}

/* It is missing for a moment, and nobody is lost. */
static void password_file_missing(void)
{
    struct two t;

    use_password("s3cret");
    t = hold_and_wait(FAILOVER_TTL_MS);
    CHECK(unlink(file) == 0);
    throw_out();
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), 1000);
    put_password(server.dir, "s3cret");
    two_renewed(&t);
    two_go_on(&t);
    done();
}

static void password_file_refused(void)
{
    char url[600];

    use_password("s3cret");
    CHECK(chmod(file, 0444) == 0);
    is_invalid(rig.place->url, HF_EAUTH, "everybody may read it");
    CHECK(chmod(file, 0420) == 0);
    is_invalid(rig.place->url, HF_EAUTH, "others may write it");
    CHECK(chmod(file, 0440) == 0);
    closed(opened());
    snprintf(url, sizeof(url), "%s&sentinel_password=x", rig.place->url);
    is_invalid(url, HF_EINVAL, "sentinel_password");
    snprintf(url, sizeof(url), "redis://:s3cret@127.0.0.1:%d?password_file=%s", server.port,
             file);
    is_invalid(url, HF_EINVAL, "password");
    snprintf(url, sizeof(url), "redis://jobs@127.0.0.1:%d", server.port);
    is_invalid(url, HF_EINVAL, "user without a password");
    CHECK(unlink(file) == 0);
    is_invalid(rig.place->url, HF_EAUTH, "No such file");
    done();
}

/* ---- what is left in memory ------------------------------------------------------ */

enum { SECRET = 24, MASK = 0x55, PIECE = 1 << 16 };

/* In a process of its own: this one is not to know the password. */
static void invent_password(void *arg)
{
    char text[SECRET + 1];
    unsigned char dice[SECRET];
    FILE *random = fopen("/dev/urandom", "r");

    (void)arg;
    CHECK(random && fread(dice, 1, SECRET, random) == SECRET);
    for (int i = 0; i < SECRET; i++)
        text[i] = (char)('a' + dice[i] % 26);
    text[SECRET] = 0;
    redis_config(&server, "requirepass %s", text);
    put_password(server.dir, text);
}

static void read_masked(char masked[SECRET])
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);

    CHECK(fd >= 0 && read(fd, masked, SECRET) == SECRET);
    for (int i = 0; i < SECRET; i++)
        masked[i] = (char)(masked[i] ^ MASK);
    close(fd);
}

static int found_in(const char *bytes, size_t n, const char masked[SECRET])
{
    int found = 0;

    for (size_t at = 0; at + SECRET <= n; at++) {
        int i = 0;

        while (i < SECRET && (bytes[at + (size_t)i] ^ MASK) == masked[i])
            i++;
        found += i == SECRET;
    }
    return found;
}

/* In everything of this process that can be written to. */
static int copies(const char masked[SECRET])
{
    static char piece[PIECE];
    FILE *maps = fopen("/proc/self/maps", "r");
    int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC), found = 0;
    unsigned long begin, end;
    char line[1024], rights[8];

    CHECK(maps && fd >= 0);
    while (fgets(line, sizeof(line), maps)) {
        CHECK(sscanf(line, "%lx-%lx %7s", &begin, &end, rights) == 3);
        if (rights[1] != 'w' || end - begin > 1ul << 28) /* sanitizers reserve more */
            continue;
        for (; begin < end; begin += PIECE - SECRET) { /* one may lie across a border */
            size_t n = end - begin < PIECE ? end - begin : PIECE;
            ssize_t got = pread(fd, piece, n, (off_t)begin);

            found += got > 0 ? found_in(piece, (size_t)got, masked) : 0;
        }
    }
    memset(piece, 0, sizeof(piece));
    fclose(maps);
    close(fd);
    return found;
}

/* Both connections log in, twice; then nothing of it is left. */
static void password_is_overwritten(void)
{
    static volatile char known[] =
        "aaaaaaaaaaaaaaaaaaaaaaaa"; /* what can be found is found */
    char masked[SECRET];
    struct two t;

    memset(masked, 'a' ^ MASK, SECRET);
    CHECK_NUM(copies(masked), >=, 1);
    CHECK(known[0] == 'a');
    redis_init(&server);
    redis_config(&server, "user admin on >of-the-test ~* &* +@all");
    strcpy(server.login, "admin of-the-test");
    proc_end(proc_start(invent_password, NULL));
    snprintf(file, sizeof(file), "%s/password", server.dir);
    read_masked(masked);
    redis_run(&server);
    snprintf(rig.place->url, sizeof(rig.place->url),
             "redis://127.0.0.1:%d?password_file=%s", server.port, file);
    t = hold_and_wait(FAILOVER_TTL_MS);
    throw_out();
    two_renewed(&t);
    CHECK_NUM(copies(masked), ==, 0);
    two_go_on(&t);
    CHECK_NUM(copies(masked), ==, 0);
    done();
}

const struct test_case redis_login_cases[] = {
    { "sentinel-password", sentinel_password, ON_ALL, 0, CASE_LONG },
    { "password-file-changes", password_file_changes, ON_ALL, 0, 0 },
    { "password-file-missing", password_file_missing, ON_ALL, 0, 0 },
    { "password-is-overwritten", password_is_overwritten, ON_ALL, 0, 0 },
    { "password-file-refused", password_file_refused, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
