/* environ.c: what the command finds in its environment.
 *
 * How it goes well: HOLDFAST_NAME, HOLDFAST_FENCE, HOLDFAST_STORE (without secrets) for
 * the command; HOLDFAST_OWNER for a run inside it; HOLDFAST_RUN, by which every
 * descendant is known. HOLDFAST_URL is left as it was. How it goes wrong: only for want
 * of memory.
 */
#include "run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static const char *const names[] = { "HOLDFAST_NAME",  "HOLDFAST_FENCE", "HOLDFAST_FENCES",
                                     "HOLDFAST_STORE", "HOLDFAST_OWNER", "HOLDFAST_RUN" };
enum { NNAMES = sizeof names / sizeof *names };
static char *before[NNAMES];

/* For want of memory one is taken for not set: then only a run around us is not found. */
void run_keep_environment(void)
{
    for (int i = 0; i < NNAMES; i++)
        before[i] = getenv(names[i]) ? strdup(getenv(names[i])) : NULL;
}

void run_restore_environment(void)
{
    for (int i = 0; i < NNAMES; i++)
        if (before[i])
            setenv(names[i], before[i], 1);
        else
            unsetenv(names[i]);
}

/* One line for each name, whatever it is made of: a newline is written as \n, so that none
 * can forge a line, and a backslash as \\, so that printf %b gives the name back. */
static void put_name(FILE *f, const char *name)
{
    for (; *name; name++)
        if (*name == '\n' || *name == '\\')
            fputs(*name == '\n' ? "\\n" : "\\\\", f);
        else
            putc(*name, f);
}

static bool set_fences(const struct run *r)
{
    char *text = NULL;
    size_t size;
    if (r->opt.nnames == 1)
        return unsetenv("HOLDFAST_FENCES") == 0;
    FILE *f = open_memstream(&text, &size);
    for (size_t i = 0; f && i < r->opt.nnames; i++) {
        fprintf(f, "%s%" PRIu64 " ", i ? "\n" : "",
                hf_lease_fence_of(r->lease, r->opt.names[i]));
        put_name(f, r->opt.names[i]);
    }
    bool good = f && fclose(f) == 0 && setenv("HOLDFAST_FENCES", text, 1) == 0;
    free(text);
    return good;
}

static bool set_owner(const struct run *r)
{
    int len = hf_lease_owner(r->lease, NULL, 0);
    char *text = len < 0 ? NULL : malloc((size_t)len + 1);
    bool good = text && hf_lease_owner(r->lease, text, (size_t)len + 1) == len &&
                setenv("HOLDFAST_OWNER", text, 1) == 0;
    free(text);
    return good;
}

/* The word by which all descendants are found; it stays in the environment of nested
 * runs, whose own word is added. */
static bool set_word_of_run(const struct run *r)
{
    const char *around = inner_living_words();
    char *word = r->guard.page->family.word, *text;
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
        random = (uint64_t)guard_now();
    snprintf(word, FAMILY_WORD, "%x-%" PRIx64, (unsigned)getpid() & 0xffffffu, random);
    if (asprintf(&text, "%s%s%s", around ? around : "", around && *around ? " " : "",
                 word) < 0)
        return false;
    bool good = setenv("HOLDFAST_RUN", text, 1) == 0;
    free(text);
    return good;
}

/* Inside the lock of another run store and owner stay as that one has set them. */
bool run_set_environment(const struct run *r)
{
    char fence[24];
    const char *name = r->opt.names[0];
    snprintf(fence, sizeof fence, "%" PRIu64,
             r->lease ? hf_lease_fence_of(r->lease, name) : r->outer_fence);
    return setenv("HOLDFAST_NAME", name, 1) == 0 &&
           setenv("HOLDFAST_FENCE", fence, 1) == 0 && set_fences(r) && set_word_of_run(r) &&
           (!r->lease ||
            (setenv("HOLDFAST_STORE", hf_client_url(r->client), 1) == 0 && set_owner(r)));
}
