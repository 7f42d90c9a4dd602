/* A server on loopback and its clients, for the benchmarks of the C interface. */
#ifndef SLIPGATE_LOOPBACK_H
#define SLIPGATE_LOOPBACK_H

#include <string.h>

#include "../tests/check.h"
#include "slipgate.h"

enum { CONNECTED = 3 };

typedef struct loopback {
    slipgate_server *server;
    /* Must live while clients are created. */
    const slipgate_traffic *traffic;
    uint8_t key[SLIPGATE_KEY_BYTES];
    char address[64];
} loopback;

/* Starts a server on a free port. */
static loopback start_server(const slipgate_traffic *traffic, uint32_t slots) {
    slipgate_server_config config;
    loopback started;
    memset(&started, 0, sizeof started);
    started.traffic = traffic;
    CHECK(slipgate_key_generate(started.key) == SLIPGATE_DONE);
    CHECK(slipgate_server_config_init(&config) == SLIPGATE_DONE);
    config.bind = "127.0.0.1:0";
    config.slots = slots;
    config.keys = started.key;
    config.keys_length = sizeof started.key;
    config.traffic = traffic;
    config.flags = SLIPGATE_ACCEPT_OLD_TOKENS;
    CHECK(slipgate_server_new(&config, &started.server, NULL, 0) == SLIPGATE_DONE);
    CHECK(slipgate_server_address(started.server, 0, started.address, sizeof started.address) == SLIPGATE_DONE);
    return started;
}

/* Creates a client with a new token. Its connection begins with its first turn. */
static slipgate_client *start_client(const loopback *to, uint64_t client_id) {
    slipgate_client *client;
    slipgate_claims claims;
    uint8_t token[SLIPGATE_TOKEN_BYTES];
    memset(&claims, 0, sizeof claims);
    claims.size = sizeof claims;
    claims.client_id = client_id;
    claims.servers = to->address;
    CHECK(slipgate_token_issue(&claims, to->key, token) == SLIPGATE_DONE);
    CHECK(slipgate_client_new(to->traffic, &client, NULL, 0) == SLIPGATE_DONE);
    CHECK(slipgate_client_connect(client, token, sizeof token) == SLIPGATE_DONE);
    return client;
}

#endif
