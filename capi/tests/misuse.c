/* Null everywhere, invalid settings, and random arguments: each call returns a status. Prints "ok" at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "slipgate.h"

#define REFUSED(call) CHECK((call) == SLIPGATE_ERROR_ARGUMENT)

static uint64_t seed = 0x1234567;

static uint64_t any(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static void null_objects(void) {
    uint8_t bytes[8] = {0};
    size_t count = 0;
    slipgate_event event;
    slipgate_outgoing_message message;
    memset(&message, 0, sizeof message);
    REFUSED(slipgate_client_connect(NULL, bytes, 8));
    REFUSED(slipgate_client_disconnect(NULL));
    REFUSED(slipgate_client_leave(NULL, 0, "a", 1));
    REFUSED(slipgate_client_begin_turn(NULL));
    REFUSED(slipgate_client_end_turn(NULL));
    REFUSED(slipgate_client_flush(NULL));
    REFUSED(slipgate_client_wait(NULL, 1));
    REFUSED(slipgate_client_next_event(NULL, &event));
    REFUSED(slipgate_client_next_events(NULL, &event, 1, &count));
    REFUSED(slipgate_client_send(NULL, bytes, 8));
    REFUSED(slipgate_client_send_packet(NULL, bytes, 8, NULL));
    REFUSED(slipgate_client_send_message(NULL, 0, bytes, 8, NULL));
    REFUSED(slipgate_client_send_messages(NULL, &message, 1));
    REFUSED(slipgate_client_send_transfer(NULL, 0, NULL, 0, NULL));
    REFUSED(slipgate_client_accept_transfer(NULL, 0, 0));
    REFUSED(slipgate_client_refuse_transfer(NULL, 0, 0));
    REFUSED(slipgate_client_cancel_transfer(NULL, 0, 0));
    CHECK(slipgate_client_state(NULL) == SLIPGATE_ERROR_PANIC);
    REFUSED(slipgate_client_path(NULL, NULL));
    REFUSED(slipgate_client_budget(NULL, NULL));
    REFUSED(slipgate_client_remaining(NULL, 0, NULL));
    REFUSED(slipgate_client_close_reason(NULL, NULL));
    REFUSED(slipgate_client_discards(NULL, 0, NULL, NULL));
    REFUSED(slipgate_server_begin_turn(NULL));
    REFUSED(slipgate_server_end_turn(NULL));
    REFUSED(slipgate_server_flush(NULL));
    REFUSED(slipgate_server_wait(NULL, 1));
    REFUSED(slipgate_server_next_event(NULL, &event));
    REFUSED(slipgate_server_next_events(NULL, &event, 1, &count));
    REFUSED(slipgate_server_send(NULL, 1, bytes, 8));
    REFUSED(slipgate_server_send_packet(NULL, 1, bytes, 8, NULL));
    REFUSED(slipgate_server_send_message(NULL, 1, 0, bytes, 8, NULL));
    REFUSED(slipgate_server_send_messages(NULL, &message, 1));
    REFUSED(slipgate_server_send_transfer(NULL, 1, 0, NULL, 0, NULL));
    REFUSED(slipgate_server_broadcast(NULL, 0, 0, bytes, 8, NULL, NULL));
    REFUSED(slipgate_server_accept_transfer(NULL, 1, 0, 0));
    REFUSED(slipgate_server_refuse_transfer(NULL, 1, 0, 0));
    REFUSED(slipgate_server_cancel_transfer(NULL, 1, 0, 0));
    REFUSED(slipgate_server_kick(NULL, 1, 0, NULL, 0));
    REFUSED(slipgate_server_disconnect(NULL, 1));
    REFUSED(slipgate_server_stop(NULL, NULL, 0));
    REFUSED(slipgate_server_clients(NULL, NULL, 0, NULL));
    REFUSED(slipgate_server_connected(NULL, NULL));
    REFUSED(slipgate_server_find(NULL, 1, NULL));
    REFUSED(slipgate_server_client_info(NULL, 1, NULL));
    REFUSED(slipgate_server_path(NULL, 1, NULL));
    REFUSED(slipgate_server_budget(NULL, 1, NULL));
    REFUSED(slipgate_server_remaining(NULL, 1, 0, NULL));
    REFUSED(slipgate_server_accept_new_clients(NULL, 1));
    REFUSED(slipgate_server_set_uplink(NULL, 1));
    REFUSED(slipgate_set_log_level(SLIPGATE_LOG_DEBUG + 1));
    REFUSED(slipgate_next_log_line(NULL, 1));
    REFUSED(slipgate_server_set_keys(NULL, bytes, 8));
    REFUSED(slipgate_server_address(NULL, 0, NULL, 0));
    REFUSED(slipgate_server_discards(NULL, 0, NULL, NULL));
    REFUSED(slipgate_waker_new(NULL, NULL));
    REFUSED(slipgate_waker_wake(NULL));
    REFUSED(slipgate_key_generate(NULL));
    REFUSED(slipgate_token_issue(NULL, NULL, NULL));
    REFUSED(slipgate_channel_init(NULL, 0, NULL));
    REFUSED(slipgate_server_config_init(NULL));
    REFUSED(slipgate_client_new(NULL, NULL, NULL, 0));
    REFUSED(slipgate_server_new(NULL, NULL, NULL, 0));
    REFUSED(slipgate_transfer_new(NULL, 0, NULL));
    slipgate_client_free(NULL);
    slipgate_server_free(NULL);
    slipgate_transfer_free(NULL);
    slipgate_waker_free(NULL);
    for (int i = 0; i < 100; i++) {
        CHECK(slipgate_client_state_name((int32_t)any()) != NULL);
        CHECK(slipgate_status_text((int32_t)any()) != NULL);
    }
}

static void invalid_settings(void) {
    slipgate_channel channel;
    slipgate_traffic traffic;
    slipgate_server_config config;
    slipgate_client *client = NULL;
    slipgate_server *server = NULL;
    slipgate_transfer *transfer = NULL;
    uint8_t key[32] = {1}, keys[4 * 32] = {1};
    char error[64] = "";
    REFUSED(slipgate_channel_init(&channel, 99, NULL));
    CHECK(slipgate_channel_init(&channel, SLIPGATE_RELIABLE_ORDERED, "a") == SLIPGATE_DONE);
    memset(&traffic, 0, sizeof traffic);
    traffic.kind = SLIPGATE_CHANNELS;
    REFUSED(slipgate_client_new(&traffic, &client, error, sizeof error));
    CHECK(strstr(error, "slipgate_traffic") != NULL && client == NULL);
    traffic.size = sizeof traffic;
    traffic.count = 1;
    REFUSED(slipgate_client_new(&traffic, &client, error, sizeof error));
    traffic.channels = &channel;
    channel.weight = 0;
    CHECK(slipgate_client_new(&traffic, &client, error, sizeof error) == SLIPGATE_ERROR_CONFIG);
    CHECK(strcmp(error, "channel 0: the weight must be at least 1") == 0);
    /* A short buffer is filled, and ends with zero. */
    CHECK(slipgate_client_new(&traffic, &client, error, 8) == SLIPGATE_ERROR_CONFIG && strcmp(error, "channel") == 0);
    channel.weight = 1;
    channel.flags = 128;
    REFUSED(slipgate_client_new(&traffic, &client, error, sizeof error));
    traffic.kind = 77;
    REFUSED(slipgate_client_new(&traffic, &client, error, sizeof error));
    CHECK(slipgate_server_config_init(&config) == SLIPGATE_DONE);
    REFUSED(slipgate_server_new(&config, &server, error, sizeof error));
    config.keys = key;
    config.keys_length = sizeof key;
    config.bind = "here:1";
    REFUSED(slipgate_server_new(&config, &server, error, sizeof error));
    CHECK(strstr(error, "here:1") != NULL);
    config.bind = NULL;
    REFUSED(slipgate_server_new(&config, &server, error, sizeof error));
    CHECK(strcmp(error, "bind: an address is missing") == 0);
    config.bind = "127.0.0.1:0";
    config.flags = 128;
    REFUSED(slipgate_server_new(&config, &server, error, sizeof error));
    CHECK(strcmp(error, "unknown flags") == 0);
    config.flags = 0;
    config.traffic = (const slipgate_traffic *)((const char *)&traffic + 1);
    REFUSED(slipgate_server_new(&config, &server, error, sizeof error));
    CHECK(strcmp(error, "traffic is not aligned") == 0);
    config.traffic = NULL;
    config.reserved = 77;
    REFUSED(slipgate_server_new(&config, &server, error, sizeof error));
    config.reserved = 0;
    config.history_file = "/missing/folder/history";
    CHECK(slipgate_server_new(&config, &server, error, sizeof error) == SLIPGATE_ERROR_IO);
    CHECK(strncmp(error, "history_file: ", 14) == 0);
    config.history_file = NULL;
    config.keys = keys;
    config.keys_length = 4 * 32;
    REFUSED(slipgate_server_new(&config, &server, error, sizeof error));
    /* A length that cannot be right is refused before a byte is read. */
    config.keys_length = SIZE_MAX / 4;
    REFUSED(slipgate_server_new(&config, &server, error, sizeof error));
    config.keys_length = 3 * 32;
    CHECK(slipgate_server_new(&config, &server, error, sizeof error) == SLIPGATE_DONE);
    REFUSED(slipgate_server_set_keys(server, keys, sizeof keys));
    REFUSED(slipgate_server_set_keys(server, keys, SIZE_MAX / 4));
    CHECK(slipgate_server_set_keys(server, keys, 3 * 32) == SLIPGATE_DONE);
    slipgate_server_free(server);
    config.slots = 0;
    CHECK(slipgate_server_new(&config, &server, error, sizeof error) == SLIPGATE_ERROR_CONFIG && server == NULL);
    config.size = 4;
    REFUSED(slipgate_server_new(&config, &server, NULL, 0));
    REFUSED(slipgate_transfer_new(NULL, 5, &transfer));
    CHECK(slipgate_transfer_new(key, SIZE_MAX, &transfer) == SLIPGATE_ERROR_TOO_LARGE);
    CHECK(slipgate_transfer_new(key, SIZE_MAX / 4, &transfer) == SLIPGATE_ERROR_TOO_LARGE && transfer == NULL);
}

/* One server and one client, and what they have seen. */
enum { ROUNDS = 12, CALLS = 2500, MAX_TURNS = 20000 };
static slipgate_client *client;
static slipgate_server *server;
static slipgate_transfer *content;
static uint8_t key[SLIPGATE_KEY_BYTES], bytes[2048];
static char address[64];
static uint64_t handle;
static uint32_t transfer_id;
static int connections, ends, received;

/* Remembers handles and ids, which the random calls use, and reads the lent bytes. */
static void on_events(const slipgate_event *events, size_t count, int is_server) {
    for (size_t i = 0; i < count; i++) {
        const slipgate_event *event = &events[i];
        volatile uint8_t sum = 0;
        for (size_t j = 0; j < event->length; j++) sum = (uint8_t)(sum + event->bytes[j]);
        if (event->kind == SLIPGATE_CONNECTED && is_server) handle = event->client;
        if (event->kind == SLIPGATE_TRANSFER_OFFERED) transfer_id = (uint32_t)event->number;
        connections += event->kind == SLIPGATE_CONNECTED && is_server;
        ends += event->kind == SLIPGATE_ENDED;
        received += event->kind == SLIPGATE_MESSAGE || event->kind == SLIPGATE_PACKET || event->kind == SLIPGATE_PAYLOAD;
    }
}

static void turn(void) {
    slipgate_event events[5];
    size_t count = 0;
    slipgate_server_begin_turn(server);
    while (slipgate_server_next_events(server, events, 5, &count) == SLIPGATE_DONE) on_events(events, count, 1);
    slipgate_server_end_turn(server);
    slipgate_client_begin_turn(client);
    while (slipgate_client_next_events(client, events, 5, &count) == SLIPGATE_DONE) on_events(events, count, 0);
    slipgate_client_end_turn(client);
}

static void connect_again(void) {
    slipgate_claims claims;
    uint8_t token[SLIPGATE_TOKEN_BYTES];
    memset(&claims, 0, sizeof claims);
    claims.size = sizeof claims;
    claims.client_id = any() % 3;
    claims.servers = address;
    CHECK(slipgate_token_issue(&claims, key, token) == SLIPGATE_DONE);
    slipgate_client_connect(client, token, sizeof token);
}

static void start(uint32_t kind) {
    slipgate_server_config config;
    slipgate_channel channels[3];
    slipgate_traffic traffic;
    CHECK(slipgate_channel_init(&channels[0], SLIPGATE_RELIABLE_ORDERED, "a") == SLIPGATE_DONE);
    CHECK(slipgate_channel_init(&channels[1], SLIPGATE_TRANSFERS, "b") == SLIPGATE_DONE);
    CHECK(slipgate_channel_init(&channels[2], SLIPGATE_UNRELIABLE, "c") == SLIPGATE_DONE);
    channels[1].admission = SLIPGATE_ADMIT_ASK;
    memset(&traffic, 0, sizeof traffic);
    traffic.size = sizeof traffic;
    traffic.kind = kind;
    if (kind == SLIPGATE_CHANNELS) {
        traffic.channels = channels;
        traffic.count = 3;
    }
    CHECK(slipgate_key_generate(key) == SLIPGATE_DONE);
    CHECK(slipgate_server_config_init(&config) == SLIPGATE_DONE);
    config.bind = "127.0.0.1:0";
    config.keys = key;
    config.keys_length = sizeof key;
    config.traffic = &traffic;
    config.slots = 1 + any() % 3;
    config.flags = SLIPGATE_ACCEPT_OLD_TOKENS;
    CHECK(slipgate_client_new(&traffic, &client, NULL, 0) == SLIPGATE_DONE);
    CHECK(slipgate_server_new(&config, &server, NULL, 0) == SLIPGATE_DONE);
    CHECK(slipgate_server_address(server, 0, address, sizeof address) == SLIPGATE_DONE);
}

static void refused_lengths(void) {
    slipgate_event events[5];
    size_t count;
    REFUSED(slipgate_client_next_events(client, NULL, 1, &count));
    REFUSED(slipgate_client_next_events(client, events, 0, &count));
    REFUSED(slipgate_client_next_events(client, events, 5, NULL));
    REFUSED(slipgate_client_next_events(client, events, SIZE_MAX, &count));
    CHECK(slipgate_client_connect(client, bytes, SIZE_MAX / 4) == SLIPGATE_ERROR_TOKEN);
    CHECK(slipgate_client_send_message(client, 0, bytes, SIZE_MAX / 4, NULL) < 0);
    CHECK(slipgate_server_send_message(server, handle, 0, bytes, SIZE_MAX / 4, NULL) < 0);
    CHECK(slipgate_server_broadcast(server, 0, 0, bytes, SIZE_MAX / 4, NULL, NULL) < 0);
    REFUSED(slipgate_server_next_events(server, NULL, 1, &count));
    REFUSED(slipgate_server_next_events(server, events, 0, &count));
    REFUSED(slipgate_server_next_events(server, events, 5, NULL));
    REFUSED(slipgate_server_next_events(server, events, SIZE_MAX, &count));
}

static void refused_messages(void) {
    slipgate_send_options options[2];
    slipgate_outgoing_message message;
    memset(options, 0, sizeof options);
    memset(&message, 0, sizeof message);
    REFUSED(slipgate_client_send_messages(client, NULL, 1));
    REFUSED(slipgate_client_send_messages(client, &message, SIZE_MAX));
    REFUSED(slipgate_client_send_messages(client, (slipgate_outgoing_message *)((char *)&message + 1), 1));
    REFUSED(slipgate_server_send_messages(server, NULL, 1));
    REFUSED(slipgate_server_send_messages(server, &message, SIZE_MAX));
    CHECK(slipgate_client_send_messages(client, NULL, 0) == SLIPGATE_DONE);
    CHECK(slipgate_server_send_messages(server, NULL, 0) == SLIPGATE_DONE);
    message.length = 1;
    REFUSED(slipgate_client_send_messages(client, &message, 1));
    CHECK(message.status == SLIPGATE_ERROR_ARGUMENT);
    message.bytes = bytes;
    message.channel = 256;
    CHECK(slipgate_client_send_messages(client, &message, 1) == SLIPGATE_ERROR_NO_CHANNEL);
    message.channel = 0;
    message.options = (const slipgate_send_options *)((const char *)options + 1);
    REFUSED(slipgate_client_send_messages(client, &message, 1));
    message.options = options;
    REFUSED(slipgate_client_send_messages(client, &message, 1));
}

static slipgate_send_options any_options(void) {
    slipgate_send_options options;
    memset(&options, 0, sizeof options);
    options.size = any() % 9 ? sizeof options : (uint32_t)any();
    options.flags = (uint32_t)(any() % 9);
    options.deadline_us = any() >> (any() % 64);
    options.key = any() % 4;
    options.receipt = any();
    return options;
}

/* Some messages on random channels to random clients. */
static size_t any_messages(slipgate_outgoing_message *messages, size_t max, uint64_t to, size_t length,
                           const slipgate_send_options *with) {
    size_t count = any() % (max + 1);
    for (size_t i = 0; i < count; i++) {
        memset(&messages[i], 0, sizeof messages[i]);
        messages[i].client = any() % 4 ? to : any();
        messages[i].channel = (uint32_t)(any() % 8 ? any() % 5 : any());
        messages[i].bytes = any() % 8 ? bytes : NULL;
        messages[i].length = any() % 2 ? length : any() % 16;
        messages[i].options = any() % 2 ? with : NULL;
        messages[i].status = 77;
    }
    return count;
}

/* Each message has a status, and the call has that of the first refused one. */
static void check_statuses(int32_t status, const slipgate_outgoing_message *messages, size_t count) {
    int32_t first = SLIPGATE_DONE;
    for (size_t i = count; i-- > 0;) {
        CHECK(messages[i].status <= 0);
        if (messages[i].status != SLIPGATE_DONE) first = messages[i].status;
    }
    CHECK(status == first);
}

static void call_client(size_t length, uint64_t number, uint8_t channel, uint32_t id) {
    slipgate_event events[5];
    slipgate_send_options options = any_options();
    const slipgate_send_options *with = any() % 2 ? &options : NULL;
    slipgate_path path;
    slipgate_budget budget;
    slipgate_remaining remaining;
    slipgate_close_reason reason;
    slipgate_outgoing_message messages[6];
    size_t count = 0;
    switch (any() % 22) {
    case 0: slipgate_client_connect(client, bytes, length); break;
    case 1: connect_again(); break;
    case 2: slipgate_client_send(client, bytes, length); break;
    case 3: slipgate_client_send_packet(client, bytes, length, NULL); break;
    case 4: slipgate_client_send_message(client, channel, bytes, length, with); break;
    case 5: slipgate_client_send_transfer(client, channel, content, number, NULL); break;
    case 6: slipgate_client_accept_transfer(client, channel, id); break;
    case 7: slipgate_client_refuse_transfer(client, channel, id); break;
    case 8: slipgate_client_cancel_transfer(client, channel, id); break;
    case 9:
        if (any() % 20 == 0) slipgate_client_leave(client, (uint16_t)number, (const char *)bytes, length % 300);
        break;
    case 10:
        if (any() % 20 == 0) slipgate_client_disconnect(client);
        break;
    case 11: slipgate_client_path(client, &path); break;
    case 12: slipgate_client_remaining(client, channel, &remaining); break;
    case 13: slipgate_client_discards(client, (uint32_t)number, NULL, NULL); break;
    case 14: slipgate_client_begin_turn(client); break;
    case 15: slipgate_client_end_turn(client); break;
    case 16:
        if (slipgate_client_next_event(client, events) == SLIPGATE_DONE) on_events(events, 1, 0);
        break;
    case 17:
        if (slipgate_client_next_events(client, events, number % 6, &count) == SLIPGATE_DONE) on_events(events, count, 0);
        break;
    case 18: slipgate_client_budget(client, &budget); break;
    case 19: slipgate_client_close_reason(client, &reason); break;
    case 20: slipgate_client_flush(client); break;
    case 21:
        count = any_messages(messages, 6, 0, length, &options);
        check_statuses(slipgate_client_send_messages(client, messages, count), messages, count);
        break;
    }
}

static void call_server(size_t length, uint64_t number, uint8_t channel, uint32_t id, uint64_t to) {
    slipgate_event events[5];
    slipgate_send_options options = any_options();
    const slipgate_send_options *with = any() % 2 ? &options : NULL;
    slipgate_client_info info;
    slipgate_path path;
    slipgate_budget budget;
    slipgate_remaining remaining;
    uint64_t handles[4];
    slipgate_outgoing_message messages[6];
    size_t count = 0;
    switch (any() % 25) {
    case 0: slipgate_server_send(server, to, bytes, length); break;
    case 1: slipgate_server_send_packet(server, to, bytes, length, NULL); break;
    case 2: slipgate_server_send_message(server, to, channel, bytes, length, with); break;
    case 3: slipgate_server_send_transfer(server, to, channel, content, number, NULL); break;
    case 4: slipgate_server_accept_transfer(server, to, channel, id); break;
    case 5: slipgate_server_refuse_transfer(server, to, channel, id); break;
    case 6: slipgate_server_cancel_transfer(server, to, channel, id); break;
    case 7: slipgate_server_broadcast(server, channel, any() % 2 ? to : 0, bytes, length, NULL, NULL); break;
    case 8:
        if (any() % 20 == 0) slipgate_server_kick(server, to, (uint16_t)number, (const char *)bytes, length % 300);
        break;
    case 9:
        if (any() % 20 == 0) slipgate_server_disconnect(server, to);
        break;
    case 10: slipgate_server_clients(server, handles, number % 5, &count); break;
    case 11: slipgate_server_client_info(server, to, &info); break;
    case 12: slipgate_server_path(server, to, &path); break;
    case 13: slipgate_server_set_uplink(server, number % 2 ? 0 : number); break;
    case 14: slipgate_server_accept_new_clients(server, number % 4 != 0); break;
    case 15: slipgate_server_begin_turn(server); break;
    case 16: slipgate_server_end_turn(server); break;
    case 17:
        if (slipgate_server_next_event(server, events) == SLIPGATE_DONE) on_events(events, 1, 1);
        break;
    case 18:
        if (slipgate_server_next_events(server, events, number % 6, &count) == SLIPGATE_DONE) on_events(events, count, 1);
        break;
    case 19: slipgate_server_discards(server, (uint32_t)number, NULL, NULL); break;
    case 20: slipgate_server_budget(server, to, &budget); break;
    case 21: slipgate_server_remaining(server, to, channel, &remaining); break;
    case 22: slipgate_server_find(server, number, &handles[0]); break;
    case 23: slipgate_server_flush(server); break;
    case 24:
        count = any_messages(messages, 6, to, length, &options);
        check_statuses(slipgate_server_send_messages(server, messages, count), messages, count);
        break;
    }
}

/* Calls functions in a random order, with random numbers, on a client and a server that are mostly connected. */
static void random_calls(uint32_t kind) {
    int connections_before = connections;
    start(kind);
    for (int turns = 0; connections == connections_before; turns++) {
        CHECK(turns < MAX_TURNS);
        if (slipgate_client_state(client) <= 0) connect_again();
        turn();
        CHECK(slipgate_client_wait(client, 1000) == SLIPGATE_DONE);
    }
    refused_lengths();
    refused_messages();
    for (int i = 0; i < CALLS; i++) {
        size_t length = any() % sizeof bytes;
        uint64_t number = any() % 3 ? any() : any() % 5;
        uint8_t channel = any() % 5 ? (uint8_t)(any() % 4) : (uint8_t)any();
        uint32_t id = any() % 3 ? transfer_id : (uint32_t)(any() % 5);
        uint64_t to = any() % 5 ? handle : any();
        for (size_t j = 0; j < 16; j++) bytes[j] = (uint8_t)any();
        if (any() % 2) call_client(length, number, channel, id);
        else call_server(length, number, channel, id, to);
        if (any() % 8 == 0) turn();
    }
    slipgate_server_set_keys(server, bytes, 32 * (any() % 6));
    slipgate_server_stop(server, (const char *)bytes, 4);
    turn();
    CHECK(slipgate_client_state(client) != SLIPGATE_ERROR_PANIC);
    CHECK(slipgate_server_begin_turn(server) == SLIPGATE_DONE);
    slipgate_client_free(client);
    slipgate_server_free(server);
}

/* Random calls follow from the seed, which an argument may set. */
int main(int count, char **arguments) {
    if (count > 1) seed = strtoull(arguments[1], NULL, 0) | 1;
    null_objects();
    invalid_settings();
    CHECK(slipgate_transfer_new(bytes, sizeof bytes, &content) == SLIPGATE_DONE);
    for (int i = 0; i < ROUNDS; i++) random_calls((uint32_t)(i % 4 < 2 ? SLIPGATE_CHANNELS : i % 4 - 2));
    slipgate_transfer_free(content);
    /* The calls have met connections, data and ends. */
    CHECK(connections >= ROUNDS && ends > 0 && received > 0);
    puts("ok");
    return 0;
}
