/* module.c: finds the driver for a URL scheme, and what does TLS: linked in, or in a module
 * that is loaded now and never unloaded (client libraries leave atexit handlers and thread
 * destructors behind).
 *
 * A module is searched in $HOLDFAST_MODULE_DIR (not in a set-id program), else in holdfast/
 * beside the library, else in the configured folder; file and folder must belong to root or
 * to us and be writable by nobody else. Its one symbol carries the build id of the seam;
 * another one is HF_EVERSION, naming both.
 *
 * The table of loaded modules is process-wide; `lock` guards it, and is held while a module
 * is being loaded, so that nobody loads it twice.
 *
 * Fork: a thread that loads a module does not exist in the child, and would leave there the
 * lock taken and the dynamic linker's own tables half changed. So the handler before the
 * fork takes the lock: fork waits until the module is loaded, and parent and child find the
 * table whole. It waits for the dynamic linker only: under the lock nothing else is waited
 * for, no other lock of ours is taken, and no code of a module runs but what its libraries
 * do when they are loaded. Such code may register fork handlers itself: since version 2.36
 * the C library runs handlers without the lock that registering takes. */
#include "core/core.h"
#include "driver/builtin.h"

#include "hf-config.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOADED_MAX = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct hf_driver *loaded[LOADED_MAX];
static size_t nloaded;
static const struct tls_module *loaded_tls;

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

static void set_handlers(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
}

static void enter(void)
{
    pthread_once(&once, set_handlers);
    pthread_mutex_lock(&lock);
}

static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = words; (p = strstr(p, word)) != NULL; p++)
        if ((p == words || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    return false;
}

static const struct hf_driver *known(const char *scheme)
{
    for (size_t i = 0; hf__builtin_drivers[i]; i++)
        if (has_word(hf__builtin_drivers[i]->schemes, scheme))
            return hf__builtin_drivers[i];
    for (size_t i = 0; i < nloaded; i++)
        if (has_word(loaded[i]->schemes, scheme))
            return loaded[i];
    return NULL;
}

static const struct known_driver *heard_of(const char *scheme)
{
    for (const struct known_driver *k = hf__known_drivers; k->name; k++)
        if (has_word(k->schemes, scheme))
            return k;
    return NULL;
}

static bool ours_alone(const struct stat *st)
{
    return (st->st_uid == 0 || st->st_uid == geteuid()) &&
           !(st->st_mode & (S_IWGRP | S_IWOTH));
}

static bool trusted(const char *folder, const char *path, bool *exists)
{
    struct stat file, dir;

    *exists = path[0] == '/' && stat(path, &file) == 0 && stat(folder, &dir) == 0;
    return *exists && ours_alone(&file) && ours_alone(&dir);
}

/* The i-th folder to search; false beyond the last. */
static bool folder_at(int i, char *buf, size_t size)
{
    const char *env = getauxval(AT_SECURE) ? NULL : getenv("HOLDFAST_MODULE_DIR");
    Dl_info info;
    char *slash;

    if (env && *env)
        return i == 0 && snprintf(buf, size, "%s", env) < (int)size;
    if (i == 0) {
        if (!dladdr((void *)(uintptr_t)&hf_version, &info) || !info.dli_fname)
            return folder_at(1, buf, size);
        if (!realpath(info.dli_fname, buf))
            return folder_at(1, buf, size);
        slash = strrchr(buf, '/');
        snprintf(slash, size - (size_t)(slash - buf), "/holdfast");
        return true;
    }
    return i == 1 && snprintf(buf, size, "%s", HF_MODULE_DIR) < (int)size;
}

static int take_module(void *dl, const char *path, hf_error *err)
{
    const struct hf_module *m = dlsym(dl, "hf_module");

    if (!m)
        return hf__fail(err, HF_EMODULE, 0, NULL, "%s is not a holdfast module", path);
    if (strcmp(m->build_id, HF_BUILD_ID) != 0)
        return hf__fail(err, HF_EVERSION, 0, NULL,
                        "%s was built for %s, the library is %s: install the same version",
                        path, m->build_id, HF_BUILD_ID);
    for (size_t i = 0; i < sizeof m->drivers / sizeof *m->drivers && m->drivers[i]; i++)
        if (nloaded < LOADED_MAX)
            loaded[nloaded++] = m->drivers[i];
    if (m->tls)
        loaded_tls = m->tls;
    return 0;
}

/* 0, HF_E*, or HF_ENOENT with *err untouched: there is no such module. */
static int load(const char *module, hf_error *err)
{
    char folder[PATH_MAX], path[PATH_MAX + 300];
    bool exists;

    for (int i = 0; folder_at(i, folder, sizeof folder); i++) {
        void *dl;

        snprintf(path, sizeof path, "%s/holdfast-%s.so", folder, module);
        if (!trusted(folder, path, &exists)) {
            if (exists)
                return hf__fail(err, HF_EMODULE, 0, NULL,
                                "%s: it or its folder can be written by others", path);
            continue;
        }
        dl = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (!dl)
            return hf__fail(err, HF_EMODULE, 0, NULL, "cannot load: %s", dlerror());
        return take_module(dl, path, err);
    }
    return HF_ENOENT;
}

static int no_such_store(const char *scheme, const char *module, hf_error *err)
{
    char schemes[256] = "";
    size_t n = 0;

    for (const struct known_driver *k = hf__known_drivers; k->name; k++)
        if (n < sizeof schemes)
            n += (size_t)snprintf(schemes + n, sizeof schemes - n, " %s", k->schemes);
    return hf__fail(
        err, HF_EINVAL, 0, NULL,
        "URL: no store is called %s: (nor a module holdfast-%s.so); there are%s", scheme,
        module, schemes);
}

/* The module of a driver we know, else the one of the scheme's name; variants of a scheme
 * (name+variant) share a module. */
static int load_driver(const char *scheme, hf_error *err)
{
    const struct known_driver *k = heard_of(scheme);
    const char *name = k ? k->name : scheme;
    char module[64];
    int rc;

    snprintf(module, sizeof module, "%.*s", (int)strcspn(name, "+"), name);
    rc = load(module, err);
    if (rc != HF_ENOENT)
        return rc;
    if (k)
        return hf__fail(
            err, HF_EMODULE, 0, NULL, "%s: its module holdfast-%s.so is %s", scheme, module,
            k->state == HF_BACKEND_MISSING ? "missing: this library was built without it"
                                           : "not installed");
    return no_such_store(scheme, module, err);
}

int hf__driver_find(const char *scheme, const struct hf_driver **ret, hf_error *err)
{
    char base[40];
    int rc = 0;

    enter();
    if (!known(scheme))
        rc = load_driver(scheme, err);
    *ret = rc == 0 ? known(scheme) : NULL;
    pthread_mutex_unlock(&lock);
    if (rc == 0 && !*ret) {
        snprintf(base, sizeof base, "%.*s", (int)strcspn(scheme, "+"), scheme);
        rc = heard_of(base) ? no_such_store(scheme, scheme, err)
                            : hf__fail(err, HF_EMODULE, 0, NULL,
                                       "the module has no driver for %s:", scheme);
    }
    return rc;
}

static int load_tls(hf_error *err)
{
    int rc = load("tls", err);

    if (rc == 0 && !loaded_tls)
        return hf__fail(err, HF_EMODULE, 0, NULL, "holdfast-tls.so has no TLS in it");
    if (rc != HF_ENOENT)
        return rc;
    return hf__fail(err, HF_EMODULE, 0, NULL, "TLS: the module holdfast-tls.so is %s",
                    hf__tls_state == HF_BACKEND_MISSING
                        ? "missing: this library was built without it (OpenSSL 3, -Dtls)"
                        : "not installed");
}

int hf__tls_find(const struct tls_module **ret, hf_error *err)
{
    int rc = 0;

    *ret = hf__builtin_tls;
    if (*ret)
        return 0;
    enter();
    if (!loaded_tls)
        rc = load_tls(err);
    *ret = loaded_tls;
    pthread_mutex_unlock(&lock);
    return rc;
}

int hf_preload(const char *schemes, hf_error *err)
{
    const struct hf_driver *driver;
    const struct tls_module *tls;
    char word[64];
    int n = 0, rc = 0;

    if (!schemes)
        return hf__fail(err, HF_EINVAL, 0, NULL, "hf_preload: schemes is NULL");
    while (rc == 0 && sscanf(schemes, " %63s%n", word, &n) == 1) {
        rc = strcmp(word, "tls") == 0 ? hf__tls_find(&tls, err)
                                      : hf__driver_find(word, &driver, err);
        schemes += n;
    }
    return rc;
}

/* Where the module of a driver is, or why it cannot be used. */
static uint32_t module_state(const char *name, char *detail, size_t size)
{
    char folder[PATH_MAX], path[PATH_MAX + 300];
    bool exists;

    for (int i = 0; folder_at(i, folder, sizeof folder); i++) {
        bool good;

        snprintf(path, sizeof path, "%s/holdfast-%s.so", folder, name);
        good = trusted(folder, path, &exists);
        if (!exists)
            continue;
        snprintf(detail, size, "%.*s%s", (int)size - 40, path,
                 good ? "" : ": can be written by others");
        return good ? HF_BACKEND_MODULE : HF_BACKEND_MISSING;
    }
    snprintf(detail, size, "the module holdfast-%s.so is not installed", name);
    return HF_BACKEND_MISSING;
}

static void describe(const struct known_driver *k, hf_backend *b)
{
    b->name = k->name;
    b->schemes = k->schemes;
    b->state = (uint32_t)k->state;
    if (k->state == HF_BACKEND_MISSING)
        snprintf(b->detail, sizeof b->detail, "left out when this library was built");
    else if (k->state == HF_BACKEND_MODULE)
        b->state = module_state(k->name, b->detail, sizeof b->detail);
    for (size_t n = 0; k->state == HF_BACKEND_BUILTIN && hf__builtin_drivers[n]; n++)
        if (strcmp(hf__builtin_drivers[n]->name, k->name) == 0 &&
            hf__builtin_drivers[n]->detail)
            hf__builtin_drivers[n]->detail(b->detail, sizeof b->detail);
}

int hf_backend_at(size_t i, hf_backend *ret)
{
    const struct known_driver *k = hf__known_drivers;
    hf_backend b = { 0 };

    if (!ret || ret->size < HF_BACKEND_SIZE_0_1)
        return HF_EINVAL;
    while (k->name && i-- > 0)
        k++;
    if (!k->name)
        return HF_ENOENT;
    describe(k, &b);
    hf__fill_sized(ret, ret->size, &b, sizeof b);
    return 0;
}
