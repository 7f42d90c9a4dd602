/* The check of the programs in C: tests and benchmarks. */
#ifndef SLIPGATE_CHECK_H
#define SLIPGATE_CHECK_H

#include <stdio.h>
#include <stdlib.h>

/* Ends the program with the line and the text of a condition that does not hold. */
#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);            \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

#endif
