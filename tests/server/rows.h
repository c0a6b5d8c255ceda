/* rows.h: the command on a server: `holdfast bench`, briefly, and the other verbs. */
#ifndef HF_TESTS_ROWS_H
#define HF_TESTS_ROWS_H

/* Runs these cases ("uncontended hand-off"): each gives its rows, in order, with a raw
 * limit beside the figure. How fast it is, is not asked. */
void rows_of(const char *url, const char *backend, const char *cases);

/* run, show, ls, wait and break do what they are for (command.sh). */
void verbs_on(const char *url);

#endif
