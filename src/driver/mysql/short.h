/* short.h: the statements of short.c, for the driver and for the tests that let them meet
 * the procedures of schema.sql. Each "?" is what TAKE_ARGS and GIVE_ARGS say. */
#ifndef HF_MYSQL_SHORT_H
#define HF_MYSQL_SHORT_H

#define MY_CLOCK "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

/* The conditions on the row come before the one that takes the user lock. */
#define MY_TAKE_TEXT                                                                       \
    "UPDATE holdfast_line SET kind = 0, cap = ?, n = 1, total = ?,"                        \
    " fence = LAST_INSERT_ID(GREATEST(fence + 1, " MY_CLOCK ")),"                          \
    " soonest = " MY_CLOCK " + ? * 1000, touched = " MY_CLOCK ", token = ?, number = 0,"   \
    " joined = " MY_CLOCK ", granted = " MY_CLOCK ", ttl = ?, client = ?, process = ?,"    \
    " owner = ?, pid = ?, host = ?, note = ?, hints = ?"                                   \
    " WHERE ns = ? AND name = ? AND n = 0 AND nw = 0 AND (@holdfast_wake = 0"              \
    " OR IS_USED_LOCK(CONCAT('hf_', HEX(?))) <=> CONNECTION_ID()"                          \
    " OR GET_LOCK(CONCAT('hf_', HEX(?)), 0) <=> 1)"

#define MY_GIVE_TEXT                                                                       \
    "UPDATE holdfast_line SET n = 0, total = 0, touched = " MY_CLOCK ","                   \
    " token = LEFT('', @holdfast_wake = 1 AND"                                             \
    " RELEASE_LOCK(CONCAT('hf_', HEX(?))) IS NOT NULL)"                                    \
    " WHERE ns = ? AND name = ? AND token = ? AND nw = 0"

/* Which argument of join, and of leave, each one is. */
#define MY_TAKE_ARGS 4, 5, 6, 2, 6, 8, 9, 10, 11, 12, 13, 14, 0, 1, 2, 2
#define MY_GIVE_ARGS 2, 0, 1, 2

#endif
