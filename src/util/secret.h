/* secret.h: which parts of a URL are secret. The command uses it too. */
#ifndef HF_UTIL_SECRET_H
#define HF_UTIL_SECRET_H

#include <stdbool.h>
#include <stddef.h>

/* Is this the name of an option with a secret value? However it is written: PassWord,
 * pass%77ord. */
bool hf__secret_name(const char *, size_t len);

/* A copy of the URL less the password and the values of secret options; the caller frees
 * it; NULL: no memory. Takes any text: also one that is no URL, or not yet known to be. */
char *hf__without_secrets(const char *url);

#endif
