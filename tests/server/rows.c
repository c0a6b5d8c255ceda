/* rows.c: `holdfast bench` on a server, briefly, and what it says; the other verbs by a
 * script. */
#include "rows.h"

#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number of a row; fails if it is null or missing. */
static double number(const char *row, const char *key)
{
    char quoted[64];
    const char *at;

    snprintf(quoted, sizeof(quoted), "\"%s\": ", key);
    at = strstr(row, quoted);
    if (!at || strncmp(at + strlen(quoted), "null", 4) == 0)
        check_failed(__FILE__, __LINE__, "no %s in %s", key, row);
    return strtod(at + strlen(quoted), NULL);
}

/* It has two rows: by threads and by processes; beside a limit that sleeps and one that
 * polls, which not every store has; on etcd hand-offs, also beside a writer. */
static bool comes_twice(const char *word, size_t len, const char *row, const char *backend)
{
    return strncmp(word, "contended", len) == 0 ||
           (strncmp(word, "uncontended", len) == 0 &&
            strstr(row, "\"raw\": \"sleeping\"")) ||
           (strncmp(word, "hand-off", len) == 0 && strcmp(backend, "etcd") == 0);
}

void rows_of(const char *url, const char *backend, const char *cases)
{
    char command[1024], row[4096], want[128];
    bool again = false;
    FILE *f;

    snprintf(command, sizeof(command), "%s -u '%s' bench --json --time 500ms %s", HOLDFAST,
             url, cases);
    f = popen(command, "r");
    CHECK(f);
    while (fgets(row, sizeof(row), f)) {
        size_t len = strcspn(cases, " ");

        CHECK(len > 0); /* else there are more rows than cases */
        snprintf(want, sizeof(want), "{\"case\": \"%.*s\", \"backend\": \"%s", (int)len,
                 cases, backend);
        CHECK(strncmp(row, want, strlen(want)) == 0);
        CHECK(number(row, "pairs_per_s") > 0 && number(row, "raw_pairs_per_s") > 0);
        CHECK(number(row, "ratio_to_raw") > 0 && number(row, "processors") > 0);
        if (strstr(row, "contended\""))
            CHECK(number(row, "client_us") > 0 && number(row, "raw_client_us") > 0);
        again = comes_twice(cases, len, row, backend) && !again;
        if (!again)
            cases += len + (cases[len] == ' ');
    }
    CHECK_NUM(pclose(f), ==, 0);
    CHECK_STR(cases, "");
}

void verbs_on(const char *url)
{
    char command[1024];

    snprintf(command, sizeof(command), "exec sh '%s' '%s' '%s'", COMMAND_SH, HOLDFAST, url);
    CHECK_NUM(system(command), ==, 0);
}
