/* 64 clients and a server in one program on loopback, for `cargo xtask bench-c --netcode`. `game_netcode.c` does the
 * same with netcode.c and reliable.c.
 *
 * In each turn every client sends a message of 64 bytes unless four of its echoes are missing, and the server returns
 * what has arrived. For each line of the input the program takes as many echoes as the line says, and prints the
 * processor time of a message in nanoseconds and the share of the echoes that arrived. With the argument `channels` the
 * messages are those of an unreliable channel, else acknowledged packets, as those of reliable.c. */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clocks.h"
#include "loopback.h"

enum { STATE, CLIENTS = 64, MESSAGE_BYTES = 64, BATCH = 64, MAX_TURNS = 1000000 };
enum { MAX_OUTSTANDING = 4, GIVE_UP_TURNS = 64 };

/* A player: the messages whose echoes have not come back, and the turn in which the last one came. */
typedef struct player {
    slipgate_client *client;
    int outstanding, last_echo;
} player;

static player players[CLIENTS];
static uint8_t message[MESSAGE_BYTES];
static slipgate_server *server;
static slipgate_event events[BATCH];
static uint32_t event_kind;
static int turns, connected;
static long sent, echoes;

static int send_to_server(slipgate_client *client) {
    if (event_kind == SLIPGATE_MESSAGE)
        return slipgate_client_send_message(client, STATE, message, sizeof message, NULL);
    return slipgate_client_send_packet(client, message, sizeof message, NULL);
}

static int send_back(const slipgate_event *event) {
    if (event_kind == SLIPGATE_MESSAGE)
        return slipgate_server_send_message(server, event->client, STATE, event->bytes, event->length, NULL);
    return slipgate_server_send_packet(server, event->client, event->bytes, event->length, NULL);
}

static void server_turn(void) {
    size_t count;
    slipgate_server_begin_turn(server);
    while (slipgate_server_next_events(server, events, BATCH, &count) == SLIPGATE_DONE)
        for (size_t i = 0; i < count; i++)
            if (events[i].kind == event_kind) {
                int status = send_back(&events[i]);
                CHECK(status == SLIPGATE_DONE || status == SLIPGATE_ERROR_BACKLOGGED);
            }
    slipgate_server_end_turn(server);
}

static void client_turn(player *player) {
    size_t count;
    slipgate_client_begin_turn(player->client);
    while (slipgate_client_next_events(player->client, events, BATCH, &count) == SLIPGATE_DONE)
        for (size_t i = 0; i < count; i++)
            if (events[i].kind == event_kind) {
                CHECK(events[i].length == sizeof message && memcmp(events[i].bytes, message, sizeof message) == 0);
                echoes++;
                player->outstanding--;
                player->last_echo = turns;
            }
    connected += slipgate_client_state(player->client) == CONNECTED;
    /* A lost message must not stop its player for ever. */
    if (turns - player->last_echo > GIVE_UP_TURNS) {
        player->outstanding = 0;
        player->last_echo = turns;
    }
    if (slipgate_client_state(player->client) == CONNECTED && player->outstanding < MAX_OUTSTANDING) {
        int status = send_to_server(player->client);
        /* The congestion control may ask for a pause. */
        CHECK(status == SLIPGATE_DONE || status == SLIPGATE_ERROR_BACKLOGGED);
        sent += status == SLIPGATE_DONE;
        player->outstanding += status == SLIPGATE_DONE;
    }
    slipgate_client_end_turn(player->client);
}

static void turn(void) {
    connected = 0;
    for (int i = 0; i < CLIENTS; i++) client_turn(&players[i]);
    server_turn();
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
    /* An echo is two messages: there and back. */
    printf("%.1f %.4f\n", (processor_time() - before) / (double)echoes / 2, share);
}

static void start(int with_channels) {
    slipgate_channel channel;
    slipgate_traffic traffic;
    loopback started;
    memset(&traffic, 0, sizeof traffic);
    event_kind = with_channels ? SLIPGATE_MESSAGE : SLIPGATE_PACKET;
    CHECK(slipgate_channel_init(&channel, SLIPGATE_UNRELIABLE, "state") == SLIPGATE_DONE);
    traffic.size = sizeof traffic;
    traffic.kind = with_channels ? SLIPGATE_CHANNELS : SLIPGATE_PACKETS;
    traffic.channels = with_channels ? &channel : NULL;
    traffic.count = with_channels ? 1 : 0;
    started = start_server(&traffic, CLIENTS);
    server = started.server;
    for (int i = 0; i < CLIENTS; i++) players[i].client = start_client(&started, (uint64_t)i + 1);
    for (int i = 0; i < MAX_TURNS && connected < CLIENTS; i++) turn();
    CHECK(connected == CLIENTS);
}

int main(int argc, char **argv) {
    char line[16];
    memset(message, 7, sizeof message);
    start(argc > 1 && strcmp(argv[1], "channels") == 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        measure(atol(line));
        CHECK(fflush(stdout) == 0);
    }
    for (int i = 0; i < CLIENTS; i++) slipgate_client_free(players[i].client);
    slipgate_server_free(server);
    return 0;
}
