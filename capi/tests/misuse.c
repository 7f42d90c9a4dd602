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
    config.bind = "127.0.0.1:0";
    config.flags = 128;
    REFUSED(slipgate_server_new(&config, &server, error, sizeof error));
    CHECK(strcmp(error, "unknown flags") == 0);
    config.flags = 0;
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

/* Calls functions in a random order, with random numbers and real objects. */
static void random_calls(void) {
    slipgate_server_config config;
    slipgate_channel channels[2];
    slipgate_traffic traffic;
    slipgate_client *client = NULL;
    slipgate_server *server = NULL;
    slipgate_event event, events[5];
    uint8_t bytes[2048], key[32] = {1};
    uint64_t handles[4];
    size_t count;
    CHECK(slipgate_channel_init(&channels[0], SLIPGATE_RELIABLE_ORDERED, "a") == SLIPGATE_DONE);
    CHECK(slipgate_channel_init(&channels[1], SLIPGATE_TRANSFERS, "b") == SLIPGATE_DONE);
    memset(&traffic, 0, sizeof traffic);
    traffic.size = sizeof traffic;
    traffic.kind = SLIPGATE_CHANNELS;
    traffic.channels = channels;
    traffic.count = 2;
    CHECK(slipgate_server_config_init(&config) == SLIPGATE_DONE);
    config.bind = "127.0.0.1:0";
    config.keys = key;
    config.keys_length = sizeof key;
    config.traffic = &traffic;
    CHECK(slipgate_client_new(&traffic, &client, NULL, 0) == SLIPGATE_DONE);
    CHECK(slipgate_server_new(&config, &server, NULL, 0) == SLIPGATE_DONE);
    REFUSED(slipgate_client_next_events(client, NULL, 1, &count));
    REFUSED(slipgate_client_next_events(client, events, 0, &count));
    REFUSED(slipgate_client_next_events(client, events, 5, NULL));
    REFUSED(slipgate_client_next_events(client, events, SIZE_MAX, &count));
    CHECK(slipgate_client_connect(client, bytes, SIZE_MAX / 4) == SLIPGATE_ERROR_TOKEN);
    CHECK(slipgate_client_send_message(client, 0, bytes, SIZE_MAX / 4, NULL) < 0);
    CHECK(slipgate_server_send_message(server, 1, 0, bytes, SIZE_MAX / 4, NULL) < 0);
    CHECK(slipgate_server_broadcast(server, 0, 0, bytes, SIZE_MAX / 4, NULL, NULL) < 0);
    REFUSED(slipgate_server_next_events(server, NULL, 1, &count));
    REFUSED(slipgate_server_next_events(server, events, 0, &count));
    REFUSED(slipgate_server_next_events(server, events, 5, NULL));
    REFUSED(slipgate_server_next_events(server, events, SIZE_MAX, &count));
    for (int i = 0; i < 20000; i++) {
        size_t length = any() % sizeof bytes;
        uint64_t number = any() % 3 ? any() : any() % 5;
        for (size_t j = 0; j < 16; j++) bytes[j] = (uint8_t)any();
        switch (any() % 26) {
        case 0: slipgate_client_connect(client, bytes, length); break;
        case 1: slipgate_client_begin_turn(client); break;
        case 2: slipgate_client_end_turn(client); break;
        case 3: slipgate_client_send_message(client, (uint8_t)number, bytes, length, NULL); break;
        case 4: slipgate_client_next_event(client, &event); break;
        case 5: slipgate_client_leave(client, (uint16_t)number, (const char *)bytes, 16); break;
        case 6: slipgate_client_accept_transfer(client, (uint8_t)number, (uint32_t)any()); break;
        case 7: slipgate_client_refuse_transfer(client, (uint8_t)number, (uint32_t)any()); break;
        case 8: slipgate_client_discards(client, (uint32_t)number, NULL, NULL); break;
        case 9: slipgate_server_begin_turn(server); break;
        case 10: slipgate_server_end_turn(server); break;
        case 11: slipgate_server_send_message(server, number, (uint8_t)any(), bytes, length, NULL); break;
        case 12: slipgate_server_next_event(server, &event); break;
        case 13: slipgate_server_kick(server, number, (uint16_t)any(), (const char *)bytes, 8); break;
        case 14: slipgate_server_broadcast(server, (uint8_t)number, any(), bytes, length, NULL, NULL); break;
        case 15: slipgate_server_clients(server, handles, 4, &count); break;
        case 16: slipgate_server_disconnect(server, number); break;
        case 17: slipgate_client_wait(client, 0); break;
        case 18: slipgate_server_cancel_transfer(server, number, (uint8_t)any(), (uint32_t)any()); break;
        case 19: slipgate_server_client_info(server, number, NULL); break;
        case 20: slipgate_server_set_keys(server, bytes, 32 * (number % 6)); break;
        case 21: slipgate_client_state_name((int32_t)any()); break;
        case 22: slipgate_status_text((int32_t)any()); break;
        case 24: slipgate_client_next_events(client, events, number % 6, &count); break;
        case 25: slipgate_server_next_events(server, events, number % 6, &count); break;
        case 23: slipgate_server_stop(server, (const char *)bytes, 4); break;
        }
    }
    CHECK(slipgate_client_state(client) != SLIPGATE_ERROR_PANIC);
    CHECK(slipgate_server_begin_turn(server) == SLIPGATE_DONE);
    slipgate_client_free(client);
    slipgate_server_free(server);
}

int main(void) {
    null_objects();
    invalid_settings();
    random_calls();
    puts("ok");
    return 0;
}
