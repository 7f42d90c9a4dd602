/* A mistake that valgrind must report: send options whose size and flags were never written. */
#include <stdlib.h>

#include "slipgate.h"

int main(void) {
    slipgate_send_options *options = malloc(sizeof *options);
    slipgate_client *client = NULL;
    if (options == NULL || slipgate_client_new(NULL, &client, NULL, 0) != SLIPGATE_DONE) return 1;
    slipgate_client_send_message(client, 0, (const uint8_t *)"a", 1, options);
    slipgate_client_free(client);
    free(options);
    return 0;
}
