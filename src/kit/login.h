/* login.h: as whom a driver logs in. The password is given, or stands in a file, which is
 * read for every login: tokens expire, and passwords are changed while programs run. */
#ifndef HF_KIT_LOGIN_H
#define HF_KIT_LOGIN_H

#include "util/error.h"

#include <stdbool.h>

enum { PASSWORD_MAX = 8192 };

struct login {
    char *user, *password; /* NULL: none */
    char *file;            /* of the password; NULL: none */
};

/* Copies them; an empty user is none. HF_EINVAL: both a password and a file, a file whose
 * path is not absolute. A file must be usable now: else as hf__login_password.
 * `where`: for messages. `login` is zeroed before; hf__login_done is to be called in any
 * case. */
int hf__login_init(struct login *, const char *user, const char *password, const char *file,
                   const char *where, hf_error *);
void hf__login_done(struct login *); /* overwrites the password */

static inline bool login_wanted(const struct login *l)
{
    return l->password || l->file;
}

/* The password to be used now; the caller overwrites `text` after use. HF_EAUTH: the file
 * cannot be used, and why; HF_ENOMEM. Of a file one newline at the end is cut off. Its
 * content is in no message. */
int hf__login_password(const struct login *, char text[PASSWORD_MAX + 1], hf_error *);

#endif
