/* A mistake that the address sanitizer must report: a length beyond the end of the bytes. */
#include <stdlib.h>

#include "slipgate.h"

int main(void) {
    slipgate_transfer *transfer = NULL;
    uint8_t *bytes = malloc(8);
    if (bytes == NULL || slipgate_transfer_new(bytes, 9, &transfer) != SLIPGATE_DONE) return 1;
    slipgate_transfer_free(transfer);
    free(bytes);
    return 0;
}
