// Slipgate for C++17: classes that own the objects of slipgate.h, in a header alone.
//
//     slipgate::Client client(traffic);          // throws slipgate::Error
//     client.connect(token);                      // a status, as all calls of a turn
//     client.begin_turn();
//     while (auto event = client.next()) { ... }  // event->view() lies in the inbox, until the next event
//     client.end_turn();
//
// Constructors throw, and so do the functions that return a new object or value: issue_token, generate_key, settings
// and waker. Calls of a turn return a status, which slipgate::require turns into an exception. Where a compiler has
// exceptions disabled, they print the error and abort; such programs create objects with the functions of slipgate.h,
// and give them to the constructors that take a pointer. The rules of slipgate.h hold for lent bytes and for threads.
// License: MIT OR Apache-2.0.
#ifndef SLIPGATE_HPP
#define SLIPGATE_HPP

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "slipgate.h"

namespace slipgate {

// Bytes that somebody else owns.
using Bytes = std::basic_string_view<char>;
using Key = std::array<std::uint8_t, SLIPGATE_KEY_BYTES>;
using Token = std::array<std::uint8_t, SLIPGATE_TOKEN_BYTES>;

inline const std::uint8_t* data(Bytes bytes) { return reinterpret_cast<const std::uint8_t*>(bytes.data()); }

// The error of a constructor.
class Error : public std::runtime_error {
public:
    Error(std::int32_t status, const char* text)
        : std::runtime_error(*text ? text : slipgate_status_text(status)), status_(status) {}
    std::int32_t status() const { return status_; }

private:
    std::int32_t status_;
};

// Throws an Error if a status is one.
inline void require(std::int32_t status, const char* text = "") {
    if (status >= 0) return;
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
    throw Error(status, text);
#else
    std::fprintf(stderr, "slipgate: %s\n", Error(status, text).what());
    std::abort();
#endif
}

// An event with views of its bytes.
struct Event : slipgate_event {
    Bytes view() const { return {reinterpret_cast<const char*>(slipgate_event::bytes), length}; }
    bool is(std::uint32_t wanted) const { return kind == wanted; }
};
static_assert(sizeof(Event) == sizeof(slipgate_event), "an array of events is one of the C interface");

// Datagrams that were dropped for one reason.
struct Discard {
    const char* reason;
    std::uint64_t count;
};

// The version of the library, such as "0.1.0".
inline const char* version() { return slipgate_version(); }

// What connections carry. Copies refer to the names of the channels, which must live as long.
class Traffic {
public:
    static Traffic payloads() { return Traffic(SLIPGATE_PAYLOADS); }
    static Traffic packets() { return Traffic(SLIPGATE_PACKETS); }
    explicit Traffic(std::uint32_t kind = SLIPGATE_CHANNELS) : kind_(kind) {}

    // Adds a channel and returns its id. `settings` returns the channel for changes, until the next call.
    std::uint8_t add(std::uint32_t kind, const char* name, std::uint32_t flags = 0) {
        slipgate_channel channel;
        require(slipgate_channel_init(&channel, kind, name));
        channel.flags = flags;
        channels_.push_back(channel);
        return static_cast<std::uint8_t>(channels_.size() - 1);
    }
    slipgate_channel& settings(std::uint8_t channel) { return channels_.at(channel); }
    void version(std::uint32_t version) { version_ = version; }
    // The maximum payload of a datagram in bytes, 508 to 1,200.
    void max_payload_bytes(std::uint32_t bytes) { max_payload_bytes_ = bytes; }
    slipgate_traffic get() const {
        return {sizeof(slipgate_traffic), kind_, channels_.data(), channels_.size(), version_, max_payload_bytes_};
    }

private:
    std::uint32_t kind_, version_ = 0, max_payload_bytes_ = 0;
    std::vector<slipgate_channel> channels_;
};

// The options of a message.
class SendOptions {
public:
    SendOptions() : options_{sizeof(slipgate_send_options), 0, 0, 0, 0} {}
    SendOptions& deadline_us(std::uint64_t deadline) { return set(SLIPGATE_HAS_DEADLINE, options_.deadline_us, deadline); }
    SendOptions& key(std::uint64_t key) { return set(SLIPGATE_HAS_KEY, options_.key, key); }
    SendOptions& receipt(std::uint64_t tag) { return set(SLIPGATE_HAS_RECEIPT, options_.receipt, tag); }
    const slipgate_send_options* get() const { return &options_; }

private:
    SendOptions& set(std::uint32_t flag, std::uint64_t& field, std::uint64_t value) {
        options_.flags |= flag;
        field = value;
        return *this;
    }
    slipgate_send_options options_;
};

// A message for `send_messages`; a client leaves `client` 0. The bytes and options must live until the call.
inline slipgate_outgoing_message outgoing(std::uint64_t client, std::uint8_t channel, Bytes message,
                                          const SendOptions* options = nullptr) {
    return {client, data(message), message.size(), options ? options->get() : nullptr, channel, SLIPGATE_NONE};
}

struct Deleter {
    void operator()(slipgate_client* client) const { slipgate_client_free(client); }
    void operator()(slipgate_server* server) const { slipgate_server_free(server); }
    void operator()(slipgate_transfer* transfer) const { slipgate_transfer_free(transfer); }
    void operator()(slipgate_waker* waker) const { slipgate_waker_free(waker); }
};

// The content of a transfer, hashed once.
class Transfer {
public:
    explicit Transfer(Bytes bytes) {
        slipgate_transfer* transfer = nullptr;
        require(slipgate_transfer_new(data(bytes), bytes.size(), &transfer));
        handle_.reset(transfer);
    }
    // Takes what a function of slipgate.h created, where exceptions are off.
    explicit Transfer(slipgate_transfer* created) : handle_(created) {}

    const slipgate_transfer* get() const { return handle_.get(); }

private:
    std::unique_ptr<slipgate_transfer, Deleter> handle_;
};

// A game client.
class Client {
public:
    explicit Client(const Traffic& traffic = Traffic::payloads()) {
        char text[256] = "";
        slipgate_client* client = nullptr;
        const slipgate_traffic settings = traffic.get();
        require(slipgate_client_new(&settings, &client, text, sizeof text), text);
        handle_.reset(client);
    }

    // Takes what a function of slipgate.h created, where exceptions are off.
    explicit Client(slipgate_client* client) : handle_(client) {}

    [[nodiscard]] std::int32_t connect(const std::uint8_t* token, std::size_t length) {
        return slipgate_client_connect(get(), token, length);
    }
    [[nodiscard]] std::int32_t connect(const Token& token) { return connect(token.data(), token.size()); }
    void disconnect() { slipgate_client_disconnect(get()); }
    std::int32_t leave(std::uint16_t code, std::string_view text) {
        return slipgate_client_leave(get(), code, text.data(), text.size());
    }
    std::int32_t begin_turn() { return slipgate_client_begin_turn(get()); }
    std::int32_t end_turn() { return slipgate_client_end_turn(get()); }
    std::int32_t flush() { return slipgate_client_flush(get()); }
    std::int32_t wait(std::uint32_t microseconds) { return slipgate_client_wait(get(), microseconds); }
    std::optional<Event> next() {
        Event event;
        if (slipgate_client_next_event(get(), &event) != SLIPGATE_DONE) return std::nullopt;
        return event;
    }
    // Takes several events with one call, and returns their number: 0 if there is none.
    template <std::size_t N> std::size_t next(std::array<Event, N>& events) {
        std::size_t count = 0;
        slipgate_client_next_events(get(), events.data(), N, &count);
        return count;
    }
    std::int32_t send(Bytes payload) { return slipgate_client_send(get(), data(payload), payload.size()); }
    std::int32_t send_packet(Bytes packet, std::uint16_t* sequence = nullptr) {
        return slipgate_client_send_packet(get(), data(packet), packet.size(), sequence);
    }
    std::int32_t send_message(std::uint8_t channel, Bytes message) {
        return slipgate_client_send_message(get(), channel, data(message), message.size(), nullptr);
    }
    std::int32_t send_message(std::uint8_t channel, Bytes message, const SendOptions& options) {
        return slipgate_client_send_message(get(), channel, data(message), message.size(), options.get());
    }
    // Sends several messages with one call. Each has its status afterwards; returns the status of the first refused one.
    std::int32_t send_messages(slipgate_outgoing_message* messages, std::size_t count) {
        return slipgate_client_send_messages(get(), messages, count);
    }
    std::int32_t send_transfer(std::uint8_t channel, const Transfer& transfer, std::uint64_t label,
                               std::uint32_t* id = nullptr) {
        return slipgate_client_send_transfer(get(), channel, transfer.get(), label, id);
    }
    std::int32_t accept_transfer(std::uint8_t channel, std::uint32_t id) {
        return slipgate_client_accept_transfer(get(), channel, id);
    }
    std::int32_t refuse_transfer(std::uint8_t channel, std::uint32_t id) {
        return slipgate_client_refuse_transfer(get(), channel, id);
    }
    std::int32_t cancel_transfer(std::uint8_t channel, std::uint32_t id) {
        return slipgate_client_cancel_transfer(get(), channel, id);
    }
    std::int32_t state() const { return slipgate_client_state(get()); }
    const char* state_name() const { return slipgate_client_state_name(state()); }
    bool is_connected() const { return state() == 3; }
    std::optional<slipgate_path> path() const {
        slipgate_path path;
        if (slipgate_client_path(get(), &path) != SLIPGATE_DONE) return std::nullopt;
        return path;
    }
    std::optional<slipgate_budget> budget() const {
        slipgate_budget budget;
        if (slipgate_client_budget(get(), &budget) != SLIPGATE_DONE) return std::nullopt;
        return budget;
    }
    std::optional<slipgate_remaining> remaining(std::uint8_t channel) const {
        slipgate_remaining remaining;
        if (slipgate_client_remaining(get(), channel, &remaining) != SLIPGATE_DONE) return std::nullopt;
        return remaining;
    }
    std::vector<Discard> discards() const {
        std::vector<Discard> found;
        Discard discard{};
        for (std::uint32_t i = 0; slipgate_client_discards(get(), i, &discard.count, &discard.reason) == SLIPGATE_DONE; i++)
            found.push_back(discard);
        return found;
    }
    // Returns why the last connection ended, with kind, side and code; its text is valid until the next call.
    std::optional<slipgate_close_reason> why_closed() const {
        slipgate_close_reason reason;
        if (slipgate_client_close_reason(get(), &reason) != SLIPGATE_DONE) return std::nullopt;
        return reason;
    }
    // Returns the sentence for the player, or nothing while no connection has ended.
    std::optional<std::string> close_reason() const {
        slipgate_close_reason reason;
        if (slipgate_client_close_reason(get(), &reason) != SLIPGATE_DONE) return std::nullopt;
        return std::string(reinterpret_cast<const char*>(reason.text), reason.text_length);
    }
    slipgate_client* get() const { return handle_.get(); }

private:
    std::unique_ptr<slipgate_client, Deleter> handle_;
};

// Ends the wait of a server, from any thread.
class Waker {
public:
    explicit Waker(slipgate_server* server) {
        slipgate_waker* waker = nullptr;
        require(slipgate_waker_new(server, &waker));
        handle_.reset(waker);
    }
    // Takes what a function of slipgate.h created, where exceptions are off.
    explicit Waker(slipgate_waker* created) : handle_(created) {}

    void wake() const { slipgate_waker_wake(handle_.get()); }

private:
    std::unique_ptr<slipgate_waker, Deleter> handle_;
};

// The settings of a server: the structure of the C interface, with its defaults.
inline slipgate_server_config server_config() {
    slipgate_server_config config;
    slipgate_server_config_init(&config);
    return config;
}

// A dedicated game server. `config.traffic` is used if it is set, and `traffic` otherwise.
class Server {
public:
    explicit Server(const slipgate_server_config& config, const Traffic& traffic = Traffic::payloads()) {
        char text[256] = "";
        slipgate_server* server = nullptr;
        slipgate_server_config all = config;
        const slipgate_traffic settings = traffic.get();
        if (all.traffic == nullptr) all.traffic = &settings;
        require(slipgate_server_new(&all, &server, text, sizeof text), text);
        handle_.reset(server);
    }

    // Takes what a function of slipgate.h created, where exceptions are off.
    explicit Server(slipgate_server* created) : handle_(created) {}

    std::int32_t begin_turn() { return slipgate_server_begin_turn(get()); }
    std::int32_t end_turn() { return slipgate_server_end_turn(get()); }
    std::int32_t flush() { return slipgate_server_flush(get()); }
    std::int32_t wait(std::uint32_t microseconds) { return slipgate_server_wait(get(), microseconds); }
    std::optional<Event> next() {
        Event event;
        if (slipgate_server_next_event(get(), &event) != SLIPGATE_DONE) return std::nullopt;
        return event;
    }
    // Takes several events with one call, and returns their number: 0 if there is none.
    template <std::size_t N> std::size_t next(std::array<Event, N>& events) {
        std::size_t count = 0;
        slipgate_server_next_events(get(), events.data(), N, &count);
        return count;
    }
    std::int32_t send(std::uint64_t client, Bytes payload) {
        return slipgate_server_send(get(), client, data(payload), payload.size());
    }
    std::int32_t send_packet(std::uint64_t client, Bytes packet, std::uint16_t* sequence = nullptr) {
        return slipgate_server_send_packet(get(), client, data(packet), packet.size(), sequence);
    }
    std::int32_t send_message(std::uint64_t client, std::uint8_t channel, Bytes message) {
        return slipgate_server_send_message(get(), client, channel, data(message), message.size(), nullptr);
    }
    std::int32_t send_message(std::uint64_t client, std::uint8_t channel, Bytes message, const SendOptions& options) {
        return slipgate_server_send_message(get(), client, channel, data(message), message.size(), options.get());
    }
    // Sends several messages, each to its client, with one call. Each has its status afterwards; returns the status of
    // the first refused one.
    std::int32_t send_messages(slipgate_outgoing_message* messages, std::size_t count) {
        return slipgate_server_send_messages(get(), messages, count);
    }
    // `queued` and `refused` receive how many clients get the message, and how many have a full queue.
    std::int32_t broadcast(std::uint8_t channel, Bytes message, std::uint64_t except = 0,
                           std::uint32_t* queued = nullptr, std::uint32_t* refused = nullptr) {
        return slipgate_server_broadcast(get(), channel, except, data(message), message.size(), queued, refused);
    }
    std::int32_t send_transfer(std::uint64_t client, std::uint8_t channel, const Transfer& transfer,
                               std::uint64_t label, std::uint32_t* id = nullptr) {
        return slipgate_server_send_transfer(get(), client, channel, transfer.get(), label, id);
    }
    std::int32_t accept_transfer(std::uint64_t client, std::uint8_t channel, std::uint32_t id) {
        return slipgate_server_accept_transfer(get(), client, channel, id);
    }
    std::int32_t refuse_transfer(std::uint64_t client, std::uint8_t channel, std::uint32_t id) {
        return slipgate_server_refuse_transfer(get(), client, channel, id);
    }
    std::int32_t cancel_transfer(std::uint64_t client, std::uint8_t channel, std::uint32_t id) {
        return slipgate_server_cancel_transfer(get(), client, channel, id);
    }
    std::int32_t kick(std::uint64_t client, std::string_view text, std::uint16_t code = 0) {
        return slipgate_server_kick(get(), client, code, text.data(), text.size());
    }
    std::int32_t disconnect(std::uint64_t client) { return slipgate_server_disconnect(get(), client); }
    std::int32_t stop(std::string_view text) { return slipgate_server_stop(get(), text.data(), text.size()); }
    std::uint32_t connected() const {
        std::uint32_t count = 0;
        slipgate_server_connected(get(), &count);
        return count;
    }
    std::vector<std::uint64_t> clients() const {
        std::vector<std::uint64_t> clients(connected());
        std::size_t count = 0;
        slipgate_server_clients(get(), clients.data(), clients.size(), &count);
        clients.resize(count);
        return clients;
    }
    std::optional<std::uint64_t> find(std::uint64_t client_id) const {
        std::uint64_t client = 0;
        if (slipgate_server_find(get(), client_id, &client) != SLIPGATE_DONE) return std::nullopt;
        return client;
    }
    std::optional<slipgate_client_info> info(std::uint64_t client) const {
        slipgate_client_info info;
        if (slipgate_server_client_info(get(), client, &info) != SLIPGATE_DONE) return std::nullopt;
        return info;
    }
    std::optional<slipgate_path> path(std::uint64_t client) const {
        slipgate_path path;
        if (slipgate_server_path(get(), client, &path) != SLIPGATE_DONE) return std::nullopt;
        return path;
    }
    std::optional<slipgate_budget> budget(std::uint64_t client) const {
        slipgate_budget budget;
        if (slipgate_server_budget(get(), client, &budget) != SLIPGATE_DONE) return std::nullopt;
        return budget;
    }
    std::optional<slipgate_remaining> remaining(std::uint64_t client, std::uint8_t channel) const {
        slipgate_remaining remaining;
        if (slipgate_server_remaining(get(), client, channel, &remaining) != SLIPGATE_DONE) return std::nullopt;
        return remaining;
    }
    std::vector<Discard> discards() const {
        std::vector<Discard> found;
        Discard discard{};
        for (std::uint32_t i = 0; slipgate_server_discards(get(), i, &discard.count, &discard.reason) == SLIPGATE_DONE; i++)
            found.push_back(discard);
        return found;
    }
    // Bytes each second to all clients together; 0 is no limit.
    void set_uplink(std::uint64_t bytes_per_second) { slipgate_server_set_uplink(get(), bytes_per_second); }
    void accept_new_clients(bool accept) { slipgate_server_accept_new_clients(get(), accept ? 1 : 0); }
    std::int32_t set_keys(const std::vector<Key>& newest_first) {
        return slipgate_server_set_keys(get(), newest_first.empty() ? nullptr : newest_first[0].data(),
                                        newest_first.size() * SLIPGATE_KEY_BYTES);
    }
    std::string address(std::uint32_t index = 0) const {
        char text[64] = "";
        slipgate_server_address(get(), index, text, sizeof text);
        return text;
    }
    Waker waker() { return Waker(get()); }
    slipgate_server* get() const { return handle_.get(); }

private:
    std::unique_ptr<slipgate_server, Deleter> handle_;
};

// Keeps the library's log lines up to this level: SLIPGATE_LOG_OFF to SLIPGATE_LOG_DEBUG.
inline std::int32_t set_log_level(std::uint32_t level) { return slipgate_set_log_level(level); }
// Takes the oldest log line that waits.
inline std::optional<std::string> next_log_line() {
    char line[1025];
    if (slipgate_next_log_line(line, sizeof line) != SLIPGATE_DONE) return std::nullopt;
    return line;
}

inline Key generate_key() {
    Key key;
    require(slipgate_key_generate(key.data()));
    return key;
}

// Mints a connect token, for development: in production a backend does, and the key is never in a game.
inline Token issue_token(std::uint64_t protocol_id, std::uint64_t client_id, const std::string& servers,
                         const std::uint8_t* key, Bytes user_data = {}) {
    slipgate_claims claims = {};
    claims.size = sizeof claims;
    claims.protocol_id = protocol_id;
    claims.client_id = client_id;
    claims.servers = servers.c_str();
    claims.user_data = data(user_data);
    claims.user_data_length = static_cast<std::uint32_t>(user_data.size());
    Token token;
    require(slipgate_token_issue(&claims, key, token.data()));
    return token;
}

}  // namespace slipgate

#endif
