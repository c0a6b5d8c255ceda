/* rows.h: `holdfast bench` on a server, briefly. */
#ifndef HF_TESTS_ROWS_H
#define HF_TESTS_ROWS_H

/* Runs these cases ("uncontended hand-off"): each gives its rows, in order, with a raw
 * limit beside the figure. How fast it is, is not asked. */
void rows_of(const char *url, const char *backend, const char *cases);

#endif
