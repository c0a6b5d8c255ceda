/* certificates.h: certificates for servers of the tests, by the openssl command. */
#ifndef HF_TESTS_CERTIFICATES_H
#define HF_TESTS_CERTIFICATES_H

/* A certificate authority, and certificates for the server "localhost" and for a client, in
 * dir: ca.crt, server.crt, server.key, client.crt, client.key. */
void certificates_make(const char *dir);
/* One more of that authority: who.crt and who.key. names: of its extensions, a line. */
void certificate_make(const char *dir, const char *who, const char *names);

#endif
