/*
 * A client of the game of tag in C99, see `tag_server.rs`: a bot that chases the nearest player when it is "it", and
 * otherwise flees.
 *
 *     tag 127.0.0.1:40000 3 Carl
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "slipgate.h"

enum { STEPS, STATE, NEWS, CHANNELS };
enum { TICK_US = 50000, MAX_PLAYERS = 16, CONNECTED = 3 };
/* The game's id and key: as in `tag/mod.rs`, and only for development. */
static const uint64_t PROTOCOL_ID = 0x74616721;
static const char KEY[] = "a key that every player may have";

struct player {
    uint64_t id;
    int x, y;
};

struct world {
    uint64_t it;
    size_t count;
    struct player players[MAX_PLAYERS];
};

/* The messages are encoded by bincode: numbers up to 250 take a byte, larger ones a mark and their bytes. */
static int read_number(const uint8_t **at, const uint8_t *end, uint64_t *number) {
    int bytes = 0;
    if (*at == end) return 0;
    *number = *(*at)++;
    if (*number > 250) bytes = 2 << (*number - 251);
    if (bytes > 8 || end - *at < bytes) return 0;
    if (bytes > 0) *number = 0;
    for (int i = 0; i < bytes; i++) *number |= (uint64_t) * (*at)++ << 8 * i;
    return 1;
}

static int read_world(const uint8_t *at, size_t length, struct world *world) {
    const uint8_t *end = at + length;
    uint64_t count;
    if (!read_number(&at, end, &world->it) || !read_number(&at, end, &count) || count > MAX_PLAYERS) return 0;
    world->count = (size_t)count;
    for (size_t i = 0; i < world->count; i++) {
        if (!read_number(&at, end, &world->players[i].id) || end - at < 2) return 0;
        world->players[i].x = (int8_t)*at++;
        world->players[i].y = (int8_t)*at++;
    }
    return at == end;
}

static int distance(const struct player *a, const struct player *b) {
    const int x = abs(a->x - b->x), y = abs(a->y - b->y);
    return x > y ? x : y;
}

/* Chases the nearest player when this one is "it", and otherwise flees from the player that is. */
static int choose_step(const struct world *world, uint64_t id, uint8_t step[2]) {
    const struct player *me = NULL, *other = NULL;
    const int is_it = world->it == id;
    for (size_t i = 0; i < world->count; i++)
        if (world->players[i].id == id) me = &world->players[i];
    if (me == NULL) return 0;
    for (size_t i = 0; i < world->count; i++) {
        const struct player *player = &world->players[i];
        if (player == me || (!is_it && player->id != world->it)) continue;
        if (other == NULL || distance(me, player) < distance(me, other)) other = player;
    }
    if (other == NULL) return 0;
    for (int axis = 0; axis < 2; axis++) {
        const int from = axis ? me->y : me->x, to = axis ? other->y : other->x;
        step[axis] = (uint8_t)(is_it ? (to > from) - (to < from) : 1 - 2 * (to > from));
    }
    return 1;
}

/* Mints a connect token, which the backend of a real game does. */
static int connect_to(slipgate_client *client, const char *address, uint64_t id, const char *name) {
    uint8_t token[SLIPGATE_TOKEN_BYTES];
    slipgate_claims claims = {0};
    claims.size = sizeof claims;
    claims.protocol_id = PROTOCOL_ID;
    claims.client_id = id;
    claims.servers = address;
    claims.user_data = (const uint8_t *)name;
    claims.user_data_length = (uint32_t)strlen(name);
    const int status = slipgate_token_issue(&claims, (const uint8_t *)KEY, token);
    return status < 0 ? status : slipgate_client_connect(client, token, sizeof token);
}

/* Handles what has arrived. Returns 0 when the connection has ended. */
static int handle_events(slipgate_client *client, struct world *world) {
    slipgate_event event;
    int is_open = 1;
    while (slipgate_client_next_event(client, &event) == SLIPGATE_DONE) {
        const int is_text = event.kind == SLIPGATE_ENDED || (event.kind == SLIPGATE_MESSAGE && event.channel == NEWS);
        struct world newest;
        if (is_text) printf("%.*s\n", (int)event.length, (const char *)event.bytes);
        if (event.kind == SLIPGATE_ENDED) is_open = 0;
        if (event.kind == SLIPGATE_MESSAGE && event.channel == STATE && read_world(event.bytes, event.length, &newest))
            *world = newest;
    }
    return is_open;
}

int main(int count, char **arguments) {
    slipgate_channel channels[CHANNELS];
    slipgate_traffic traffic = {sizeof traffic, SLIPGATE_CHANNELS, channels, CHANNELS, 1, 0};
    slipgate_client *client = NULL;
    struct world world = {0};
    char error[200] = "";
    if (count != 4) return puts("usage: tag ADDRESS ID NAME"), 2;
    /* Each line appears at once, also in a file. */
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    const uint64_t id = strtoull(arguments[2], NULL, 10);
    slipgate_channel_init(&channels[STEPS], SLIPGATE_SEQUENCED, "steps");
    slipgate_channel_init(&channels[STATE], SLIPGATE_SEQUENCED, "state");
    channels[STATE].flags = SLIPGATE_NEWEST_ONLY;
    slipgate_channel_init(&channels[NEWS], SLIPGATE_RELIABLE_ORDERED, "news");
    if (slipgate_client_new(&traffic, &client, error, sizeof error) < 0) return puts(error), 1;
    const int status = connect_to(client, arguments[1], id, arguments[3]);
    if (status < 0) return puts(slipgate_status_text(status)), 1;
    for (int is_open = 1; is_open;) {
        uint8_t step[2];
        slipgate_client_begin_turn(client);
        is_open = handle_events(client, &world);
        /* If it is refused, the next step is newer. */
        if (slipgate_client_state(client) == CONNECTED && choose_step(&world, id, step))
            slipgate_client_send_message(client, STEPS, step, sizeof step, NULL);
        slipgate_client_end_turn(client);
        slipgate_client_wait(client, TICK_US);
    }
    slipgate_client_free(client);
    return 0;
}
