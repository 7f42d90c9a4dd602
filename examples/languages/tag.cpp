// A client of the game of tag in C++17, see `tag_server.rs`: a bot that chases the nearest player when it is "it", and
// otherwise flees.
//
//     tag 127.0.0.1:40000 4 Dora
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>

#include "slipgate.hpp"

namespace {

// The game's id and key: as in `tag/mod.rs`, and only for development.
constexpr std::uint64_t PROTOCOL_ID = 0x74616721;
constexpr char KEY[] = "a key that every player may have";
constexpr std::uint32_t TICK_US = 50000;

struct Field {
    int x, y;
};

struct World {
    std::uint64_t it = 0;
    std::map<std::uint64_t, Field> fields;
};

// Reads messages that are encoded by bincode: numbers up to 250 take a byte, larger ones a mark and their bytes.
class Reader {
public:
    explicit Reader(slipgate::Bytes bytes) : bytes_(bytes) {}

    std::uint8_t byte() {
        if (bytes_.empty()) throw std::runtime_error("a message is too short");
        const char first = bytes_.front();
        bytes_.remove_prefix(1);
        return static_cast<std::uint8_t>(first);
    }

    std::uint64_t number() {
        const std::uint8_t first = byte();
        if (first <= 250) return first;
        std::uint64_t number = 0;
        for (int i = 0; i < 2 << (first - 251) && i < 8; i++) number |= std::uint64_t{byte()} << 8 * i;
        return number;
    }

    World world() {
        World world{number(), {}};
        for (std::uint64_t left = number(); left > 0; left--) {
            const std::uint64_t id = number();
            const int x = static_cast<std::int8_t>(byte());
            world.fields[id] = {x, static_cast<std::int8_t>(byte())};
        }
        return world;
    }

private:
    slipgate::Bytes bytes_;
};

struct Channels {
    slipgate::Traffic traffic;
    std::uint8_t steps = traffic.add(SLIPGATE_SEQUENCED, "steps");
    std::uint8_t state = traffic.add(SLIPGATE_SEQUENCED, "state", SLIPGATE_NEWEST_ONLY);
    std::uint8_t news = traffic.add(SLIPGATE_RELIABLE_ORDERED, "news");

    Channels() { traffic.version(1); }
};

class Player {
public:
    Player(const std::string& address, std::uint64_t id, const char* name) : client_(channels_.traffic), id_(id) {
        // The backend of a real game mints the token.
        const auto* key = reinterpret_cast<const std::uint8_t*>(KEY);
        slipgate::require(client_.connect(slipgate::issue_token(PROTOCOL_ID, id, address, key, name)));
    }

    // Handles what has arrived, sends a step, and sleeps until more happens. Returns false when the game has ended.
    bool turn() {
        client_.begin_turn();
        while (auto event = client_.next()) {
            const bool is_message = event->is(SLIPGATE_MESSAGE);
            if (is_message && event->channel == channels_.state) world_ = Reader(event->view()).world();
            if (is_message && event->channel == channels_.news) std::cout << event->view() << std::endl;
        }
        // If it is refused, the next step is newer.
        if (const auto step = choose_step()) client_.send_message(channels_.steps, {step->data(), step->size()});
        client_.end_turn();
        client_.wait(TICK_US);
        if (const auto reason = client_.close_reason()) std::cout << *reason << std::endl;
        return !client_.close_reason();
    }

private:
    // Chases the nearest player when this one is "it", and otherwise flees from the player that is.
    std::optional<std::array<char, 2>> choose_step() const {
        const auto me = world_.fields.find(id_);
        if (me == world_.fields.end()) return std::nullopt;
        const bool is_it = world_.it == id_;
        const auto distance = [&](const Field& field) {
            return std::max(std::abs(field.x - me->second.x), std::abs(field.y - me->second.y));
        };
        const Field* other = nullptr;
        for (const auto& [id, field] : world_.fields) {
            if (id == id_ || (!is_it && id != world_.it)) continue;
            if (!other || distance(field) < distance(*other)) other = &field;
        }
        if (!other) return std::nullopt;
        const auto step = [&](int from, int to) {
            return static_cast<char>(is_it ? (to > from) - (to < from) : 1 - 2 * (to > from));
        };
        return std::array{step(me->second.x, other->x), step(me->second.y, other->y)};
    }

    Channels channels_;
    slipgate::Client client_;
    std::uint64_t id_;
    World world_;
};

}  // namespace

int main(int count, char** arguments) try {
    if (count != 4) throw std::runtime_error("usage: tag ADDRESS ID NAME");
    Player player(arguments[1], std::strtoull(arguments[2], nullptr, 10), arguments[3]);
    while (player.turn()) {}
} catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
}
