/* The echo of `cargo xtask bench-c` in C. `echo.rs` and `Echo.cs` do the same.
 *
 * Client and server of one program on loopback. For each line of the input the program sends 64 messages a turn
 * and takes their echoes, and prints the processor time of an echo in nanoseconds and the turns of 64 echoes. With the argument `state` it
 * prints the time of one call of slipgate_client_state instead. */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../tests/check.h"
#include "slipgate.h"

enum { CHAT, MESSAGES = 64, MESSAGE_BYTES = 64, WAIT_US = 500, CALLS = 20000000 };
enum { WARM_UP = 64 * 1000, ECHOES = 64 * 1000 };
/* Messages whose echoes have not come back: less than the queue of a channel holds. */
enum { MAX_OUTSTANDING = 192 };

static uint8_t message[MESSAGE_BYTES];
static slipgate_server *server;
static slipgate_client *client;
static slipgate_event events[MESSAGES];
static int turns, sent, echoes;

static double processor_time(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Runs a turn of the server and one of the client, which sends 64 messages unless many are on their way. */
static void turn(void) {
    int before = echoes;
    size_t count;
    turns++;
    slipgate_server_begin_turn(server);
    while (slipgate_server_next_events(server, events, MESSAGES, &count) == SLIPGATE_DONE)
        for (size_t i = 0; i < count; i++)
            if (events[i].kind == SLIPGATE_MESSAGE)
                CHECK(slipgate_server_send_message(server, events[i].client, (uint8_t)events[i].channel,
                                                   events[i].bytes, events[i].length, NULL) == SLIPGATE_DONE);
    slipgate_server_end_turn(server);
    slipgate_client_begin_turn(client);
    while (slipgate_client_next_events(client, events, MESSAGES, &count) == SLIPGATE_DONE)
        for (size_t i = 0; i < count; i++)
            if (events[i].kind == SLIPGATE_MESSAGE)
                echoes += events[i].length == MESSAGE_BYTES && memcmp(events[i].bytes, message, MESSAGE_BYTES) == 0;
    if (slipgate_client_state(client) == 3 && sent - echoes <= MAX_OUTSTANDING - MESSAGES) {
        for (int i = 0; i < MESSAGES; i++)
            CHECK(slipgate_client_send_message(client, CHAT, message, MESSAGE_BYTES, NULL) == SLIPGATE_DONE);
        sent += MESSAGES;
    }
    slipgate_client_end_turn(client);
    if (echoes == before) CHECK(slipgate_client_wait(client, WAIT_US) == SLIPGATE_DONE);
}

/* Takes this many echoes, and returns the processor time of one in nanoseconds. */
static double measure(int wanted) {
    double before = processor_time();
    sent -= echoes;
    echoes = turns = 0;
    while (echoes < wanted) turn();
    return (processor_time() - before) / echoes;
}

static void start(void) {
    slipgate_channel channel;
    slipgate_traffic traffic;
    slipgate_server_config config;
    slipgate_claims claims;
    uint8_t key[SLIPGATE_KEY_BYTES], token[SLIPGATE_TOKEN_BYTES];
    char address[64];
    memset(message, 7, sizeof message);
    memset(&traffic, 0, sizeof traffic);
    memset(&claims, 0, sizeof claims);
    CHECK(slipgate_key_generate(key) == SLIPGATE_DONE);
    CHECK(slipgate_channel_init(&channel, SLIPGATE_RELIABLE_ORDERED, "chat") == SLIPGATE_DONE);
    traffic.size = sizeof traffic;
    traffic.kind = SLIPGATE_CHANNELS;
    traffic.channels = &channel;
    traffic.count = 1;
    CHECK(slipgate_server_config_init(&config) == SLIPGATE_DONE);
    config.bind = "127.0.0.1:0";
    config.slots = 4;
    config.keys = key;
    config.keys_length = sizeof key;
    config.traffic = &traffic;
    config.flags = SLIPGATE_ACCEPT_OLD_TOKENS;
    CHECK(slipgate_server_new(&config, &server, NULL, 0) == SLIPGATE_DONE);
    CHECK(slipgate_client_new(&traffic, &client, NULL, 0) == SLIPGATE_DONE);
    CHECK(slipgate_server_address(server, 0, address, sizeof address) == SLIPGATE_DONE);
    claims.size = sizeof claims;
    claims.client_id = 5;
    claims.servers = address;
    CHECK(slipgate_token_issue(&claims, key, token) == SLIPGATE_DONE);
    CHECK(slipgate_client_connect(client, token, sizeof token) == SLIPGATE_DONE);
}

/* Returns the nanoseconds of one call. */
static double time_of_a_call(void) {
    double before = processor_time();
    int64_t sum = 0;
    for (int i = 0; i < CALLS; i++) sum += slipgate_client_state(client);
    CHECK(sum == 3 * (int64_t)CALLS);
    return (processor_time() - before) / CALLS;
}

int main(int argc, char **argv) {
    char line[16];
    start();
    measure(WARM_UP);
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (argc > 1 && strcmp(argv[1], "state") == 0) {
            printf("%.2f 0\n", time_of_a_call());
        } else {
            double time = measure(ECHOES);
            printf("%.1f %.2f\n", time, (double)turns * MESSAGES / echoes);
        }
        CHECK(fflush(stdout) == 0);
    }
    slipgate_client_free(client);
    slipgate_server_free(server);
    return 0;
}
