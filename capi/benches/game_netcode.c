/* What `game.c` does, with netcode.c and reliable.c, whose sources are not part of this project.
 * `cargo xtask bench-c --netcode <folder> --reliable <folder>` compiles them. */
#define _POSIX_C_SOURCE 199309L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clocks.h"
#include "netcode.h"
#include "reliable.h"

enum { CLIENTS = 64, MESSAGE_BYTES = 64, MAX_TURNS = 1000000, PORT = 40511 };
enum { MAX_OUTSTANDING = 4, GIVE_UP_TURNS = 64 };

typedef struct player {
    struct netcode_client_t *client;
    struct reliable_endpoint_t *endpoint;
    /* The server's side of the connection. */
    struct reliable_endpoint_t *at_server;
    int outstanding, last_echo, returns;
} player;

static player players[CLIENTS];
static uint8_t message[MESSAGE_BYTES];
static struct netcode_server_t *server;
static int turns, connected;
static long sent, echoes;

static void transmit_to_server(void *context, uint64_t id, uint16_t sequence, uint8_t *bytes, int length) {
    (void)context, (void)sequence;
    netcode_client_send_packet(players[id].client, bytes, length);
}

static void transmit_to_client(void *context, uint64_t id, uint16_t sequence, uint8_t *bytes, int length) {
    (void)context, (void)sequence;
    netcode_server_send_packet(server, (int)id, bytes, length);
}

static int take_echo(void *context, uint64_t id, uint16_t sequence, uint8_t *bytes, int length) {
    player *player = &players[id];
    (void)context, (void)sequence;
    CHECK(length == MESSAGE_BYTES && memcmp(bytes, message, MESSAGE_BYTES) == 0);
    echoes++;
    player->outstanding--;
    player->last_echo = turns;
    return 1;
}

static int take_message(void *context, uint64_t id, uint16_t sequence, uint8_t *bytes, int length) {
    (void)context, (void)sequence, (void)bytes;
    CHECK(length == MESSAGE_BYTES);
    players[id].returns++;
    return 1;
}

static void server_turn(double now) {
    netcode_server_update(server, now);
    for (int i = 0; i < CLIENTS; i++) {
        struct reliable_endpoint_t *endpoint = players[i].at_server;
        uint8_t *packet;
        uint64_t sequence;
        int length;
        if (!netcode_server_client_connected(server, i)) continue;
        reliable_endpoint_update(endpoint, now);
        while ((packet = netcode_server_receive_packet(server, i, &length, &sequence)) != NULL) {
            reliable_endpoint_receive_packet(endpoint, packet, length);
            netcode_server_free_packet(server, packet);
        }
        for (; players[i].returns > 0; players[i].returns--)
            reliable_endpoint_send_packet(endpoint, message, MESSAGE_BYTES);
        reliable_endpoint_clear_acks(endpoint);
    }
}

static void client_turn(player *player, double now) {
    uint8_t *packet;
    uint64_t sequence;
    int length;
    netcode_client_update(player->client, now);
    if (netcode_client_state(player->client) != NETCODE_CLIENT_STATE_CONNECTED) return;
    connected++;
    reliable_endpoint_update(player->endpoint, now);
    while ((packet = netcode_client_receive_packet(player->client, &length, &sequence)) != NULL) {
        reliable_endpoint_receive_packet(player->endpoint, packet, length);
        netcode_client_free_packet(player->client, packet);
    }
    /* A lost message must not stop its player for ever. */
    if (turns - player->last_echo > GIVE_UP_TURNS) {
        player->outstanding = 0;
        player->last_echo = turns;
    }
    if (player->outstanding < MAX_OUTSTANDING) {
        reliable_endpoint_send_packet(player->endpoint, message, MESSAGE_BYTES);
        sent++;
        player->outstanding++;
    }
    reliable_endpoint_clear_acks(player->endpoint);
}

static void turn(void) {
    double now = seconds_of(CLOCK_MONOTONIC);
    connected = 0;
    for (int i = 0; i < CLIENTS; i++) client_turn(&players[i], now);
    server_turn(now);
    turns++;
}

static void measure(long wanted) {
    double before = processor_time(), share;
    sent = echoes = 0;
    turns = 0;
    for (int i = 0; i < CLIENTS; i++) players[i].last_echo = 0;
    while (echoes < wanted && turns < MAX_TURNS) turn();
    CHECK(echoes >= wanted);
    share = (double)echoes / (double)sent;
    printf("%.1f %.4f\n", (processor_time() - before) / (double)echoes / 2, share);
}

static struct reliable_endpoint_t *endpoint_of(int index, int is_server, double now) {
    struct reliable_config_t config;
    struct reliable_endpoint_t *endpoint;
    reliable_default_config(&config);
    config.id = (uint64_t)index;
    config.transmit_packet_function = is_server ? transmit_to_client : transmit_to_server;
    config.process_packet_function = is_server ? take_message : take_echo;
    endpoint = reliable_endpoint_create(&config, now);
    CHECK(endpoint != NULL);
    return endpoint;
}

/* Connects one player after the other, so that the slot of a player is its index. */
static void connect_player(int index, const uint8_t *key, const char *address) {
    struct netcode_client_config_t config;
    uint8_t token[NETCODE_CONNECT_TOKEN_BYTES], user_data[NETCODE_USER_DATA_BYTES];
    player *player = &players[index];
    memset(user_data, 0, sizeof user_data);
    netcode_default_client_config(&config);
    CHECK(netcode_generate_connect_token(1, &address, &address, 600, 15, (uint64_t)index + 1, 0, key, user_data,
                                         token) == NETCODE_OK);
    player->client = netcode_client_create("127.0.0.1", &config, seconds_of(CLOCK_MONOTONIC));
    CHECK(player->client != NULL);
    netcode_client_connect(player->client, token);
    for (int i = 0; i < MAX_TURNS; i++) {
        double now = seconds_of(CLOCK_MONOTONIC);
        for (int other = 0; other <= index; other++) netcode_client_update(players[other].client, now);
        netcode_server_update(server, now);
        if (netcode_client_state(player->client) == NETCODE_CLIENT_STATE_CONNECTED) break;
    }
    CHECK(netcode_client_index(player->client) == index);
    player->endpoint = endpoint_of(index, 0, seconds_of(CLOCK_MONOTONIC));
    player->at_server = endpoint_of(index, 1, seconds_of(CLOCK_MONOTONIC));
}

int main(void) {
    struct netcode_server_config_t config;
    char line[16], address[32];
    CHECK(netcode_init() == NETCODE_OK && reliable_init() == RELIABLE_OK);
    netcode_log_level(NETCODE_LOG_LEVEL_NONE);
    reliable_log_level(RELIABLE_LOG_LEVEL_NONE);
    memset(message, 7, sizeof message);
    netcode_default_server_config(&config);
    netcode_random_bytes(config.private_key, NETCODE_KEY_BYTES);
    sprintf(address, "127.0.0.1:%d", PORT);
    server = netcode_server_create(address, &config, seconds_of(CLOCK_MONOTONIC));
    CHECK(server != NULL);
    netcode_server_start(server, CLIENTS);
    for (int i = 0; i < CLIENTS; i++) connect_player(i, config.private_key, address);
    for (int i = 0; i < MAX_TURNS && connected < CLIENTS; i++) turn();
    CHECK(connected == CLIENTS);
    while (fgets(line, sizeof line, stdin) != NULL) {
        measure(atol(line));
        CHECK(fflush(stdout) == 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        netcode_client_destroy(players[i].client);
        reliable_endpoint_destroy(players[i].endpoint);
        reliable_endpoint_destroy(players[i].at_server);
    }
    netcode_server_destroy(server);
    reliable_term();
    netcode_term();
    return 0;
}
