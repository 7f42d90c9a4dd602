/* The echo of `cargo xtask bench-c` in C. `echo.rs` and `Echo.cs` do the same.
 *
 * Client and server of one program on loopback. A turn begins every 2 ms, and the client sends 64 messages in it. The
 * pause keeps the load far below what the congestion control allows: a loop without pauses would measure its rate,
 * and not the interface. So each turn takes the 64 echoes of the turn before, and each language does the same work.
 *
 * For each line of the input the program runs as many turns as the line says, and prints the processor time of an echo
 * in nanoseconds, without the pauses, and the turns of 64 echoes. With the argument `state` it prints the time of one
 * call of slipgate_client_state instead, and the turns only connect it. */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clocks.h"
#include "loopback.h"

enum { CHAT, MESSAGES = 64, MESSAGE_BYTES = 64, CALLS = 20000000 };
/* Messages whose echoes have not come back: less than the queue of a channel holds. */
enum { MAX_OUTSTANDING = 192 };
static const double TURN_SECONDS = 0.002;

static uint8_t message[MESSAGE_BYTES];
static slipgate_server *server;
static slipgate_client *client;
static slipgate_event events[MESSAGES];
static slipgate_outgoing_message outgoing[MESSAGES];
static int sent, echoes;

static void server_turn(void) {
    size_t count;
    slipgate_server_begin_turn(server);
    while (slipgate_server_next_events(server, events, MESSAGES, &count) == SLIPGATE_DONE) {
        size_t echo = 0;
        for (size_t i = 0; i < count; i++)
            if (events[i].kind == SLIPGATE_MESSAGE) {
                outgoing[echo].client = events[i].client;
                outgoing[echo].channel = events[i].channel;
                outgoing[echo].bytes = events[i].bytes;
                outgoing[echo++].length = events[i].length;
            }
        CHECK(slipgate_server_send_messages(server, outgoing, echo) == SLIPGATE_DONE);
    }
    slipgate_server_end_turn(server);
}

/* Sends 64 messages unless many are on their way. */
static void client_turn(void) {
    size_t count;
    slipgate_client_begin_turn(client);
    while (slipgate_client_next_events(client, events, MESSAGES, &count) == SLIPGATE_DONE)
        for (size_t i = 0; i < count; i++)
            if (events[i].kind == SLIPGATE_MESSAGE)
                echoes += events[i].length == MESSAGE_BYTES && memcmp(events[i].bytes, message, MESSAGE_BYTES) == 0;
    if (slipgate_client_state(client) == CONNECTED && sent - echoes <= MAX_OUTSTANDING - MESSAGES) {
        for (int i = 0; i < MESSAGES; i++) {
            outgoing[i].channel = CHAT;
            outgoing[i].bytes = message;
            outgoing[i].length = MESSAGE_BYTES;
        }
        CHECK(slipgate_client_send_messages(client, outgoing, MESSAGES) == SLIPGATE_DONE);
        sent += MESSAGES;
    }
    slipgate_client_end_turn(client);
}

/* Runs turns and returns their processor time in nanoseconds. The pauses are busy, so that caches and clock rate are
 * those of a loaded game. */
static double run(int turns) {
    double time = 0, due = seconds_of(CLOCK_MONOTONIC);
    sent -= echoes;
    echoes = 0;
    for (int i = 0; i < turns; i++) {
        double before, now;
        while ((now = seconds_of(CLOCK_MONOTONIC)) < due) {}
        /* A late turn delays the next ones: no two of them follow without a pause. */
        due = now + TURN_SECONDS;
        before = processor_time();
        server_turn();
        client_turn();
        time += processor_time() - before;
    }
    return time;
}

static void start(void) {
    slipgate_channel channel;
    slipgate_traffic traffic;
    loopback started;
    memset(&traffic, 0, sizeof traffic);
    CHECK(slipgate_channel_init(&channel, SLIPGATE_RELIABLE_ORDERED, "chat") == SLIPGATE_DONE);
    traffic.size = sizeof traffic;
    traffic.kind = SLIPGATE_CHANNELS;
    traffic.channels = &channel;
    traffic.count = 1;
    started = start_server(&traffic, 4);
    server = started.server;
    client = start_client(&started, 5);
}

/* Returns the nanoseconds of one call. */
static double time_of_a_call(void) {
    double before = processor_time();
    int64_t sum = 0;
    for (int i = 0; i < CALLS; i++) sum += slipgate_client_state(client);
    CHECK(sum == CONNECTED * (int64_t)CALLS);
    return (processor_time() - before) / CALLS;
}

int main(int argc, char **argv) {
    char line[16];
    memset(message, 7, sizeof message);
    start();
    while (fgets(line, sizeof line, stdin) != NULL) {
        int turns = atoi(line);
        double time = run(turns);
        if (argc > 1 && strcmp(argv[1], "state") == 0)
            printf("%.2f 0\n", time_of_a_call());
        else
            printf("%.1f %.3f\n", time / echoes, (double)turns * MESSAGES / echoes);
        CHECK(fflush(stdout) == 0);
    }
    slipgate_client_free(client);
    slipgate_server_free(server);
    return 0;
}
