/* The clocks of the benchmarks in C. Define _POSIX_C_SOURCE as 199309L before the first include. */
#ifndef SLIPGATE_CLOCKS_H
#define SLIPGATE_CLOCKS_H

#include <time.h>

#include "../tests/check.h"

/* Returns the time of a clock in seconds. */
static double seconds_of(clockid_t clock) {
    struct timespec time;
    CHECK(clock_gettime(clock, &time) == 0);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Returns the processor time of this program in nanoseconds. */
static double processor_time(void) {
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID) * 1e9;
}

#endif
