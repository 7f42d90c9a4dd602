// Calls every method of slipgate.hpp and checks what it does: servers and clients of one program, on loopback. Prints
// "ok" at the end.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>
#include <type_traits>

#include "slipgate.hpp"

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition);       \
            std::exit(1);                                                      \
        }                                                                      \
    } while (0)

namespace {

constexpr std::uint64_t PROTOCOL_ID = 7;
constexpr int MAX_TURNS = 20000;

static_assert(!std::is_copy_constructible_v<slipgate::Client> && std::is_move_constructible_v<slipgate::Client>);

// An event with a copy of its bytes, which are lent only for a moment.
struct Seen : slipgate::Event {
    std::string text;
    explicit Seen(const slipgate::Event& event) : slipgate::Event(event), text(event.view()) {}
};
using Events = std::vector<Seen>;

const Seen* find(const Events& events, std::uint32_t kind) {
    for (const auto& event : events)
        if (event.is(kind)) return &event;
    return nullptr;
}

// Returns the texts of the messages, each with a space behind it.
std::string texts(const Events& events) {
    std::string all;
    for (const auto& event : events)
        if (event.is(SLIPGATE_MESSAGE)) all += event.text + ' ';
    return all;
}

// Returns the delivery status of each receipt, by its tag.
std::map<std::uint64_t, std::int32_t> receipts(const Events& events) {
    std::map<std::uint64_t, std::int32_t> all;
    for (const auto& event : events)
        if (event.is(SLIPGATE_RECEIPT)) all[event.number] = event.reason;
    return all;
}

struct Channels {
    slipgate::Traffic traffic;
    std::uint8_t state = traffic.add(SLIPGATE_SEQUENCED, "state", SLIPGATE_NEWEST_ONLY);
    std::uint8_t chat = traffic.add(SLIPGATE_RELIABLE_ORDERED, "chat");
    std::uint8_t maps = traffic.add(SLIPGATE_TRANSFERS, "maps");

    explicit Channels(std::uint32_t version = 3) {
        traffic.version(version);
        traffic.settings(maps).admission = SLIPGATE_ADMIT_ASK;
        traffic.settings(chat).queue_messages = 30;
    }
};

// Takes the events of this turn, several with one call or one by one.
template <class Object> void take(Object& object, Events& events, bool several) {
    std::array<slipgate::Event, 8> taken;
    while (several) {
        const auto count = object.next(taken);
        if (count == 0) return;
        for (std::size_t i = 0; i < count; i++) events.emplace_back(taken.at(i));
    }
    while (auto event = object.next()) events.emplace_back(*event);
}

struct Player {
    slipgate::Client client;
    std::uint64_t handle = 0;
    Events events = {};

    void turn(bool several) {
        client.begin_turn();
        take(client, events, several);
        client.end_turn();
    }
};

struct World {
    slipgate::Key key = slipgate::generate_key();
    const slipgate::Traffic& traffic;
    slipgate::Server server;
    std::vector<std::unique_ptr<Player>> players = {};
    Events events = {};
    bool several;

    explicit World(const slipgate::Traffic& traffic, bool several = false)
        : traffic(traffic), server(config(key), traffic), several(several) {}

    static slipgate_server_config config(const slipgate::Key& key) {
        auto config = slipgate::server_config();
        config.protocol_id = PROTOCOL_ID;
        config.bind = "127.0.0.1:0";
        config.keys = key.data();
        config.keys_length = key.size();
        config.flags = SLIPGATE_ACCEPT_OLD_TOKENS;
        return config;
    }

    void turn_server() {
        server.begin_turn();
        take(server, events, several);
        server.end_turn();
    }

    template <class Condition> void until(Condition condition) {
        for (int turns = 0; !condition(); turns++) {
            CHECK(turns < MAX_TURNS);
            turn_server();
            for (auto& player : players) player->turn(several);
            if (!players.empty()) players[0]->client.wait(1000);
        }
    }

    // Waits for the first event of a kind, and takes it from the list.
    Seen wait(Events& list, std::uint32_t kind) {
        until([&] { return find(list, kind) != nullptr; });
        const Seen found = *find(list, kind);
        list.erase(list.begin() + (find(list, kind) - list.data()));
        return found;
    }
    Seen at_server(std::uint32_t kind) { return wait(events, kind); }

    Player& begin(std::uint64_t client_id, const slipgate::Key& with, const slipgate::Traffic& channels) {
        players.push_back(std::make_unique<Player>(Player{slipgate::Client(channels)}));
        const auto token = slipgate::issue_token(PROTOCOL_ID, client_id, server.address(), with.data(), "Ann");
        CHECK(players.back()->client.connect(token) == SLIPGATE_DONE);
        return *players.back();
    }
    Player& begin(std::uint64_t client_id) { return begin(client_id, key, traffic); }

    Player& join(std::uint64_t client_id, const slipgate::Key& with) {
        auto& player = begin(client_id, with, traffic);
        until([&] { return player.client.is_connected() && server.find(client_id); });
        player.handle = server.find(client_id).value();
        CHECK(at_server(SLIPGATE_CONNECTED).client == player.handle);
        return player;
    }
    Player& join(std::uint64_t client_id) { return join(client_id, key); }

    std::uint64_t dropped(std::string_view reason) const {
        for (const auto& discard : server.discards())
            if (reason == discard.reason) return discard.count;
        CHECK(false);
    }
};

// The traffic of the settings, and objects of the C functions.
void settings_and_pointers() {
    const Channels channels;
    const auto traffic = channels.traffic.get();
    const auto key = slipgate::generate_key();
    auto config = World::config(key);
    config.traffic = &traffic;
    slipgate::Server server(config);
    // With payloads, the traffic of the second parameter, there would be no channels.
    CHECK(server.broadcast(channels.chat, "no one is here") == SLIPGATE_DONE);
    slipgate_server* created = nullptr;
    char text[256];
    CHECK(slipgate_server_new(&config, &created, text, sizeof text) == SLIPGATE_DONE);
    slipgate::Server taken(created);
    CHECK(taken.get() == created);
    slipgate_waker* waker = nullptr;
    CHECK(slipgate_waker_new(created, &waker) == SLIPGATE_DONE);
    slipgate::Waker(waker).wake();
    // This wait would outlast the test.
    CHECK(taken.wait(600000000) == SLIPGATE_DONE);
    server.waker().wake();
    CHECK(server.wait(600000000) == SLIPGATE_DONE);
    const std::uint8_t byte = 7;
    slipgate_transfer* transfer = nullptr;
    CHECK(slipgate_transfer_new(&byte, 1, &transfer) == SLIPGATE_DONE);
    CHECK(slipgate::Transfer(transfer).get() == transfer);
    slipgate_client* client = nullptr;
    CHECK(slipgate_client_new(&traffic, &client, text, sizeof text) == SLIPGATE_DONE);
    CHECK(slipgate::Client(client).get() == client);
    CHECK(std::count(slipgate::version(), slipgate::version() + std::strlen(slipgate::version()), '.') == 2);
    CHECK(slipgate::generate_key() != key);
}

// Sends messages with all options by `send`, to a queue of 30 messages.
template <class Send> void send_options(Send send) {
    const auto tag = [](std::uint64_t receipt) { return slipgate::SendOptions().receipt(receipt); };
    CHECK(send("a", tag(1).deadline_us(1)) == SLIPGATE_DONE);
    CHECK(send("b", tag(2).deadline_us(600000000)) == SLIPGATE_DONE);
    CHECK(send("c", tag(3).key(8)) == SLIPGATE_DONE);
    CHECK(send("d", tag(4).key(9)) == SLIPGATE_DONE);
    CHECK(send("e", tag(5).key(8)) == SLIPGATE_DONE);
    CHECK(send("f", slipgate::SendOptions()) == SLIPGATE_DONE);
    // The deadline of the first one passes before the turn ends.
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

const std::map<std::uint64_t, std::int32_t> ALL_RECEIPTS = {{1, SLIPGATE_EXPIRED},
                                                            {2, SLIPGATE_ARRIVED},
                                                            {3, SLIPGATE_SUPERSEDED},
                                                            {4, SLIPGATE_ARRIVED},
                                                            {5, SLIPGATE_ARRIVED}};

void messages(World& world, const Channels& channels) {
    auto& player = world.join(5);
    auto& client = player.client;
    auto& server = world.server;
    send_options([&](const char* text, const slipgate::SendOptions& options) {
        return client.send_message(channels.chat, text, options);
    });
    world.until([&] { return receipts(player.events) == ALL_RECEIPTS && texts(world.events) == "b e d f "; });
    send_options([&](const char* text, const slipgate::SendOptions& options) {
        return server.send_message(player.handle, channels.chat, text, options);
    });
    world.until([&] { return receipts(world.events) == ALL_RECEIPTS && texts(player.events) == "b e d f "; });
    world.events.clear();
    player.events.clear();
    CHECK(client.send_message(channels.state, "state") == SLIPGATE_DONE);
    CHECK(world.at_server(SLIPGATE_MESSAGE).channel == channels.state);
    CHECK(client.send_message(77, "x") == SLIPGATE_ERROR_NO_CHANNEL);
    const auto before = client.remaining(channels.chat).value();
    CHECK(before.messages == 30 && server.remaining(player.handle, channels.chat)->messages == 30);
    CHECK(client.send_message(channels.chat, "one") == SLIPGATE_DONE);
    CHECK(server.send_message(player.handle, channels.chat, "two") == SLIPGATE_DONE);
    CHECK(client.remaining(channels.chat)->messages == 29 && client.remaining(channels.chat)->bytes < before.bytes);
    CHECK(server.remaining(player.handle, channels.chat)->messages == 29);
    world.until([&] { return texts(world.events) == "one " && texts(player.events) == "two "; });
}

// Several messages with one call, with their options and statuses.
void batches(World& world, const Channels& channels) {
    auto& first = *world.players.at(0);
    auto& second = world.join(6);
    world.events.clear();
    first.events.clear();
    const auto tag1 = slipgate::SendOptions().receipt(1), tag2 = slipgate::SendOptions().receipt(2);
    std::array<slipgate_outgoing_message, 4> several{
        slipgate::outgoing(0, channels.chat, "a", &tag1), slipgate::outgoing(0, 77, "b"),
        slipgate::outgoing(0, channels.chat, "c"), slipgate::outgoing(0, channels.chat, "d", &tag2)};
    CHECK(first.client.send_messages(several.data(), several.size()) == SLIPGATE_ERROR_NO_CHANNEL);
    CHECK(several[0].status == SLIPGATE_DONE && several[1].status == SLIPGATE_ERROR_NO_CHANNEL);
    CHECK(several[2].status == SLIPGATE_DONE && several[3].status == SLIPGATE_DONE);
    const std::map<std::uint64_t, std::int32_t> both = {{1, SLIPGATE_ARRIVED}, {2, SLIPGATE_ARRIVED}};
    world.until([&] { return texts(world.events) == "a c d " && receipts(first.events) == both; });
    several = {slipgate::outgoing(first.handle, channels.chat, "e", &tag1),
               slipgate::outgoing(second.handle + 9, channels.chat, "f"),
               slipgate::outgoing(second.handle, channels.chat, "g", &tag2),
               slipgate::outgoing(first.handle, channels.chat, "h")};
    CHECK(world.server.send_messages(several.data(), 4) == SLIPGATE_ERROR_GONE);
    CHECK(several[1].status == SLIPGATE_ERROR_GONE && several[3].status == SLIPGATE_DONE);
    world.until([&] { return texts(first.events) == "e h " && texts(second.events) == "g "; });
    world.until([&] { return receipts(world.events) == both; });
}

void broadcasts(World& world, const Channels& channels) {
    auto &first = *world.players.at(0), &second = *world.players.at(1);
    first.events.clear();
    second.events.clear();
    std::uint32_t queued = 9, refused = 9;
    CHECK(world.server.broadcast(channels.chat, "all", 0, &queued, &refused) == SLIPGATE_DONE);
    CHECK(queued == 2 && refused == 0);
    CHECK(world.server.broadcast(channels.chat, "others", first.handle, &queued, &refused) == SLIPGATE_DONE);
    CHECK(queued == 1 && refused == 0);
    CHECK(world.server.send_message(first.handle, channels.chat, "end") == SLIPGATE_DONE);
    world.until([&] { return texts(first.events) == "all end " && texts(second.events) == "all others "; });
    // The queue of the first client has no room.
    while (world.server.send_message(first.handle, channels.chat, "x") == SLIPGATE_DONE) {}
    CHECK(world.server.broadcast(channels.chat, "full", 0, &queued, &refused) == SLIPGATE_DONE);
    CHECK(queued == 1 && refused == 1);
    world.until([&] { return texts(second.events) == "all others full "; });
}

// A message leaves with `flush`, without the end of a turn.
void flushes(World& world, const Channels& channels) {
    auto& player = *world.players.at(0);
    world.until([&] { return world.server.remaining(player.handle, channels.chat)->messages == 30; });
    world.events.clear();
    player.events.clear();
    player.client.begin_turn();
    CHECK(player.client.send_message(channels.chat, "flushed") == SLIPGATE_DONE);
    CHECK(player.client.flush() == SLIPGATE_DONE);
    for (int turns = 0; texts(world.events) != "flushed "; turns++) {
        CHECK(turns < MAX_TURNS);
        world.turn_server();
        world.server.wait(1000);
    }
    player.client.end_turn();
    player.events.clear();
    world.server.begin_turn();
    CHECK(world.server.send_message(player.handle, channels.chat, "back") == SLIPGATE_DONE);
    CHECK(world.server.flush() == SLIPGATE_DONE);
    for (int turns = 0; texts(player.events) != "back "; turns++) {
        CHECK(turns < MAX_TURNS);
        player.turn(world.several);
        player.client.wait(1000);
    }
    world.server.end_turn();
}

const std::string CONTENT(50000, 'm');

void check_offer(const Seen& offer, std::uint32_t id, std::uint64_t label) {
    CHECK(offer.number == id && offer.label == label && offer.size == CONTENT.size());
}

void uploads(World& world, const Channels& channels) {
    auto& player = *world.players.at(0);
    auto& client = player.client;
    auto& server = world.server;
    const slipgate::Transfer map(CONTENT);
    std::uint32_t id = 0;
    CHECK(client.send_transfer(channels.chat, map, 41, &id) == SLIPGATE_ERROR_WRONG_KIND);
    CHECK(client.send_transfer(channels.maps, map, 41, &id) == SLIPGATE_DONE);
    check_offer(world.at_server(SLIPGATE_TRANSFER_OFFERED), id, 41);
    CHECK(server.accept_transfer(player.handle, channels.maps, id) == SLIPGATE_DONE);
    const auto found = world.at_server(SLIPGATE_TRANSFER_RECEIVED);
    CHECK(found.number == id && found.label == 41 && found.text == CONTENT);
    CHECK(world.wait(player.events, SLIPGATE_TRANSFER_DELIVERED).number == id);
    CHECK(client.send_transfer(channels.maps, map, 42, &id) == SLIPGATE_DONE);
    check_offer(world.at_server(SLIPGATE_TRANSFER_OFFERED), id, 42);
    CHECK(server.refuse_transfer(player.handle, channels.maps, id) == SLIPGATE_DONE);
    const auto refused = world.wait(player.events, SLIPGATE_TRANSFER_REFUSED);
    CHECK(refused.number == id && refused.reason == SLIPGATE_TRANSFER_REASON_DECLINED);
    CHECK(client.send_transfer(channels.maps, map, 43, &id) == SLIPGATE_DONE);
    check_offer(world.at_server(SLIPGATE_TRANSFER_OFFERED), id, 43);
    CHECK(client.cancel_transfer(channels.maps, id) == SLIPGATE_DONE);
    CHECK(client.cancel_transfer(channels.maps, id + 99) == SLIPGATE_ERROR_GONE);
    const auto broken = world.at_server(SLIPGATE_TRANSFER_BROKEN);
    CHECK(broken.number == id && broken.label == 43 && broken.by == SLIPGATE_BY_REMOTE);
}

void downloads(World& world, const Channels& channels) {
    auto& player = *world.players.at(0);
    auto& client = player.client;
    auto& server = world.server;
    const slipgate::Transfer map(CONTENT);
    std::uint32_t id = 0;
    CHECK(server.send_transfer(player.handle, channels.maps, map, 44, &id) == SLIPGATE_DONE);
    check_offer(world.wait(player.events, SLIPGATE_TRANSFER_OFFERED), id, 44);
    CHECK(client.accept_transfer(channels.maps, id) == SLIPGATE_DONE);
    const auto found = world.wait(player.events, SLIPGATE_TRANSFER_RECEIVED);
    CHECK(found.number == id && found.label == 44 && found.text == CONTENT);
    CHECK(world.at_server(SLIPGATE_TRANSFER_DELIVERED).number == id);
    CHECK(server.send_transfer(player.handle, channels.maps, map, 45, &id) == SLIPGATE_DONE);
    check_offer(world.wait(player.events, SLIPGATE_TRANSFER_OFFERED), id, 45);
    CHECK(client.refuse_transfer(channels.maps, id) == SLIPGATE_DONE);
    const auto refused = world.at_server(SLIPGATE_TRANSFER_REFUSED);
    CHECK(refused.number == id && refused.reason == SLIPGATE_TRANSFER_REASON_DECLINED);
    CHECK(server.send_transfer(player.handle, channels.maps, map, 46, &id) == SLIPGATE_DONE);
    check_offer(world.wait(player.events, SLIPGATE_TRANSFER_OFFERED), id, 46);
    CHECK(server.cancel_transfer(player.handle, channels.maps, id) == SLIPGATE_DONE);
    CHECK(server.cancel_transfer(player.handle, channels.maps, id + 99) == SLIPGATE_ERROR_GONE);
    const auto broken = world.wait(player.events, SLIPGATE_TRANSFER_BROKEN);
    CHECK(broken.number == id && broken.label == 46 && broken.by == SLIPGATE_BY_REMOTE);
}

void questions(World& world) {
    auto &first = *world.players.at(0), &second = *world.players.at(1);
    auto& client = first.client;
    const auto& server = world.server;
    const auto none = second.handle + 9;
    CHECK(client.path() && client.path()->round_trip_ms > 0 && client.path()->bytes_per_second > 0);
    CHECK(server.path(first.handle) && server.path(first.handle)->round_trip_ms > 0 && !server.path(none));
    world.until([&] { return client.budget() && client.budget()->bytes > 0; });
    world.until([&] { return server.budget(first.handle) && server.budget(first.handle)->bytes > 0; });
    CHECK(client.budget()->payload_bytes > 0 && server.budget(first.handle)->payload_bytes > 0 && !server.budget(none));
    CHECK(!server.remaining(none, 0) && std::string_view(client.state_name()) == "connected" && client.state() == 3);
    CHECK(std::string_view(client.discards().at(0).reason) == "empty" && client.discards()[0].count == 0);
    CHECK(client.discards().size() == server.discards().size() && world.dropped("empty") == 0);
    const auto info = server.info(first.handle).value();
    CHECK(info.client_id == 5 && info.client_index == 0 && info.address[0] == 127 && info.bytes_sent > 0);
    CHECK(std::memcmp(info.user_data, "Ann\0", 4) == 0 && !server.info(none));
    CHECK(server.clients() == std::vector<std::uint64_t>({first.handle, second.handle}) && server.connected() == 2);
    CHECK(server.find(6) == second.handle && !server.find(7));
    CHECK(server.address().find("127.0.0.1:") == 0 && server.address(9).empty());
}

// Checks why a client's last connection ended.
void check_reason(Player& player, std::int32_t kind, std::uint32_t by, std::uint32_t code, std::string_view text) {
    const auto reason = player.client.why_closed().value();
    CHECK(reason.kind == kind && reason.by == by && reason.code == code);
    CHECK(std::string_view(reinterpret_cast<const char*>(reason.text), reason.text_length) == text);
    CHECK(player.client.close_reason() == text && !player.client.is_connected());
}

void ends(World& world) {
    auto& server = world.server;
    auto& kicked = *world.players.at(0);
    CHECK(!kicked.client.close_reason() && !kicked.client.why_closed());
    CHECK(server.kick(kicked.handle, "no rockets", 300) == SLIPGATE_DONE);
    const auto end = world.wait(kicked.events, SLIPGATE_ENDED);
    CHECK(end.label == 300 && end.text == "no rockets");
    check_reason(kicked, SLIPGATE_CLOSE_KICKED, SLIPGATE_BY_REMOTE, 300, "no rockets");
    CHECK(world.at_server(SLIPGATE_ENDED).label == 300);
    auto& second = *world.players.at(1);
    CHECK(server.kick(second.handle, "no code") == SLIPGATE_DONE);
    CHECK(world.wait(second.events, SLIPGATE_ENDED).label == 0);
    world.at_server(SLIPGATE_ENDED);

    auto& leaver = world.join(7);
    CHECK(leaver.client.leave(256, "bye") == SLIPGATE_DONE);
    const auto left = world.at_server(SLIPGATE_ENDED);
    CHECK(left.reason == SLIPGATE_CLOSE_LEFT && left.by == SLIPGATE_BY_REMOTE);
    CHECK(left.label == 256 && left.text == "bye" && left.number == 7);

    auto& gone = world.join(8);
    gone.client.disconnect();
    CHECK(gone.client.state() == 0 && world.at_server(SLIPGATE_ENDED).label == SLIPGATE_NO_CODE);

    auto& cut = world.join(9);
    CHECK(server.disconnect(cut.handle) == SLIPGATE_DONE && server.disconnect(cut.handle) == SLIPGATE_ERROR_GONE);
    CHECK(world.wait(cut.events, SLIPGATE_ENDED).reason == SLIPGATE_CLOSE_DISCONNECTED_BY_SERVER);
    world.at_server(SLIPGATE_ENDED);

    auto& last = world.join(10);
    slipgate::Client moved = std::move(last.client);
    CHECK(moved.is_connected() && last.client.get() == nullptr);
    last.client = std::move(moved);
    CHECK(server.stop("until tomorrow") == SLIPGATE_DONE);
    const auto stopped = world.wait(last.events, SLIPGATE_ENDED);
    CHECK(stopped.reason == SLIPGATE_CLOSE_SERVER_STOPPED && stopped.text == "until tomorrow");
}

void channels() {
    const Channels channels;
    World world(channels.traffic);
    messages(world, channels);
    batches(world, channels);
    broadcasts(world, channels);
    flushes(world, channels);
    uploads(world, channels);
    downloads(world, channels);
    questions(world);
    ends(world);
}

void new_clients_and_keys() {
    const Channels channels, newer(4);
    World world(channels.traffic, true);
    auto& server = world.server;
    world.join(5);
    server.accept_new_clients(false);
    auto& denied = world.begin(6);
    CHECK(world.wait(denied.events, SLIPGATE_ENDED).reason == SLIPGATE_CLOSE_DENIED);
    server.accept_new_clients(true);
    world.join(7);
    auto& other = world.begin(8, world.key, newer.traffic);
    CHECK(world.wait(other.events, SLIPGATE_ENDED).reason == SLIPGATE_CLOSE_LAYOUT_MISMATCH);
    const auto newest = slipgate::generate_key();
    CHECK(server.set_keys({newest, world.key}) == SLIPGATE_DONE && server.set_keys({}) == SLIPGATE_ERROR_ARGUMENT);
    world.until([&] { return server.connected() == 2; });
    world.events.clear();
    world.join(9, newest);
    world.join(10);
    CHECK(server.set_keys({newest}) == SLIPGATE_DONE);
    world.begin(11);
    world.until([&] { return world.dropped("token_not_authentic") > 0; });
}

// Takes all lines of the log, and returns whether one has a text.
bool has_line(const char* text) {
    bool found = false;
    while (auto line = slipgate::next_log_line()) found |= line->find(text) != std::string::npos;
    return found;
}

// A transfer of a server without a limit of its uplink is logged.
void log_and_uplink() {
    for (const bool is_limited : {false, true}) {
        const Channels channels;
        World world(channels.traffic);
        CHECK(slipgate::set_log_level(SLIPGATE_LOG_INFO) == SLIPGATE_DONE);
        auto& player = world.join(5);
        CHECK(has_line("client_id=5") && !slipgate::next_log_line());
        if (is_limited) world.server.set_uplink(12500000);
        CHECK(world.server.send_transfer(player.handle, channels.maps, slipgate::Transfer("x"), 1) == SLIPGATE_DONE);
        CHECK(has_line("the uplink has no limit") == !is_limited);
        CHECK(slipgate::set_log_level(SLIPGATE_LOG_OFF) == SLIPGATE_DONE);
    }
}

void payloads_and_packets() {
    const auto payloads = slipgate::Traffic::payloads(), packets = slipgate::Traffic::packets();
    World plain(payloads, true);
    auto& one = plain.join(5);
    const std::string large(1200, 'p');
    CHECK(one.client.send("") == SLIPGATE_ERROR_EMPTY && one.client.send(large + "p") == SLIPGATE_ERROR_TOO_LARGE);
    CHECK(one.client.send(large) == SLIPGATE_DONE && plain.at_server(SLIPGATE_PAYLOAD).text == large);
    CHECK(plain.server.send(one.handle, "back") == SLIPGATE_DONE);
    CHECK(plain.wait(one.events, SLIPGATE_PAYLOAD).text == "back" && !one.client.path());
    World world(packets, true);
    auto& two = world.join(5);
    std::uint16_t sequence = 999;
    world.until([&] { return two.client.send_packet(large + large, &sequence) == SLIPGATE_DONE; });
    const auto packet = world.at_server(SLIPGATE_PACKET);
    CHECK(packet.text == large + large && packet.number == sequence);
    world.until([&] { return world.server.send_packet(two.handle, "back", &sequence) == SLIPGATE_DONE; });
    const auto back = world.wait(two.events, SLIPGATE_PACKET);
    CHECK(back.text == "back" && back.number == sequence);
}

// Returns the status of the error of a constructor.
template <class Create> std::int32_t status_of(Create create) {
    try {
        create();
    } catch (const slipgate::Error& error) {
        return error.status();
    }
    return SLIPGATE_DONE;
}

void errors() {
    try {
        slipgate::Server server(slipgate::server_config());
        CHECK(false);
    } catch (const slipgate::Error& error) {
        CHECK(error.status() == SLIPGATE_ERROR_ARGUMENT && std::strstr(error.what(), "keys"));
    }
    slipgate::Traffic traffic;
    CHECK(status_of([&] { traffic.add(99, "none"); }) == SLIPGATE_ERROR_ARGUMENT);
    slipgate::Traffic newest;
    newest.add(SLIPGATE_RELIABLE_ORDERED, "only the newest", SLIPGATE_NEWEST_ONLY);
    CHECK(status_of([&] { slipgate::Client client(newest); }) == SLIPGATE_ERROR_CONFIG);
    traffic.max_payload_bytes(507);
    CHECK(status_of([&] { slipgate::Client client(traffic); }) == SLIPGATE_ERROR_CONFIG);
    traffic.max_payload_bytes(508);
    CHECK(status_of([&] { slipgate::Client client(traffic); }) == SLIPGATE_DONE);
    CHECK(status_of([] { slipgate::require(SLIPGATE_NONE); }) == SLIPGATE_DONE);
    CHECK(status_of([] { slipgate::require(SLIPGATE_ERROR_BUSY); }) == SLIPGATE_ERROR_BUSY);
    slipgate::Client client;
    CHECK(client.connect(nullptr, 0) == SLIPGATE_ERROR_TOKEN);
    CHECK(client.connect(slipgate::Token{}) == SLIPGATE_ERROR_TOKEN);
}

}  // namespace

int main() {
    settings_and_pointers();
    channels();
    new_clients_and_keys();
    log_and_uplink();
    payloads_and_packets();
    errors();
    std::puts("ok");
}
