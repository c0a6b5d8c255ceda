/* certificates.c: see certificates.h. Goes wrong: what openssl says is in openssl.log. */
#include "certificates.h"

#include "check.h"
#include "server.h"

#include <stdio.h>
#include <stdlib.h>

static void openssl(const char *dir, const char *args)
{
    char command[1024];

    snprintf(command, sizeof(command), "cd '%s' && openssl %s >openssl.log 2>&1", dir,
             args);
    if (system(command) != 0)
        check_failed(__FILE__, __LINE__, "failed: %s", command);
}

void certificate_make(const char *dir, const char *who, const char *names)
{
    char args[512];

    snprintf(args, sizeof(args),
             "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout %s.key"
             " -out %s.csr -subj /CN=%s",
             who, who, who);
    openssl(dir, args);
    file_put(dir, "names", "w", names);
    snprintf(args, sizeof(args),
             "x509 -req -in %s.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2"
             " -extfile names -out %s.crt",
             who, who);
    openssl(dir, args);
}

void certificates_make(const char *dir)
{
    openssl(dir, "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
                 " -keyout ca.key -out ca.crt -subj /CN=holdfast-test");
    certificate_make(dir, "server", "subjectAltName=DNS:localhost,IP:127.0.0.1\n");
    certificate_make(dir, "client", "extendedKeyUsage=clientAuth\n");
}
