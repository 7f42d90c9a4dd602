// Calls every method of slipgate.hpp: client and server of one program, on loopback. Prints "ok" at the end.
#include <cstdio>
#include <cstdlib>
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

static_assert(!std::is_copy_constructible_v<slipgate::Client> && std::is_move_constructible_v<slipgate::Client>);

struct Channels {
    slipgate::Traffic traffic;
    std::uint8_t state = traffic.add(SLIPGATE_SEQUENCED, "state", SLIPGATE_NEWEST_ONLY);
    std::uint8_t chat = traffic.add(SLIPGATE_RELIABLE_ORDERED, "chat");
    std::uint8_t maps = traffic.add(SLIPGATE_TRANSFERS, "maps");
    std::uint8_t uploads = traffic.add(SLIPGATE_TRANSFERS, "uploads");
};

struct World {
    slipgate::Key key = slipgate::generate_key();
    slipgate::Server server;
    slipgate::Client client;
    std::uint64_t handle = 0;
    std::vector<slipgate::Event> events, server_events;
    std::string text, sentence;

    explicit World(const slipgate::Traffic& traffic) : server(config(key), traffic), client(traffic) {}

    static slipgate_server_config config(const slipgate::Key& key) {
        auto config = slipgate::server_config();
        config.protocol_id = PROTOCOL_ID;
        config.bind = "127.0.0.1:0";
        config.keys = key.data();
        config.keys_length = key.size();
        config.flags = SLIPGATE_ACCEPT_OLD_TOKENS;
        return config;
    }

    void take(const slipgate::Event& event) {
        if (event.is(SLIPGATE_MESSAGE)) text = event.view();
        if (event.is(SLIPGATE_ENDED)) sentence = event.view();
        events.push_back(event);
    }

    void take_at_server(const slipgate::Event& event) {
        if (event.is(SLIPGATE_CONNECTED)) handle = event.client;
        server_events.push_back(event);
    }

    void turn() {
        server.begin_turn();
        if (auto event = server.next()) take_at_server(*event);
        std::array<slipgate::Event, 8> several;
        while (auto count = server.next(several))
            for (std::size_t i = 0; i < count; i++) take_at_server(several.at(i));
        server.flush();
        server.end_turn();
        client.begin_turn();
        if (auto event = client.next()) take(*event);
        while (auto count = client.next(several))
            for (std::size_t i = 0; i < count; i++) take(several.at(i));
        client.flush();
        client.end_turn();
        client.wait(1000);
        server.wait(0);
    }

    template <class Condition> void until(Condition condition) {
        for (int turns = 0; !condition(); turns++) {
            CHECK(turns < 20000);
            turn();
        }
    }

    bool has(std::uint32_t kind) const {
        for (const auto& event : events)
            if (event.is(kind)) return true;
        for (const auto& event : server_events)
            if (event.is(kind)) return true;
        return false;
    }

    void join() {
        handle = 0;
        const auto token = slipgate::issue_token(PROTOCOL_ID, 5, server.address(), key.data(), "Ann");
        CHECK(client.connect(token) == SLIPGATE_DONE);
        until([&] { return client.is_connected() && handle != 0; });
        events.clear();
        server_events.clear();
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
    CHECK(server.broadcast(channels.chat, "nobody is here") == SLIPGATE_DONE);
    slipgate_server* created = nullptr;
    char text[256];
    CHECK(slipgate_server_new(&config, &created, text, sizeof text) == SLIPGATE_DONE);
    slipgate::Server taken(created);
    slipgate_waker* waker = nullptr;
    CHECK(slipgate_waker_new(created, &waker) == SLIPGATE_DONE);
    slipgate::Waker(waker).wake();
    const std::uint8_t byte = 7;
    slipgate_transfer* transfer = nullptr;
    CHECK(slipgate_transfer_new(&byte, 1, &transfer) == SLIPGATE_DONE);
    CHECK(slipgate::Transfer(transfer).get() == transfer);
}

void channels() {
    Channels channels;
    channels.traffic.version(3);
    channels.traffic.settings(channels.uploads).admission = SLIPGATE_ADMIT_ASK;
    World world(channels.traffic);
    world.join();
    auto& [key, server, client, handle, events, server_events, text, sentence] = world;
    CHECK(client.send_message(channels.chat, "hello", slipgate::SendOptions().receipt(1).key(2).deadline_us(1000000)) ==
          SLIPGATE_DONE);
    CHECK(client.send_message(channels.state, "state") == SLIPGATE_DONE);
    world.until([&] { return world.has(SLIPGATE_RECEIPT); });
    CHECK(server.send_message(handle, channels.chat, "one") == SLIPGATE_DONE);
    CHECK(server.send_message(handle, channels.chat, "two", slipgate::SendOptions()) == SLIPGATE_DONE);
    const auto tagged = slipgate::SendOptions().receipt(2);
    std::array<slipgate_outgoing_message, 2> several{slipgate::outgoing(0, channels.chat, "a", &tagged),
                                                     slipgate::outgoing(0, 77, "b")};
    CHECK(client.send_messages(several.data(), several.size()) == SLIPGATE_ERROR_NO_CHANNEL);
    CHECK(several[0].status == SLIPGATE_DONE && several[1].status == SLIPGATE_ERROR_NO_CHANNEL);
    several[0] = slipgate::outgoing(handle, channels.chat, "two again");
    CHECK(server.send_messages(several.data(), 1) == SLIPGATE_DONE);
    world.until([&] { return text == "two again"; });
    CHECK(server.broadcast(channels.chat, "three") == SLIPGATE_DONE);
    world.until([&] { return text == "three"; });
    const slipgate::Transfer map(std::string(100000, 'm'));
    std::uint32_t id = 0;
    CHECK(server.send_transfer(handle, channels.maps, map, 1) == SLIPGATE_DONE);
    world.until([&] { return world.has(SLIPGATE_TRANSFER_RECEIVED); });
    CHECK(client.send_transfer(channels.uploads, map, 2, &id) == SLIPGATE_DONE);
    world.until([&] { return world.has(SLIPGATE_TRANSFER_OFFERED); });
    CHECK(server.accept_transfer(handle, channels.uploads, id) == SLIPGATE_DONE);
    CHECK(server.refuse_transfer(handle, channels.uploads, id) == SLIPGATE_DONE);
    CHECK(server.cancel_transfer(handle, channels.maps, 99) == SLIPGATE_ERROR_GONE);
    CHECK(client.accept_transfer(channels.maps, 99) == SLIPGATE_ERROR_GONE);
    CHECK(client.refuse_transfer(channels.maps, 99) == SLIPGATE_DONE);
    CHECK(client.cancel_transfer(channels.maps, 99) == SLIPGATE_ERROR_GONE);
    CHECK(client.path() && client.budget() && client.remaining(channels.chat) && !client.close_reason());
    CHECK(server.remaining(handle, channels.chat) && std::string_view(client.state_name()) == "connected");
    CHECK(!client.discards().empty() && !server.discards().empty() && *server.discards()[0].reason);
    CHECK(*slipgate::version());
    CHECK(server.path(handle) && server.budget(handle) && server.info(handle)->client_id == 5);
    CHECK(server.clients() == std::vector<std::uint64_t>{handle} && server.find(5) == handle && !server.find(6));
    CHECK(server.set_keys({key, slipgate::generate_key()}) == SLIPGATE_DONE);
    server.waker().wake();
    server.wait(60000000);
    server.accept_new_clients(true);
    server.set_uplink(12500000);
    CHECK(server.kick(handle, "no rockets", 300) == SLIPGATE_DONE);
    world.until([&] { return world.has(SLIPGATE_ENDED) && server.connected() == 0; });
    CHECK(client.close_reason() == "no rockets" && sentence == "no rockets" && !server.info(handle));
    world.join();
    CHECK(server.disconnect(handle) == SLIPGATE_DONE);
    world.until([&] { return !client.is_connected(); });
    world.join();
    CHECK(client.leave(256, "bye") == SLIPGATE_DONE);
    world.until([&] { return server.connected() == 0; });
    world.join();
    CHECK(server.stop("until tomorrow") == SLIPGATE_DONE);
    world.until([&] { return sentence == "until tomorrow"; });
    client.disconnect();
    slipgate::Client moved = std::move(client);
    CHECK(moved.state() <= 0);
}

void payloads_and_packets() {
    World plain(slipgate::Traffic::payloads());
    plain.join();
    CHECK(plain.client.send("a") == SLIPGATE_DONE && plain.server.send(plain.handle, "b") == SLIPGATE_DONE);
    World world(slipgate::Traffic::packets());
    world.join();
    std::uint16_t sequence = 0;
    CHECK(world.client.send_packet("a", &sequence) == SLIPGATE_DONE);
    CHECK(world.server.send_packet(world.handle, "b") == SLIPGATE_DONE);
}

void errors() {
    try {
        slipgate::Server server(slipgate::server_config());
        CHECK(false);
    } catch (const slipgate::Error& error) {
        CHECK(error.status() == SLIPGATE_ERROR_ARGUMENT && std::strstr(error.what(), "keys"));
    }
}

}  // namespace

int main() {
    CHECK(slipgate::set_log_level(SLIPGATE_LOG_INFO) == SLIPGATE_DONE);
    settings_and_pointers();
    channels();
    CHECK(slipgate::next_log_line().value().find(' ') == 4);
    payloads_and_packets();
    errors();
    std::puts("ok");
}
