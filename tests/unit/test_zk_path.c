/* Names of nodes in ZooKeeper (driver/zookeeper/path.c): what the name of a ticket's node
 * says, and where a line is. Both are the stored form, which other programs read and write
 * too: what is asserted of them here never changes.
 *
 * The levels of names are also made at random, of pieces that were chosen for being bad;
 * HF_SEED=N repeats a run. */
#include "unit.h"

#include "driver/zookeeper/zookeeper.h"

#include <sys/random.h>

#define UUID "_c_6b1d2f2e-7b0a-4b52-9c3e-0123456789ab"

static struct zk z;

static int setup(void **state)
{
    (void)state;
    memset(&z, 0, sizeof z);
    z.root_len = (size_t)snprintf(z.root, sizeof z.root, "/r");
    return 0;
}

/* ---- tickets --------------------------------------------------------------------- */

static const struct {
    const char *mark; /* what stands before the number */
    enum line_kind kind;
    int64_t weight, capacity;
    bool renames;
} forms[] = {
    { UUID "-lock-", LINE_LOCK, HF_FULL, HF_FULL, true },
    { UUID "-read-lock-", LINE_LOCK, 1, HF_FULL, false },
    { UUID "-permits.2.5-lock-", LINE_PERMITS, 2, 5, false },
    { UUID "-permits.1.1-lock-", LINE_PERMITS, 1, 1, false },
    { UUID "-permits.4294967295.4294967295-lock-", LINE_PERMITS, UINT32_MAX, UINT32_MAX,
      false },
    { UUID "-__WRIT__", LINE_LOCK, HF_FULL, HF_FULL, false },
    { UUID "-__READ__", LINE_LOCK, 1, HF_FULL, false },
    /* kazoo */
    { "6b1d2f2e7b0a4b529c3e0123456789ab__lock__", LINE_LOCK, HF_FULL, HF_FULL, false },
    { "6b1d2f2e7b0a4b529c3e0123456789ab__rlock__", LINE_LOCK, 1, HF_FULL, false },
    /* go-zookeeper, Curator without protection */
    { "_c_6b1d2f2e7b0a4b529c3e0123456789ab-lock-", LINE_LOCK, HF_FULL, HF_FULL, true },
    { "lock-", LINE_LOCK, HF_FULL, HF_FULL, false },
    /* what cannot be right is exclusive */
    { UUID "-permits.0.5-lock-", LINE_LOCK, HF_FULL, HF_FULL, true },
    { UUID "-permits.6.5-lock-", LINE_LOCK, HF_FULL, HF_FULL, true },
    { UUID "-permits.-1.5-lock-", LINE_LOCK, HF_FULL, HF_FULL, true },
    { UUID "-permits.1.4294967296-lock-", LINE_LOCK, HF_FULL, HF_FULL, true },
    { UUID "-permits.99999999999999999999.5-lock-", LINE_LOCK, HF_FULL, HF_FULL, true },
    { UUID "-permits.2.5x-lock-", LINE_LOCK, HF_FULL, HF_FULL, true },
    { UUID "-permits.2-lock-", LINE_LOCK, HF_FULL, HF_FULL, true },
    { UUID "-permits.-lock-", LINE_LOCK, HF_FULL, HF_FULL, true },
};

static const struct {
    const char *digits; /* as a server writes it */
    int64_t seq;
} numbers[] = {
    { "0000000000", 0 },
    { "0000000042", 42 },
    { "2147483647", 2147483647 },
    { "-000000001", -1 },
    { "-2147483648", -2147483648LL },
};

static bool says(const struct form *f, size_t i, size_t k)
{
    return f->place.kind == forms[i].kind && f->place.weight == forms[i].weight &&
           f->place.capacity == forms[i].capacity && f->renames == forms[i].renames &&
           f->place.seq == numbers[k].seq && f->digits == strlen(forms[i].mark);
}

static void every_form_is_read(void **state)
{
    char name[256];

    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++) {
            int n = snprintf(name, sizeof name, "%s%s", forms[i].mark, numbers[k].digits);
            struct form f;

            if (!hf__zk_form(&f, name, (size_t)n))
                fail_msg("%s is not read as a ticket", name);
            if (!says(&f, i, k))
                fail_msg("%s: kind %d, %lld of %lld, renames %d, number %lld at %zu", name,
                         f.place.kind, (long long)f.place.weight,
                         (long long)f.place.capacity, f.renames, (long long)f.place.seq,
                         f.digits);
        }
}

static void other_names_are_no_tickets(void **state)
{
    static const char *const names[] = { "",
                                         "x",
                                         "lock",
                                         "lock-",
                                         "lock-1",
                                         "lock-000000001",
                                         "xlock-0000000001",
                                         "-locks-0000000001",
                                         "latch-0000000001",
                                         "0000000001",
                                         "__READ__",
                                         "__READ__x0000000001",
                                         "_ephemeral",
                                         "_cell",
                                         UUID "-lock-",
                                         UUID "-lock-000000001",
                                         UUID "-lock-00000000001",
                                         UUID "-lock-0000000001x",
                                         UUID "-lock---000000001",
                                         UUID "-LOCK-0000000001",
                                         UUID "-lease-0000000001" };
    struct form f;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (hf__zk_form(&f, names[i], strlen(names[i])))
            fail_msg("%s is read as a ticket", names[i]);
    assert_false(hf__zk_form(&f, UUID "-lock-0000000001", strlen(UUID "-lock-")));
}

/* What we write says to everybody what it is, and whose. */
static void what_is_written_is_read(void **state)
{
    static const struct {
        bool names_rw;
        enum line_kind kind;
        int64_t weight, capacity;
        const char *node;
    } written[] = {
        { false, LINE_LOCK, HF_FULL, HF_FULL, UUID "-lock-" },
        { false, LINE_LOCK, 1, HF_FULL, UUID "-read-lock-" },
        { false, LINE_PERMITS, 3, 7, UUID "-permits.3.7-lock-" },
        { true, LINE_LOCK, HF_FULL, HF_FULL, UUID "-__WRIT__" },
        { true, LINE_LOCK, 1, HF_FULL, UUID "-__READ__" },
        { true, LINE_PERMITS, 3, 7, UUID "-permits.3.7-lock-" },
    };
    static struct ticket t;

    (void)state;
    memcpy(t.token, "\x6b\x1d\x2f\x2e\x7b\x0a\x4b\x52\x9c\x3e\x01\x23\x45\x67\x89\xab",
           HF_TOKEN);
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++) {
        char node[NODE_MAX + 16];
        unsigned char token[HF_TOKEN];
        struct form f;
        size_t n;

        z.names_rw = written[i].names_rw;
        t.kind = (uint8_t)written[i].kind;
        t.weight = written[i].weight;
        t.capacity = written[i].capacity;
        n = hf__zk_node(&z, node, &t);
        assert_int_equal(n, strlen(written[i].node));
        assert_memory_equal(node, written[i].node, n);
        strcpy(node + n, "0000000123");
        assert_true(hf__zk_form(&f, node, strlen(node)));
        assert_int_equal(f.place.kind, t.kind);
        assert_int_equal(f.place.weight, t.weight);
        assert_int_equal(f.place.capacity, t.capacity);
        assert_int_equal(f.place.seq, 123);
        hf__zk_form_token(token, node, strlen(node));
        assert_memory_equal(token, t.token, HF_TOKEN);
    }
}

/* ---- levels ---------------------------------------------------------------------- */

static void paths_never_change(void **state)
{
    static const struct {
        const char *name, *path;
    } known[] = {
        { "n", "/r/n" },
        { "a/b/c", "/r/a/b/c" },
        { "a.b-c d", "/r/a.b-c d" },
        { "\xc3\xa4/\xe2\x82\xac", "/r/\xc3\xa4/\xe2\x82\xac" },
        /* empty levels */
        { "/", "/r/=/=" },
        { "/a", "/r/=/a" },
        { "a//b/", "/r/a/=/b/=" },
        /* the escape itself */
        { "=", "/r/=3D" },
        { "a=b", "/r/a=3Db" },
        { "a=3Db", "/r/a=3D3Db" },
        /* a first byte that sorts below the numbers, or among them; only zeros */
        { ".", "/r/=2E" },
        { "../..", "/r/=2E./=2E." },
        { "-x/ x/!x/#x", "/r/=2Dx/=20x/=21x/=23x" },
        { "0/000/0000000001/42", "/r/=30/=3000/=30000000001/=342" },
        { "9x", "/r/=39x" },
        { ":x", "/r/:x" },
        /* our other children */
        { "_x/x_", "/r/=5Fx/x_" },
        { "_ephemeral", "/r/=5Fephemeral" },
        /* what would be a ticket, or be taken for one by other programs */
        { "x-lock-0000000001", "/r/x-=6Cock-0000000001" },
        { "lock-0000000001", "/r/=6Cock-0000000001" },
        { "x-read-lock-1", "/r/x-read-=6Cock-1" },
        { "deadlock-detector", "/r/dead=6Cock-detector" },
        { "lock", "/r/lock" },
        { "x__READ__1", "/r/x=5F_READ__1" },
        { "x__WRIT__1", "/r/x=5F_WRIT__1" },
        { "x__lock__1", "/r/x=5F_lock__1" },
        { "x__rlock__1", "/r/x=5F_rlock__1" },
        /* what servers refuse */
        { "a\x01"
          "b",
          "/r/a=01b" },
        { "a\x1f\x7f", "/r/a=1F=7F" },
        { "a\xc2\x85", "/r/a=C2=85" },
        { "a\xc2\xa0", "/r/a\xc2\xa0" },
        { "a\xee\x80\x80", "/r/a=EE=80=80" },
        { "a\xef\xbf\xbd", "/r/a=EF=BF=BD" },
        { "a\xf0\x9f\x98\x80", "/r/a=F0=9F=98=80" },
    };
    char path[DIR_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t n = hf__zk_dir(&z, path, known[i].name, strlen(known[i].name));

        path[n] = '\0';
        assert_string_equal(path, known[i].path);
    }
}

/* Only one node means a name: what we would not have written is not ours. */
static void other_nodes_are_no_levels(void **state)
{
    static const char *const levels[] = {
        "",           "=6",   "=6g",   "a=",    "a=6",  "a=62",     "=61",
        "a=3d",       "=2f",  "a=2Fb", "a=00",  "a=FF", "a=C3",     "_x",
        "_ephemeral", "0",    "000",   "-x",    ".",    "x-lock-1", "=nx",
        "a==3D",      "\x01", "a\x7f", "a\xff", "==",   "a/b",      "x__READ__1"
    };
    static char longest[3 * HF_NAME_MAX + 4];
    char name[HF_NAME_MAX];
    size_t n;

    (void)state;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (hf__zk_level(name, &n, levels[i], strlen(levels[i])))
            fail_msg("%s is read as a level", levels[i]);
    memset(longest, 'x', sizeof longest);
    assert_true(hf__zk_level(name, &n, longest, HF_NAME_MAX));
    assert_false(hf__zk_level(name, &n, longest, HF_NAME_MAX + 1));
    assert_false(hf__zk_level(name, &n, longest, sizeof longest));
}

static uint64_t seed;

static unsigned draw(unsigned below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % below;
}

static size_t bad_name(char name[HF_NAME_MAX])
{
    static const char *const pieces[] = {
        "a",
        "x",
        "/",
        "/",
        "=",
        "=2F",
        "0",
        "00000000",
        "42",
        "_",
        "__",
        "-",
        ".",
        "..",
        "lock-",
        "-lock-",
        "-read-",
        "lock",
        "__READ__",
        "__WRIT__",
        "__lock__",
        "__rlock__",
        "permits.1.2",
        "_c_",
        "\x01",
        "\x7f",
        "\xc2\x85",
        "\xc3\xa4",
        "\xee\x80\x80",
        "\xf0\x9f\x98\x80",
        " ",
        "9",
        "n",
        "0000000001",
        "-0000000001",
    };
    size_t len = 0, n = 1 + draw(12);

    for (size_t i = 0; i < n; i++) {
        const char *piece = pieces[draw(sizeof pieces / sizeof pieces[0])];

        memcpy(name + len, piece, strlen(piece));
        len += strlen(piece);
    }
    return len;
}

/* Of every level: no ticket, nothing that sorts before the numbers, not one of our other
 * children; and all of them together say the name and no other. */
static void check_levels(const char *name, size_t name_len)
{
    char path[DIR_MAX + 1], again[HF_NAME_MAX + 1];
    size_t len = hf__zk_dir(&z, path, name, name_len), n = 0, part;
    struct form f;

    path[len] = '\0';
    assert_memory_equal(path, "/r/", 3);
    for (char *level = path + 3, *end; level; level = end ? end + 1 : NULL) {
        size_t level_len;

        end = strchr(level, '/');
        level_len = end ? (size_t)(end - level) : strlen(level);
        assert_true(level_len > 0);
        assert_false(hf__zk_form(&f, level, level_len));
        assert_true((unsigned char)level[0] > '9' && level[0] != '_');
        assert_null(memmem(level, level_len, "lock-", 5));
        if (level != path + 3)
            again[n++] = '/';
        assert_true(hf__zk_level(again + n, &part, level, level_len));
        n += part;
    }
    assert_int_equal(n, name_len);
    assert_memory_equal(again, name, n);
}

static void levels_at_random(void **state)
{
    enum { NAMES = 100000 };
    const char *given = getenv("HF_SEED");
    char name[HF_NAME_MAX];

    (void)state;
    assert_int_equal(getrandom(&seed, sizeof seed, 0), sizeof seed);
    if (given)
        seed = strtoull(given, NULL, 0);
    print_message("# seed: HF_SEED=%llu\n", (unsigned long long)seed);
    for (int i = 0; i < NAMES; i++)
        check_levels(name, bad_name(name));
}

static void roots(void **state)
{
    static const struct {
        const char *path, *ns, *root; /* NULL: refused */
    } known[] = {
        { "", "", "/holdfast" },
        { "/", "", "/holdfast" },
        { "/a", "", "/a" },
        { "/a/b/", "", "/a/b" },
        { "/a", "n", "/a/=nn" },
        { "/a", "x/_y", "/a/=nx=2F_y" },
        { "", "0", "/holdfast/=n=30" },
        { "/a//b", "", NULL },
        { "/a/./b", "", NULL },
        { "/..", "", NULL },
        { "/a\x01", "", NULL },
        { "a", "", NULL },
        { "/\xff", "", NULL },
    };
    char root[ROOT_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        int n = hf__zk_root(root, known[i].path, known[i].ns);

        if (!known[i].root) {
            assert_int_equal(n, -1);
            continue;
        }
        assert_int_equal(n, strlen(known[i].root));
        assert_memory_equal(root, known[i].root, strlen(known[i].root));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_form_is_read, setup),
        cmocka_unit_test_setup(other_names_are_no_tickets, setup),
        cmocka_unit_test_setup(what_is_written_is_read, setup),
        cmocka_unit_test_setup(paths_never_change, setup),
        cmocka_unit_test_setup(other_nodes_are_no_levels, setup),
        cmocka_unit_test_setup(levels_at_random, setup),
        cmocka_unit_test_setup(roots, setup),
    };

    return cmocka_run_group_tests_name("zk-path", tests, NULL, NULL);
}
