/* Calls every function of slipgate.h: client and server of one program, on loopback. Prints "ok" at the end. */
#ifdef __linux__
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "slipgate.h"

enum { STATE, CHAT, MAPS, UPLOADS, CHANNELS };
enum { PROTOCOL_ID = 7, MAP_BYTES = 1 << 20, MAX_TURNS = 20000 };

static uint8_t key[SLIPGATE_KEY_BYTES];
static char address[64];
static slipgate_server *server;
static slipgate_client *client;
static uint64_t handle;

/* What the events have said. */
static int connected, joined, echoed, receipts, maps, delivered, uploads, refused, broken, offers, kept, packets, acked;
static int server_receipts;
static slipgate_event ended, left;
static char sentence[300];
static uint8_t *map;

static slipgate_traffic traffic_of(slipgate_channel channels[CHANNELS]) {
    slipgate_traffic traffic;
    CHECK(slipgate_channel_init(&channels[STATE], SLIPGATE_SEQUENCED, "state") == SLIPGATE_DONE);
    channels[STATE].flags = SLIPGATE_NEWEST_ONLY;
    CHECK(slipgate_channel_init(&channels[CHAT], SLIPGATE_RELIABLE_ORDERED, "chat") == SLIPGATE_DONE);
    CHECK(slipgate_channel_init(&channels[MAPS], SLIPGATE_TRANSFERS, "maps") == SLIPGATE_DONE);
    CHECK(slipgate_channel_init(&channels[UPLOADS], SLIPGATE_TRANSFERS, "uploads") == SLIPGATE_DONE);
    channels[UPLOADS].admission = SLIPGATE_ADMIT_ASK;
    memset(&traffic, 0, sizeof traffic);
    traffic.size = sizeof traffic;
    traffic.kind = SLIPGATE_CHANNELS;
    traffic.channels = channels;
    traffic.count = CHANNELS;
    traffic.version = 3;
    return traffic;
}

static void on_client_event(const slipgate_event *event) {
    switch (event->kind) {
    case SLIPGATE_CONNECTED: connected++; break;
    case SLIPGATE_PAYLOAD: echoed++; break;
    case SLIPGATE_PACKET: packets++; break;
    case SLIPGATE_PACKET_ACKED: acked++; break;
    case SLIPGATE_MESSAGE:
        CHECK(event->channel == CHAT && event->length == 5 && memcmp(event->bytes, "hello", 5) == 0);
        echoed++;
        break;
    case SLIPGATE_RECEIPT:
        CHECK(event->number == 42 && event->reason == SLIPGATE_ARRIVED);
        receipts++;
        break;
    case SLIPGATE_TRANSFER_RECEIVED:
        CHECK(event->label == 9 && event->length == MAP_BYTES && memcmp(event->bytes, map, MAP_BYTES) == 0);
        maps++;
        break;
    case SLIPGATE_TRANSFER_REFUSED: refused++; break;
    case SLIPGATE_TRANSFER_DELIVERED: delivered++; break;
    case SLIPGATE_TRANSFER_BROKEN: broken++; break;
    case SLIPGATE_TRANSFER_KEPT: kept++; break;
    case SLIPGATE_ENDED:
        ended = *event;
        CHECK(event->length < sizeof sentence);
        memcpy(sentence, event->bytes, event->length);
        sentence[event->length] = 0;
        break;
    default: break;
    }
}

static void on_server_event(const slipgate_event *event) {
    switch (event->kind) {
    case SLIPGATE_CONNECTED:
        joined++;
        handle = event->client;
        break;
    case SLIPGATE_PAYLOAD:
        CHECK(slipgate_server_send(server, event->client, event->bytes, event->length) == SLIPGATE_DONE);
        break;
    case SLIPGATE_PACKET:
        CHECK(slipgate_server_send_packet(server, event->client, event->bytes, event->length, NULL) == SLIPGATE_DONE);
        break;
    case SLIPGATE_MESSAGE: {
        /* The lent bytes go back without a copy. */
        CHECK(slipgate_server_send_message(server, event->client, (uint8_t)event->channel, event->bytes, event->length,
                                           NULL) == SLIPGATE_DONE);
        break;
    }
    case SLIPGATE_RECEIPT:
        CHECK(event->client == handle && event->number == 43 && event->reason == SLIPGATE_ARRIVED);
        server_receipts++;
        break;
    case SLIPGATE_TRANSFER_OFFERED:
        offers++;
        if (event->label == 1) {
            CHECK(slipgate_server_refuse_transfer(server, event->client, UPLOADS, (uint32_t)event->number) == SLIPGATE_DONE);
        } else {
            CHECK(event->size == MAP_BYTES);
            CHECK(slipgate_server_accept_transfer(server, event->client, UPLOADS, (uint32_t)event->number) == SLIPGATE_DONE);
        }
        break;
    case SLIPGATE_TRANSFER_RECEIVED:
        CHECK(memcmp(event->bytes, map, MAP_BYTES) == 0);
        uploads++;
        break;
    case SLIPGATE_TRANSFER_DELIVERED: delivered++; break;
    case SLIPGATE_ENDED: left = *event; break;
    default: break;
    }
}

static void turn(void) {
    slipgate_event event, events[4];
    size_t count;
    CHECK(slipgate_server_begin_turn(server) == SLIPGATE_DONE);
    while (slipgate_server_next_event(server, &event) == SLIPGATE_DONE) on_server_event(&event);
    CHECK(slipgate_server_end_turn(server) == SLIPGATE_DONE);
    CHECK(slipgate_client_begin_turn(client) == SLIPGATE_DONE);
    /* Both ways to take events may be mixed. */
    if (slipgate_client_next_event(client, &event) == SLIPGATE_DONE) on_client_event(&event);
    while (slipgate_client_next_events(client, events, 4, &count) == SLIPGATE_DONE) {
        CHECK(count > 0 && count <= 4);
        for (size_t i = 0; i < count; i++) on_client_event(&events[i]);
    }
    CHECK(count == 0);
    CHECK(slipgate_client_flush(client) == SLIPGATE_DONE);
    CHECK(slipgate_client_end_turn(client) == SLIPGATE_DONE);
    CHECK(slipgate_client_wait(client, 1000) == SLIPGATE_DONE);
}

/* Turns until the condition holds. */
#define UNTIL(condition)                                                       \
    do {                                                                       \
        int turns = 0;                                                         \
        while (!(condition)) {                                                 \
            turn();                                                            \
            CHECK(++turns < MAX_TURNS);                                        \
        }                                                                      \
    } while (0)

static void start(const slipgate_traffic *traffic) {
    slipgate_server_config config;
    char error[200] = "";
    CHECK(slipgate_server_config_init(&config) == SLIPGATE_DONE && config.slots == 32);
    config.protocol_id = PROTOCOL_ID;
    config.bind = "127.0.0.1:0";
    config.keys = key;
    config.keys_length = sizeof key;
    config.traffic = traffic;
    config.flags = SLIPGATE_ACCEPT_OLD_TOKENS;
    CHECK(slipgate_server_new(&config, &server, error, sizeof error) == SLIPGATE_DONE);
    CHECK(slipgate_client_new(traffic, &client, error, sizeof error) == SLIPGATE_DONE);
    CHECK(slipgate_server_address(server, 0, address, sizeof address) == SLIPGATE_DONE);
    CHECK(slipgate_server_address(server, 9, address, sizeof address) == SLIPGATE_NONE);
}

static void join(uint64_t client_id) {
    slipgate_claims claims;
    uint8_t token[SLIPGATE_TOKEN_BYTES];
    memset(&claims, 0, sizeof claims);
    claims.size = sizeof claims;
    claims.protocol_id = PROTOCOL_ID;
    claims.client_id = client_id;
    claims.servers = address;
    claims.user_data = (const uint8_t *)"Ann";
    claims.user_data_length = 3;
    connected = joined = 0;
    CHECK(slipgate_token_issue(&claims, key, token) == SLIPGATE_DONE);
    CHECK(slipgate_client_connect(client, token, 100) == SLIPGATE_ERROR_TOKEN);
    CHECK(slipgate_client_connect(client, token, sizeof token) == SLIPGATE_DONE);
    CHECK(slipgate_client_connect(client, token, sizeof token) == SLIPGATE_ERROR_BUSY);
    CHECK(slipgate_client_state(client) == 1);
    UNTIL(connected && joined);
    CHECK(strcmp(slipgate_client_state_name(slipgate_client_state(client)), "connected") == 0);
    CHECK(slipgate_client_close_reason(client, &(slipgate_close_reason){0}) == SLIPGATE_NONE);
    /* A token is for one connection. */
    slipgate_client_disconnect(client);
    UNTIL(ended.kind && left.kind);
    CHECK(slipgate_client_connect(client, token, sizeof token) == SLIPGATE_ERROR_TOKEN_USED);
    memset(&ended, 0, sizeof ended);
    memset(&left, 0, sizeof left);
    connected = joined = 0;
    CHECK(slipgate_token_issue(&claims, key, token) == SLIPGATE_DONE);
    CHECK(slipgate_client_connect(client, token, sizeof token) == SLIPGATE_DONE);
    UNTIL(connected && joined);
}

static void stop(void) {
    slipgate_server_free(server);
    slipgate_client_free(client);
    memset(&ended, 0, sizeof ended);
    memset(&left, 0, sizeof left);
}

static void messages(void) {
    slipgate_send_options options;
    uint32_t queued = 0, full = 9;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = SLIPGATE_HAS_RECEIPT | SLIPGATE_HAS_KEY | SLIPGATE_HAS_DEADLINE;
    options.receipt = 42;
    options.key = 1;
    options.deadline_us = 5000000;
    echoed = receipts = 0;
    CHECK(slipgate_client_send_message(client, CHAT, (const uint8_t *)"hello", 5, &options) == SLIPGATE_DONE);
    CHECK(slipgate_client_send_message(client, 50, (const uint8_t *)"hello", 5, NULL) == SLIPGATE_ERROR_NO_CHANNEL);
    CHECK(slipgate_client_send_message(client, MAPS, (const uint8_t *)"hello", 5, NULL) == SLIPGATE_ERROR_WRONG_KIND);
    CHECK(slipgate_client_send(client, (const uint8_t *)"hello", 5) == SLIPGATE_ERROR_WRONG_TRAFFIC);
    CHECK(slipgate_client_send_packet(client, (const uint8_t *)"hello", 5, NULL) == SLIPGATE_ERROR_WRONG_TRAFFIC);
    UNTIL(echoed == 1 && receipts == 1);
    CHECK(slipgate_server_broadcast(server, CHAT, 0, (const uint8_t *)"hello", 5, &queued, &full) == SLIPGATE_DONE);
    CHECK(queued == 1 && full == 0);
    CHECK(slipgate_server_broadcast(server, CHAT, handle, (const uint8_t *)"nobody", 6, &queued, NULL) == SLIPGATE_DONE);
    CHECK(queued == 0);
    UNTIL(echoed == 2);
}

/* Several messages with one call: each has its status, and a refused one does not stop the others. */
static void outgoing(void) {
    slipgate_outgoing_message messages[3];
    slipgate_send_options options;
    memset(messages, 0, sizeof messages);
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = SLIPGATE_HAS_RECEIPT;
    options.receipt = 43;
    echoed = receipts = server_receipts = 0;
    for (int i = 0; i < 3; i++) {
        messages[i].client = i == 1 ? handle + 1 : handle;
        messages[i].channel = CHAT;
        messages[i].bytes = (const uint8_t *)"hello";
        messages[i].length = 5;
        messages[i].status = 77;
    }
    messages[0].options = &options;
    CHECK(slipgate_server_send_messages(server, messages, 3) == SLIPGATE_ERROR_GONE);
    CHECK(messages[0].status == SLIPGATE_DONE && messages[1].status == SLIPGATE_ERROR_GONE);
    CHECK(messages[2].status == SLIPGATE_DONE);
    UNTIL(echoed == 2 && server_receipts == 1);
    options.receipt = 42;
    messages[1].channel = MAPS;
    CHECK(slipgate_client_send_messages(client, messages, 3) == SLIPGATE_ERROR_WRONG_KIND);
    CHECK(messages[0].status == SLIPGATE_DONE && messages[1].status == SLIPGATE_ERROR_WRONG_KIND);
    UNTIL(echoed == 4 && receipts == 1);
    CHECK(slipgate_client_send_messages(client, NULL, 0) == SLIPGATE_DONE);
}

/* Many messages with one call: the bytes of all of them are lent at once. */
static void batches(void) {
    slipgate_event events[64];
    slipgate_outgoing_message messages[40];
    size_t count = 0, most = 0;
    int received = 0, number = 0;
    char texts[40][4], text[4];
    memset(messages, 0, sizeof messages);
    for (; number < 40; number++) {
        CHECK(sprintf(texts[number], "n%02d", number) == 3);
        messages[number].channel = CHAT;
        messages[number].bytes = (const uint8_t *)texts[number];
        messages[number].length = 3;
    }
    CHECK(slipgate_client_send_messages(client, messages, 40) == SLIPGATE_DONE);
    echoed = number = 0;
    for (int turns = 0; received < 40; turns++) {
        CHECK(turns < MAX_TURNS);
        CHECK(slipgate_client_begin_turn(client) == SLIPGATE_DONE);
        CHECK(slipgate_client_end_turn(client) == SLIPGATE_DONE);
        CHECK(slipgate_server_wait(server, 1000) == SLIPGATE_DONE);
        CHECK(slipgate_server_begin_turn(server) == SLIPGATE_DONE);
        while (slipgate_server_next_events(server, events, 64, &count) == SLIPGATE_DONE) {
            most = count > most ? count : most;
            for (size_t i = 0; i < count; i++) {
                if (events[i].kind != SLIPGATE_MESSAGE) continue;
                CHECK(events[i].client == handle && events[i].channel == CHAT && events[i].length == 3);
                CHECK(sprintf(text, "n%02d", number++) == 3 && memcmp(events[i].bytes, text, 3) == 0);
                received++;
            }
        }
        CHECK(count == 0);
        CHECK(slipgate_server_end_turn(server) == SLIPGATE_DONE);
    }
    CHECK(most > 1);
}

static void transfers(void) {
    slipgate_transfer *content = NULL;
    uint32_t id = 0, second = 0;
    CHECK(slipgate_transfer_new(map, MAP_BYTES, &content) == SLIPGATE_DONE);
    CHECK(slipgate_server_send_transfer(server, handle, MAPS, content, 9, &id) == SLIPGATE_DONE);
    UNTIL(maps == 1 && delivered == 1);
    CHECK(slipgate_client_send_transfer(client, UPLOADS, content, 1, &id) == SLIPGATE_DONE);
    UNTIL(refused == 1);
    CHECK(slipgate_client_send_transfer(client, UPLOADS, content, 2, &id) == SLIPGATE_DONE);
    UNTIL(uploads == 1 && delivered == 2);
    CHECK(offers == 2);
    /* Both sides may cancel at any time. */
    CHECK(slipgate_server_send_transfer(server, handle, MAPS, content, 9, &id) == SLIPGATE_DONE);
    CHECK(slipgate_server_cancel_transfer(server, handle, MAPS, id) == SLIPGATE_DONE);
    CHECK(slipgate_client_send_transfer(client, UPLOADS, content, 3, &second) == SLIPGATE_DONE);
    CHECK(slipgate_client_cancel_transfer(client, UPLOADS, second) == SLIPGATE_DONE);
    CHECK(slipgate_client_cancel_transfer(client, UPLOADS, second) == SLIPGATE_ERROR_GONE);
    CHECK(slipgate_client_accept_transfer(client, MAPS, 999) == SLIPGATE_ERROR_GONE);
    CHECK(slipgate_client_refuse_transfer(client, MAPS, 999) == SLIPGATE_DONE);
    slipgate_transfer_free(content);
}

static void questions(void) {
    slipgate_client_info info;
    slipgate_path path;
    slipgate_budget budget;
    slipgate_remaining remaining;
    uint64_t found = 0, clients[4], count64 = 0;
    size_t count = 0;
    uint32_t connections = 0;
    const char *name = NULL;
    CHECK(slipgate_server_client_info(server, handle, &info) == SLIPGATE_DONE);
    CHECK(info.client_id == 5 && info.address_family == 4 && info.address[0] == 127 && info.port != 0);
    CHECK(memcmp(info.user_data, "Ann", 4) == 0 && info.bytes_received > 0);
    CHECK(slipgate_server_find(server, 5, &found) == SLIPGATE_DONE && found == handle);
    CHECK(slipgate_server_find(server, 6, &found) == SLIPGATE_NONE);
    CHECK(slipgate_server_clients(server, clients, 4, &count) == SLIPGATE_DONE && count == 1 && clients[0] == handle);
    CHECK(slipgate_server_clients(server, NULL, 0, &count) == SLIPGATE_ERROR_TOO_LARGE && count == 1);
    CHECK(slipgate_server_connected(server, &connections) == SLIPGATE_DONE && connections == 1);
    CHECK(slipgate_client_path(client, &path) == SLIPGATE_DONE && path.round_trip_ms > 0 && path.loss <= 1);
    CHECK(slipgate_server_path(server, handle, &path) == SLIPGATE_DONE && path.bytes_per_second > 0);
    CHECK(slipgate_client_budget(client, &budget) == SLIPGATE_DONE && budget.bytes > 0);
    CHECK(slipgate_server_budget(server, handle, &budget) == SLIPGATE_DONE && budget.payload_bytes > 0);
    CHECK(slipgate_client_remaining(client, CHAT, &remaining) == SLIPGATE_DONE && remaining.messages > 0);
    CHECK(slipgate_server_remaining(server, handle, CHAT, &remaining) == SLIPGATE_DONE && remaining.bytes > 0);
    CHECK(slipgate_client_discards(client, 0, &count64, &name) == SLIPGATE_DONE && name != NULL);
    CHECK(slipgate_server_discards(server, 0, &count64, &name) == SLIPGATE_DONE);
    CHECK(slipgate_server_discards(server, 1000, &count64, &name) == SLIPGATE_NONE);
}

static void ends(void) {
    slipgate_close_reason reason;
    slipgate_waker *waker = NULL;
    const char *text = "no rockets";
    CHECK(slipgate_waker_new(server, &waker) == SLIPGATE_DONE);
    CHECK(slipgate_waker_wake(waker) == SLIPGATE_DONE);
    /* The waker ends this wait at once. */
    CHECK(slipgate_server_wait(server, 60000000) == SLIPGATE_DONE);
    CHECK(slipgate_server_flush(server) == SLIPGATE_DONE);
    CHECK(slipgate_server_set_keys(server, key, sizeof key) == SLIPGATE_DONE);
    CHECK(slipgate_server_set_keys(server, key, sizeof key - 1) == SLIPGATE_ERROR_ARGUMENT);
    CHECK(slipgate_server_set_uplink(server, 12500000) == SLIPGATE_DONE);
    CHECK(slipgate_server_accept_new_clients(server, 0) == SLIPGATE_DONE);
    CHECK(slipgate_server_accept_new_clients(server, 1) == SLIPGATE_DONE);
    CHECK(slipgate_server_kick(server, handle, 300, text, strlen(text)) == SLIPGATE_DONE);
    UNTIL(ended.kind == SLIPGATE_ENDED && left.kind == SLIPGATE_ENDED);
    CHECK(ended.reason == SLIPGATE_CLOSE_KICKED && ended.by == SLIPGATE_BY_REMOTE && ended.label == 300);
    CHECK(strcmp(sentence, text) == 0);
    CHECK(left.reason == SLIPGATE_CLOSE_KICKED && left.by == SLIPGATE_BY_LOCAL && left.number == 5);
    CHECK(slipgate_client_close_reason(client, &reason) == SLIPGATE_DONE && reason.kind == SLIPGATE_CLOSE_KICKED);
    CHECK(reason.text_length == strlen(text) && reason.code == 300);
    UNTIL(slipgate_server_send_message(server, handle, CHAT, NULL, 0, NULL) == SLIPGATE_ERROR_GONE);
    memset(&ended, 0, sizeof ended);
    memset(&left, 0, sizeof left);
    join(5);
    CHECK(slipgate_client_leave(client, 256, "bye", 3) == SLIPGATE_DONE);
    UNTIL(left.kind == SLIPGATE_ENDED);
    CHECK(left.reason == SLIPGATE_CLOSE_LEFT && left.length == 3 && left.label == 256);
    memset(&left, 0, sizeof left);
    memset(&ended, 0, sizeof ended);
    join(5);
    CHECK(slipgate_server_disconnect(server, handle) == SLIPGATE_DONE);
    UNTIL(ended.kind == SLIPGATE_ENDED);
    memset(&ended, 0, sizeof ended);
    join(5);
    CHECK(slipgate_server_stop(server, "until tomorrow", 14) == SLIPGATE_DONE);
    UNTIL(ended.kind == SLIPGATE_ENDED);
    CHECK(strcmp(sentence, "until tomorrow") == 0 && ended.reason == SLIPGATE_CLOSE_SERVER_STOPPED);
    slipgate_waker_free(waker);
}

static void plain_traffic(void) {
    slipgate_traffic traffic;
    uint16_t sequence = 0;
    uint8_t large[2000] = {0};
    memset(&traffic, 0, sizeof traffic);
    traffic.size = sizeof traffic;
    traffic.kind = SLIPGATE_PACKETS;
    start(&traffic);
    join(5);
    CHECK(slipgate_client_send_packet(client, large, sizeof large, &sequence) == SLIPGATE_DONE);
    UNTIL(packets == 1 && acked == 1);
    stop();
    start(NULL);
    join(5);
    echoed = 0;
    CHECK(slipgate_client_send(client, large, 1201) == SLIPGATE_ERROR_TOO_LARGE);
    CHECK(slipgate_client_send(client, large, 0) == SLIPGATE_ERROR_EMPTY);
    CHECK(slipgate_client_send(client, large, 1200) == SLIPGATE_DONE);
    UNTIL(echoed == 1);
    CHECK(slipgate_client_path(client, &(slipgate_path){0}) == SLIPGATE_NONE);
    stop();
}

static void log_lines(void) {
    char line[1025];
    int clients = 0;
    while (slipgate_next_log_line(line, sizeof line) == SLIPGATE_DONE) {
        CHECK(strncmp(line, "INFO ", 5) == 0 || strncmp(line, "WARN ", 5) == 0);
        clients += strstr(line, "client_id=5") != NULL;
    }
    CHECK(clients > 0);
    CHECK(slipgate_set_log_level(SLIPGATE_LOG_OFF) == SLIPGATE_DONE);
}

/* A server that starts again with its history file. */
static void history(void) {
    slipgate_server_config config;
    char file[64], lock[64], error[200] = "";
    /* Several of these programs run at once. */
    snprintf(file, sizeof file, "every_function.%02x%02x%02x%02x", key[0], key[1], key[2], key[3]);
    snprintf(lock, sizeof lock, "every_function.%02x%02x%02x%02x.lock", key[0], key[1], key[2], key[3]);
    CHECK(slipgate_server_config_init(&config) == SLIPGATE_DONE);
    config.bind = "127.0.0.1:0";
    config.keys = key;
    config.keys_length = sizeof key;
    config.history_file = file;
    for (int start = 0; start < 3; start++) {
        if (slipgate_server_new(&config, &server, error, sizeof error) != SLIPGATE_DONE) fprintf(stderr, "%s\n", error);
        CHECK(error[0] == 0);
        slipgate_server_free(server);
    }
    CHECK(remove(file) == 0);
    remove(lock);
}

/* The library starts no threads. */
static void one_thread(void) {
#ifdef __linux__
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    CHECK(tasks != NULL);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) count += task->d_name[0] != '.';
    closedir(tasks);
    CHECK(count == 1);
#endif
}

int main(void) {
    slipgate_channel channels[CHANNELS];
    slipgate_traffic traffic;
    CHECK(slipgate_abi() == SLIPGATE_ABI && strlen(slipgate_version()) > 0);
    CHECK(slipgate_size_of(SLIPGATE_STRUCT_EVENT) == sizeof(slipgate_event));
    CHECK(slipgate_size_of(SLIPGATE_STRUCT_CLIENT_INFO) == sizeof(slipgate_client_info));
    CHECK(slipgate_size_of(0) == 0 && strcmp(slipgate_status_text(0), "done") == 0);
    CHECK(slipgate_set_log_level(SLIPGATE_LOG_INFO) == SLIPGATE_DONE);
    CHECK(slipgate_key_generate(key) == SLIPGATE_DONE);
    map = malloc(MAP_BYTES);
    CHECK(map != NULL);
    for (int i = 0; i < MAP_BYTES; i++) map[i] = (uint8_t)(i * 31 >> 3);
    traffic = traffic_of(channels);
    start(&traffic);
    join(5);
    messages();
    outgoing();
    batches();
    transfers();
    questions();
    one_thread();
    ends();
    stop();
    plain_traffic();
    history();
    log_lines();
    free(map);
    puts("ok");
    return 0;
}
