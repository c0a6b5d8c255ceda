/* unit.h: cmocka and the headers it wants first. */
#ifndef HF_TESTS_UNIT_H
#define HF_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#endif
