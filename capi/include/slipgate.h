/*
 * Slipgate: secure networking for games with dedicated servers. The C interface of clients and servers (C99).
 *
 * A game polls. A turn is `_begin_turn`, `_next_event` until SLIPGATE_NONE, sends, and `_end_turn`, once per frame or
 * tick. There are no callbacks and no global initialisation, and each object has its own clock. The library starts no
 * threads, except one for a server with a `history_file`, which writes it while a disk may be slow.
 *
 * Status    Functions return SLIPGATE_DONE (0), SLIPGATE_NONE (1) or an error (negative). Numbers never change.
 * Objects   `_new` gives an object and `_free` takes it. `_free` of a client or server disconnects, and accepts null.
 *           Every other function returns SLIPGATE_ERROR_ARGUMENT for a null object, but slipgate_client_state
 *           returns SLIPGATE_ERROR_PANIC.
 * Bytes in  are copied before a call returns.
 * Bytes out are lent: they stay valid until the next `_next_event`, `_next_events` or `_free` of the same object, those
 *           of `_next_event` not beyond the next `_begin_turn`. Sends are allowed meanwhile: a reply needs no copy.
 * Text      is UTF-8 with a length. Names in settings, and static texts, end with zero.
 * Threads   One thread at a time uses an object, and it may change. Objects are independent of each other. Only
 *           slipgate_waker_wake and the functions of the log may be called from any thread at any time.
 * Mistakes  of the library never unwind into the game: the call returns SLIPGATE_ERROR_PANIC, and the object can only
 *           be freed.
 * Growth    Within one SLIPGATE_ABI, functions, event kinds and constants are added: ignore unknown ones. Structures do
 *           not change. Those that begin with their size are refused if they are of another ABI.
 *
 * This file is generated from the sources of the package slipgate-c. License: MIT OR Apache-2.0.
 */

#ifndef SLIPGATE_H
#define SLIPGATE_H

#include <stddef.h>
#include <stdint.h>
#if defined(_WIN32) && defined(SLIPGATE_SHARED)
#define SLIPGATE_IMPORT __declspec(dllimport)
#else
#define SLIPGATE_IMPORT
#endif


// The version of the ABI. The library's soname ends with it.
#define SLIPGATE_ABI 1

// `slipgate_event`, for `slipgate_size_of`, as are the following ones.
#define SLIPGATE_STRUCT_EVENT 1

// `slipgate_channel`
#define SLIPGATE_STRUCT_CHANNEL 2

// `slipgate_traffic`
#define SLIPGATE_STRUCT_TRAFFIC 3

// `slipgate_send_options`
#define SLIPGATE_STRUCT_SEND_OPTIONS 4

// `slipgate_path`
#define SLIPGATE_STRUCT_PATH 5

// `slipgate_budget`
#define SLIPGATE_STRUCT_BUDGET 6

// `slipgate_close_reason`
#define SLIPGATE_STRUCT_CLOSE_REASON 7

// `slipgate_server_config`
#define SLIPGATE_STRUCT_SERVER_CONFIG 8

// `slipgate_client_info`
#define SLIPGATE_STRUCT_CLIENT_INFO 9

// `slipgate_claims`
#define SLIPGATE_STRUCT_CLAIMS 10

// `slipgate_remaining`
#define SLIPGATE_STRUCT_REMAINING 11

// `slipgate_outgoing_message`
#define SLIPGATE_STRUCT_OUTGOING_MESSAGE 12

// The call has done what it was asked for.
#define SLIPGATE_DONE 0

// There is none: no further event, no such counter, no path yet.
#define SLIPGATE_NONE 1

// An argument is invalid: a null pointer, a text that is not UTF-8, a structure without its size.
#define SLIPGATE_ERROR_ARGUMENT -1

// The operating system refused: no socket, no entropy, no file.
#define SLIPGATE_ERROR_IO -2

// The connect token is not one.
#define SLIPGATE_ERROR_TOKEN -3

// This program has used the connect token before. Request a new one.
#define SLIPGATE_ERROR_TOKEN_USED -4

// The client is connecting or connected. Disconnect it first.
#define SLIPGATE_ERROR_BUSY -5

// There is no such connection: it has not started, or it has ended.
#define SLIPGATE_ERROR_GONE -6

// A payload or packet has at least 1 byte.
#define SLIPGATE_ERROR_EMPTY -7

// There are too many bytes for the payload, packet, message, transfer or buffer.
#define SLIPGATE_ERROR_TOO_LARGE -8

// The queue is full, or no more can leave now. Try again later, or drop the message.
#define SLIPGATE_ERROR_BACKLOGGED -9

// There is no such channel.
#define SLIPGATE_ERROR_NO_CHANNEL -10

// A message was given to a channel of transfers, or a transfer to a channel of messages.
#define SLIPGATE_ERROR_WRONG_KIND -11

// The connection carries other traffic: payloads, packets, or messages on channels.
#define SLIPGATE_ERROR_WRONG_TRAFFIC -12

// A setting is out of its bounds. The text of the error names it.
#define SLIPGATE_ERROR_CONFIG -13

// The connect token lists no server that this machine can reach.
#define SLIPGATE_ERROR_NO_SERVER -14

// A mistake in the library. The object is out of order: every call returns this, and it can only be freed.
#define SLIPGATE_ERROR_PANIC -99

// No lines: how the library begins.
#define SLIPGATE_LOG_OFF 0

// Mistakes, after which something does not work.
#define SLIPGATE_LOG_ERROR 1

// What an operator should look at: a wrong clock, a full server, a disk that does not respond.
#define SLIPGATE_LOG_WARN 2

// Clients that come and go, and refused ones with their reasons.
#define SLIPGATE_LOG_INFO 3

// Each step of each handshake.
#define SLIPGATE_LOG_DEBUG 4

// Plain payloads of 1 to 1200 bytes, for peers of plain netcode. The default.
#define SLIPGATE_PAYLOADS 0

// Acknowledged packets of 1 byte to 16 KiB, for peers of netcode and reliable 1.0.
#define SLIPGATE_PACKETS 1

// Messages on channels, and transfers.
#define SLIPGATE_CHANNELS 2

// Each message arrives once or not at all, in any order.
#define SLIPGATE_UNRELIABLE 0

// Each message arrives once or not at all, and never after a newer one.
#define SLIPGATE_SEQUENCED 1

// Every message arrives once, as soon as possible.
#define SLIPGATE_RELIABLE_UNORDERED 2

// Every message arrives once, in the order in which the messages were sent.
#define SLIPGATE_RELIABLE_ORDERED 3

// Transfers of up to 64 MiB arrive once and whole.
#define SLIPGATE_TRANSFERS 4

// A flag of a channel: only the newest message counts. Older ones of earlier turns are discarded when it waits.
#define SLIPGATE_NEWEST_ONLY 1

// Accept the transfers of a server, refuse those of a client. The default.
#define SLIPGATE_ADMIT_FROM_SERVER 0

// Accept all transfers within the limits.
#define SLIPGATE_ADMIT_ALL 1

// Refuse all transfers.
#define SLIPGATE_ADMIT_NONE 2

// Ask the game by an event `SLIPGATE_TRANSFER_OFFERED`.
#define SLIPGATE_ADMIT_ASK 3

// A client has a slot. Events of a client: `number` is its index, `label` the number of slots. Events of a server:
// `number` is the client id of its token.
#define SLIPGATE_CONNECTED 1

// A payload arrived: `number` is its sequence number, a larger one is newer.
#define SLIPGATE_PAYLOAD 2

// An acknowledged packet arrived: `number` is its sequence number, modulo 2^16.
#define SLIPGATE_PACKET 3

// A message arrived on `channel`.
#define SLIPGATE_MESSAGE 4

// The delivery status of a message is known: `number` is the tag of its receipt, `reason` a status such as
// `SLIPGATE_ARRIVED`.
#define SLIPGATE_RECEIPT 5

// A packet of this side was acknowledged: `number` is its sequence number, `label` the round trip in microseconds.
#define SLIPGATE_PACKET_ACKED 6

// A packet of this side was lost: `number` is its sequence number.
#define SLIPGATE_PACKET_LOST 7

// The peer offers a transfer: `number` is its id, `label` the peer's label, `size` its bytes. Accept or refuse it.
#define SLIPGATE_TRANSFER_OFFERED 8

// A transfer is complete: `number` is its id, `label` the peer's label, `bytes` its content.
#define SLIPGATE_TRANSFER_RECEIVED 9

// A transfer of the peer ended early: `number` is its id, `label` the peer's label, `reason` why, `by` which side.
#define SLIPGATE_TRANSFER_BROKEN 10

// The connection ended during a transfer of the peer: `size` bytes of it have arrived. A client keeps them for its
// next connection, which continues if the server sends the same content again.
#define SLIPGATE_TRANSFER_KEPT 11

// The peer has all of a transfer: `number` is its id.
#define SLIPGATE_TRANSFER_DELIVERED 12

// The peer has refused or cancelled a transfer: `number` is its id, `reason` why.
#define SLIPGATE_TRANSFER_REFUSED 13

// The connection or the attempt has ended: `reason` is a kind such as `SLIPGATE_CLOSE_KICKED`, `by` which side,
// `label` the code or `SLIPGATE_NO_CODE`. Events of a client: `bytes` is a sentence for the player. Events of a
// server: `number` is the client id, `bytes` the text that came with the code.
#define SLIPGATE_ENDED 14

// The server has ended the connection, and the client connects to another server by itself: `SLIPGATE_CONNECTED` or
// `SLIPGATE_ENDED` follows. The fields are those of `SLIPGATE_ENDED`.
#define SLIPGATE_REDIRECTED 15

// The peer has all of the message.
#define SLIPGATE_ARRIVED 1

// The message counts as lost, and is not sent again.
#define SLIPGATE_LOST 2

// The deadline passed first.
#define SLIPGATE_EXPIRED 3

// A newer message replaced it.
#define SLIPGATE_SUPERSEDED 4

// The message was reported as lost, and arrived all the same.
#define SLIPGATE_ARRIVED_LATE 5

// The application cancelled the transfer.
#define SLIPGATE_TRANSFER_REASON_CANCELLED 0

// The application declined the transfer.
#define SLIPGATE_TRANSFER_REASON_DECLINED 1

// The transfer is larger than the receiver allows.
#define SLIPGATE_TRANSFER_REASON_TOO_LARGE 2

// More transfers are in progress than the receiver allows.
#define SLIPGATE_TRANSFER_REASON_BUSY 3

// The receiver has no memory for the transfer.
#define SLIPGATE_TRANSFER_REASON_NO_MEMORY 4

// All bytes arrived, and their digest is not the announced one.
#define SLIPGATE_TRANSFER_REASON_WRONG_DIGEST 5

// A connection was closed by this side.
#define SLIPGATE_BY_LOCAL 0

// A connection was closed by the peer.
#define SLIPGATE_BY_REMOTE 1

// A connection was closed by no side: a timeout, an expired token, a takeover.
#define SLIPGATE_BY_NETCODE 2

// The code of a close reason for which no side gave a code.
#define SLIPGATE_NO_CODE 65536

// The client left.
#define SLIPGATE_CLOSE_LEFT 1

// The server's application disconnected the client.
#define SLIPGATE_CLOSE_KICKED 2

// The server stops.
#define SLIPGATE_CLOSE_SERVER_STOPPED 3

// The server disconnected this client without a reason.
#define SLIPGATE_CLOSE_DISCONNECTED_BY_SERVER 4

// Nothing authentic arrived for the token's timeout.
#define SLIPGATE_CLOSE_TIMED_OUT 5

// The server sent a challenge but gave no slot in time. Request a new token.
#define SLIPGATE_CLOSE_RESPONSE_TIMED_OUT 6

// No server replied to the connection request. Request a new token.
#define SLIPGATE_CLOSE_REQUEST_TIMED_OUT 7

// Every server is full or admits no new clients.
#define SLIPGATE_CLOSE_DENIED 8

// The attempt outlasted the token's lifetime. Request a new token.
#define SLIPGATE_CLOSE_TOKEN_EXPIRED 9

// The token was used before, or lists no usable address. Request a new token.
#define SLIPGATE_CLOSE_INVALID_TOKEN 10

// The same player connected again, with a newer token.
#define SLIPGATE_CLOSE_TAKEN_OVER 11

// No sequence number is left.
#define SLIPGATE_CLOSE_SEQUENCES_USED_UP 12

// The two ends have different channels.
#define SLIPGATE_CLOSE_LAYOUT_MISMATCH 13

// The two ends share no version of the session layer.
#define SLIPGATE_CLOSE_VERSION_MISMATCH 14

// The peer does not implement the session layer.
#define SLIPGATE_CLOSE_NOT_A_SESSION 15

// The peer broke the protocol.
#define SLIPGATE_CLOSE_VIOLATION 16

// The peer reports that this end broke the protocol.
#define SLIPGATE_CLOSE_ACCUSED 17

// A reason of a later version.
#define SLIPGATE_CLOSE_OTHER 0

// `deadline_us` is set.
#define SLIPGATE_HAS_DEADLINE 1

// `key` is set.
#define SLIPGATE_HAS_KEY 2

// `receipt` is set.
#define SLIPGATE_HAS_RECEIPT 4

// Accept tokens from before this start. Only for the first start of an instance: a used token could be used again.
#define SLIPGATE_ACCEPT_OLD_TOKENS 1

// The bytes of a private key.
#define SLIPGATE_KEY_BYTES 32

// The bytes of a connect token.
#define SLIPGATE_TOKEN_BYTES 2048

// A client: its sockets, its inbox, and what it lends to the game.
typedef struct slipgate_client slipgate_client;

// A server: its sockets, its inbox, and what it lends to the game.
typedef struct slipgate_server slipgate_server;

// The content of a transfer.
typedef struct slipgate_transfer slipgate_transfer;

// A handle that ends the wait of a server.
typedef struct slipgate_waker slipgate_waker;

// The settings of a channel; `slipgate_channel_init` sets the defaults of its kind. Both ends need the same channels
// in the same order: name, kind, queue, `max_message_bytes` and `max_transfers_at_once` must be equal, and so must the
// version of the traffic.
typedef struct slipgate_channel {
    // The size of this structure, set by `slipgate_channel_init`.
    uint32_t size;
    // `SLIPGATE_UNRELIABLE` to `SLIPGATE_TRANSFERS`.
    uint32_t kind;
    // The name, at most 64 bytes and unique, ending with zero; null for none. It is copied with the layout.
    const char *name;
    // While a channel of a higher class has data to send, lower ones wait: 0 for transfers, 1 for messages by default.
    uint8_t priority;
    // How many transfers are in progress at once, 1 to 64; 4 by default.
    uint8_t max_transfers_at_once;
    // The share among the channels of the same class, at least 1.
    uint16_t weight;
    // The maximum bytes of a message, 1 to 65,536; 16,384 by default.
    uint32_t max_message_bytes;
    // The maximum bytes of messages that wait or are not acknowledged, up to 16 MiB; 65,536 by default.
    uint32_t queue_bytes;
    // The maximum number of such messages, 1 to 16,384; 256 by default.
    uint32_t queue_messages;
    // How long a message may wait to be sent, in milliseconds; 0 for as long as needed.
    uint32_t deadline_ms;
    // `SLIPGATE_NEWEST_ONLY`, or 0.
    uint32_t flags;
    // The maximum bytes of a transfer that this end accepts; 64 MiB by default.
    uint32_t max_transfer_bytes;
    // `SLIPGATE_ADMIT_FROM_SERVER` to `SLIPGATE_ADMIT_ASK`.
    uint32_t admission;
} slipgate_channel;

// What the connections of a client or server carry. A null pointer means payloads.
typedef struct slipgate_traffic {
    // The size of this structure: `sizeof(slipgate_traffic)`.
    uint32_t size;
    // `SLIPGATE_PAYLOADS`, `SLIPGATE_PACKETS` or `SLIPGATE_CHANNELS`.
    uint32_t kind;
    // The channels. Their indices, from 0, are their ids.
    const struct slipgate_channel *channels;
    // The number of channels, at most 62.
    size_t count;
    // The version of the game's messages. Clients with another one are refused. 0 for none.
    uint32_t version;
    // The maximum payload of a datagram in bytes, 508 to 1,200; 0 for 1,200.
    uint32_t max_payload_bytes;
} slipgate_traffic;

// Something that happened since the last event. The meaning of the fields depends on `kind`; others are 0.
typedef struct slipgate_event {
    // `SLIPGATE_CONNECTED` to `SLIPGATE_REDIRECTED`. Ignore unknown ones: later versions have more.
    uint32_t kind;
    // The channel.
    uint32_t channel;
    // A status, a kind or a reason, see the kinds of events.
    int32_t reason;
    // `SLIPGATE_BY_LOCAL`, `SLIPGATE_BY_REMOTE` or `SLIPGATE_BY_NETCODE`.
    uint32_t by;
    // The client at a server; 0 at a client.
    uint64_t client;
    // A sequence number, an id or a tag, see the kinds of events.
    uint64_t number;
    // The label of a transfer, and more, see the kinds of events.
    uint64_t label;
    // The bytes of a transfer.
    uint64_t size;
    // The content, lent until the next event or turn of this object; null if there is none.
    const uint8_t *bytes;
    // The bytes of the content.
    size_t length;
} slipgate_event;

// Options of one message. A null pointer means none.
typedef struct slipgate_send_options {
    // The size of this structure: `sizeof(slipgate_send_options)`.
    uint32_t size;
    // Which of the following fields are set: `SLIPGATE_HAS_DEADLINE`, `SLIPGATE_HAS_KEY`, `SLIPGATE_HAS_RECEIPT`.
    uint32_t flags;
    // How long the message may wait to be sent or sent again, in microseconds.
    uint64_t deadline_us;
    // A newer message with the same key replaces an older one.
    uint64_t key;
    // The tag under which an event `SLIPGATE_RECEIPT` reports the delivery status.
    uint64_t receipt;
} slipgate_send_options;

// One of several messages that are sent with one call.
typedef struct slipgate_outgoing_message {
    // The client that gets it. A client ignores it.
    uint64_t client;
    // The content, which the call copies. May be null without bytes.
    const uint8_t *bytes;
    // The length of the content in bytes.
    size_t length;
    // May be null.
    const struct slipgate_send_options *options;
    // The channel's id.
    uint32_t channel;
    // Written by the call: `SLIPGATE_DONE`, or why the message was refused. Unchanged if the call returns before the
    // message: null arguments, `SLIPGATE_ERROR_PANIC`.
    int32_t status;
} slipgate_outgoing_message;

// The state of the path. A time of -1 is not known yet.
typedef struct slipgate_path {
    // The smoothed round trip in milliseconds.
    double round_trip_ms;
    // The smoothed deviation of a round trip, in milliseconds (RFC 6298).
    double jitter_ms;
    // The minimum round trip of the last 20 s, in milliseconds.
    double base_round_trip_ms;
    // The queueing delay at the bottleneck, in milliseconds.
    double queueing_ms;
    // The share of lost packets among about the last hundred, 0 to 1.
    double loss;
    // The rate at which this end may send, in bytes per second with headers.
    double bytes_per_second;
} slipgate_path;

// The bytes that may leave up to the next tick of the game, and the size and number of messages that suit the path.
typedef struct slipgate_budget {
    // Bytes of payload that may leave up to the next tick.
    uint64_t bytes;
    // The largest message that leaves whole up to the next tick, in bytes.
    uint64_t max_message_bytes;
    // How many packets a second the game should send.
    double packets_per_second;
    // How many bytes of payload each of them should have.
    uint64_t payload_bytes;
} slipgate_budget;

// The room of a channel.
typedef struct slipgate_remaining {
    // Bytes.
    uint32_t bytes;
    // Messages.
    uint32_t messages;
    // Receipts.
    uint32_t receipts;
} slipgate_remaining;

// Why a connection, or an attempt to connect, ended.
typedef struct slipgate_close_reason {
    // `SLIPGATE_CLOSE_LEFT` to `SLIPGATE_CLOSE_ACCUSED`.
    int32_t kind;
    // `SLIPGATE_BY_LOCAL`, `SLIPGATE_BY_REMOTE` or `SLIPGATE_BY_NETCODE`.
    uint32_t by;
    // The code that came with it, or `SLIPGATE_NO_CODE`.
    uint32_t code;
    // 0.
    uint32_t reserved;
    // A sentence for the player in UTF-8, without a zero at its end.
    const uint8_t *text;
    // The bytes of the sentence.
    size_t text_length;
} slipgate_close_reason;

// The settings of a server; `slipgate_server_config_init` sets the defaults. Texts end with zero, and everything is
// copied when the server starts.
typedef struct slipgate_server_config {
    // The size of this structure, set by `slipgate_server_config_init`.
    uint32_t size;
    // The number of client slots, 1 to 65,536; 32 by default.
    uint32_t slots;
    // The id of the game. Tokens and packets with another id are refused.
    uint64_t protocol_id;
    // The addresses of the sockets, at most one for IPv4 and one for IPv6, separated by commas:
    // `0.0.0.0:40000,[::]:40000`.
    const char *bind;
    // The addresses of this server in connect tokens, separated by commas. Null for those of the sockets, which must
    // then be real addresses.
    const char *advertised;
    // The private keys, 32 bytes each, newest first: 1 to 3 of them.
    const uint8_t *keys;
    // The bytes of the keys.
    size_t keys_length;
    // The traffic of the connections; null for payloads.
    const struct slipgate_traffic *traffic;
    // The file that keeps the used tokens, so that a restarted server accepts tokens from before its start. Null for
    // none.
    const char *history_file;
    // The maximum lifetime of a token in seconds; 45 by default, 0 for no limit.
    uint32_t max_token_lifetime_seconds;
    // The silence after which a newer token for a connected client id may take over its slot, in milliseconds; 1,000
    // by default, 0 for never.
    uint32_t takeover_after_ms;
    // `SLIPGATE_ACCEPT_OLD_TOKENS`, or 0. Others are refused.
    uint32_t flags;
    // 0.
    uint32_t reserved;
} slipgate_server_config;

// A client of a server.
typedef struct slipgate_client_info {
    // The client id of its token.
    uint64_t client_id;
    // Its index, from 0; the client knows it by the same number.
    uint32_t client_index;
    // 4 for IPv4, 6 for IPv6.
    uint16_t address_family;
    // The port.
    uint16_t port;
    // The address in network order: 4 bytes for IPv4, 16 for IPv6.
    uint8_t address[16];
    // The time since it connected, in microseconds.
    uint64_t connected_us;
    // The time since its last authentic packet, in microseconds.
    uint64_t silent_us;
    // The bytes that were sent, with headers.
    uint64_t bytes_sent;
    // The bytes that were received, with headers.
    uint64_t bytes_received;
    // The 256 bytes that the backend wrote into its token.
    uint8_t user_data[256];
} slipgate_client_info;

// The content of a connect token.
typedef struct slipgate_claims {
    // The size of this structure: `sizeof(slipgate_claims)`.
    uint32_t size;
    // How long the token is valid, in seconds; 0 for 30.
    uint32_t lifetime_seconds;
    // The silence after which a connection ends, in seconds; 0 for the default of the issuer.
    uint32_t timeout_seconds;
    // The bytes of `user_data`, at most 256.
    uint32_t user_data_length;
    // The id of the game.
    uint64_t protocol_id;
    // The id of the player.
    uint64_t client_id;
    // The addresses of the servers, 1 to 32, separated by commas. The text ends with zero.
    const char *servers;
    // What the server learns about the player; null for nothing.
    const uint8_t *user_data;
} slipgate_claims;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the version of the library's ABI. It must be `SLIPGATE_ABI` of the header.
SLIPGATE_IMPORT uint32_t slipgate_abi(void);

// Returns the version of the library, such as "0.1.0": a static string that ends with zero.
SLIPGATE_IMPORT const char *slipgate_version(void);

// Returns the size of a structure in bytes, 0 for an unknown one. Bindings of other languages compare it with theirs.
SLIPGATE_IMPORT uint32_t slipgate_size_of(uint32_t structure);

// Returns a sentence about a status, for logs: a static string that ends with zero.
SLIPGATE_IMPORT const char *slipgate_status_text(int32_t status);

// Keeps the lines that the library logs from now on, up to this level: one of `SLIPGATE_LOG_OFF` to
// `SLIPGATE_LOG_DEBUG`. Take them with `slipgate_next_log_line`, for example once a tick: up to 256 wait. A dedicated
// server should keep `SLIPGATE_LOG_INFO`. `BUSY` if a program in Rust has a subscriber of its own, which gets them.
SLIPGATE_IMPORT int32_t slipgate_set_log_level(uint32_t level);

// Takes the oldest line that waits, such as "WARN slipgate_server::report: the server is full ... slots=64", without a
// time, as a text with a zero at its end. It is cut if it does not fit; 1,025 bytes are enough. `SLIPGATE_NONE` if no
// line waits. Any thread may call it.
SLIPGATE_IMPORT int32_t slipgate_next_log_line(char *text, size_t capacity);

// Sets the default settings of a kind of channel. `name` is not copied: it must live as long as `channel` is used.
SLIPGATE_IMPORT int32_t slipgate_channel_init(struct slipgate_channel *channel, uint32_t kind, const char *name);

// Creates the content of a transfer, up to 64 MiB, and copies and hashes the bytes: about a second for a gigabyte. A
// server creates it in advance, not in its tick. `SLIPGATE_ERROR_TOO_LARGE` for more bytes.
SLIPGATE_IMPORT int32_t slipgate_transfer_new(const uint8_t *bytes, size_t length, struct slipgate_transfer **out);

// Frees the content. Transfers that are being sent continue. Null is allowed.
SLIPGATE_IMPORT void slipgate_transfer_free(struct slipgate_transfer *transfer);

// Creates a client that is not connected. `traffic` may be null. The text of an error is written to `error`, which may
// be null, with a zero at its end.
SLIPGATE_IMPORT
int32_t slipgate_client_new(const struct slipgate_traffic *traffic,
                            struct slipgate_client **out,
                            char *error,
                            size_t error_capacity);

// Disconnects and frees a client. Null is allowed.
SLIPGATE_IMPORT void slipgate_client_free(struct slipgate_client *client);

// Starts to connect with a connect token of 2048 bytes, to the first of its servers that has a free slot.
//
// Errors: `TOKEN` if the bytes are no token, `TOKEN_USED` if this program has used it before, `NO_SERVER` if it lists
// no address that this machine can reach, `BUSY` if the client is connecting or connected.
SLIPGATE_IMPORT int32_t slipgate_client_connect(struct slipgate_client *client, const uint8_t *token, size_t length);

// Disconnects at once. The disconnect packets leave at the end of the turn.
SLIPGATE_IMPORT int32_t slipgate_client_disconnect(struct slipgate_client *client);

// Leaves with a code for the server's program, from 256 on, and a text of up to 256 bytes for people. Other codes
// count as 0, and a longer text is cut. Continue with turns until the event `SLIPGATE_ENDED`, for at most a second.
//
// Errors: `ARGUMENT` if the text is not UTF-8.
SLIPGATE_IMPORT
int32_t slipgate_client_leave(struct slipgate_client *client,
                              uint16_t code,
                              const char *text,
                              size_t length);

// Begins a turn. A turn is this call, events, sends, and `slipgate_client_end_turn`.
SLIPGATE_IMPORT int32_t slipgate_client_begin_turn(struct slipgate_client *client);

// Ends a turn: runs timers and sends what is due.
SLIPGATE_IMPORT int32_t slipgate_client_end_turn(struct slipgate_client *client);

// Sends what is due without ending the turn. A loop that wakes on every datagram calls it on arrival, and
// `slipgate_client_end_turn` once per tick.
SLIPGATE_IMPORT int32_t slipgate_client_flush(struct slipgate_client *client);

// Sleeps until a datagram arrives, a timer is due, or the time in microseconds is over. Games that draw frames need
// no such call.
SLIPGATE_IMPORT int32_t slipgate_client_wait(struct slipgate_client *client, uint32_t microseconds);

// Takes the next event of this turn. `SLIPGATE_NONE` if there is none, and then the event is unchanged.
SLIPGATE_IMPORT int32_t slipgate_client_next_event(struct slipgate_client *client, struct slipgate_event *event);

// Takes up to `capacity` events of this turn, at least 1, and writes their number to `count`: fewer calls for a game
// that receives many messages. Continue until `SLIPGATE_NONE`, then `count` is 0. The bytes of all of them are lent
// until the next call of this function, of `slipgate_client_next_event` or `slipgate_client_free`.
SLIPGATE_IMPORT
int32_t slipgate_client_next_events(struct slipgate_client *client,
                                    struct slipgate_event *events,
                                    size_t capacity,
                                    size_t *count);

// Encrypts a payload of 1 to 1200 bytes for the server, with `SLIPGATE_PAYLOADS`.
//
// Errors: `GONE`, `EMPTY`, `TOO_LARGE`, `WRONG_TRAFFIC`.
SLIPGATE_IMPORT int32_t slipgate_client_send(struct slipgate_client *client, const uint8_t *bytes, size_t length);

// Sends an acknowledged packet of 1 byte to 16 KiB, with `SLIPGATE_PACKETS`. `sequence` receives its number and may be
// null.
//
// Errors: `GONE`, `EMPTY`, `TOO_LARGE`, `BACKLOGGED`, `WRONG_TRAFFIC`.
SLIPGATE_IMPORT
int32_t slipgate_client_send_packet(struct slipgate_client *client,
                                    const uint8_t *bytes,
                                    size_t length,
                                    uint16_t *sequence);

// Queues a message on a channel, with `SLIPGATE_CHANNELS`. The bytes are copied. `options` may be null.
//
// Errors: `GONE`, `TOO_LARGE`, `BACKLOGGED`, `NO_CHANNEL`, `WRONG_KIND`, `WRONG_TRAFFIC`.
SLIPGATE_IMPORT
int32_t slipgate_client_send_message(struct slipgate_client *client,
                                     uint8_t channel,
                                     const uint8_t *bytes,
                                     size_t length,
                                     const struct slipgate_send_options *options);

// Queues several messages in their order, like `slipgate_client_send_message`: one call for a game that sends many.
// Each has its `status` afterwards; a refused one does not stop the ones behind it. On an ordered channel they arrive
// without it.
//
// Errors: `ARGUMENT` for null messages, otherwise the status of the first refused message.
SLIPGATE_IMPORT
int32_t slipgate_client_send_messages(struct slipgate_client *client,
                                      struct slipgate_outgoing_message *messages,
                                      size_t count);

// Starts a transfer on a channel of transfers. The server receives `label` with it. `id` may be null.
//
// Errors: `GONE`, `BACKLOGGED`, `NO_CHANNEL`, `WRONG_KIND`, `WRONG_TRAFFIC`.
SLIPGATE_IMPORT
int32_t slipgate_client_send_transfer(struct slipgate_client *client,
                                      uint8_t channel,
                                      const struct slipgate_transfer *transfer,
                                      uint64_t label,
                                      uint32_t *id);

// Accepts an offered transfer. `GONE` if there is no such offer.
SLIPGATE_IMPORT int32_t slipgate_client_accept_transfer(struct slipgate_client *client, uint8_t channel, uint32_t id);

// Refuses an offered transfer, or cancels one that is being received.
SLIPGATE_IMPORT int32_t slipgate_client_refuse_transfer(struct slipgate_client *client, uint8_t channel, uint32_t id);

// Cancels a transfer that is being sent. `GONE` if there is none.
SLIPGATE_IMPORT int32_t slipgate_client_cancel_transfer(struct slipgate_client *client, uint8_t channel, uint32_t id);

// Returns the state in the numbers of netcode 1.02: -6 to -1 are errors, 0 disconnected, 1 and 2 connecting, 3
// connected. -99 for null, and after a panic.
SLIPGATE_IMPORT int32_t slipgate_client_state(struct slipgate_client *client);

// Returns a stable word for a state, such as "connected": a static string that ends with zero.
SLIPGATE_IMPORT const char *slipgate_client_state_name(int32_t state);

// Writes the state of the path. `SLIPGATE_NONE` while not connected, and with `SLIPGATE_PAYLOADS`.
SLIPGATE_IMPORT int32_t slipgate_client_path(struct slipgate_client *client, struct slipgate_path *path);

// Writes how much may leave now. `SLIPGATE_NONE` while not connected, and with `SLIPGATE_PAYLOADS`.
SLIPGATE_IMPORT int32_t slipgate_client_budget(struct slipgate_client *client, struct slipgate_budget *budget);

// Writes what a channel still takes: nothing where there is no such channel. `SLIPGATE_NONE` while not connected.
SLIPGATE_IMPORT
int32_t slipgate_client_remaining(struct slipgate_client *client,
                                  uint8_t channel,
                                  struct slipgate_remaining *remaining);

// Writes why the last attempt or connection ended, until the next one starts. `SLIPGATE_NONE` before. The sentence is
// lent until the next call of this function.
SLIPGATE_IMPORT
int32_t slipgate_client_close_reason(struct slipgate_client *client,
                                     struct slipgate_close_reason *reason);

// Writes the number of datagrams that were dropped for a reason, from index 0 on. `SLIPGATE_NONE` behind the last one.
// `name` receives a static string that ends with zero; it and `count` may be null.
SLIPGATE_IMPORT
int32_t slipgate_client_discards(struct slipgate_client *client,
                                 uint32_t index,
                                 uint64_t *count,
                                 const char **name);

// Sets the default settings.
SLIPGATE_IMPORT int32_t slipgate_server_config_init(struct slipgate_server_config *config);

// Starts a server. The text of an error is written to `error`, which may be null, with a zero at its end.
//
// Errors: `ARGUMENT` for an invalid address, key or structure, `CONFIG` for a setting out of its bounds, `IO` if the
// system refuses a socket or the history file.
SLIPGATE_IMPORT
int32_t slipgate_server_new(const struct slipgate_server_config *config,
                            struct slipgate_server **out,
                            char *error,
                            size_t error_capacity);

// Stops and frees a server: its clients learn of it. Null is allowed.
SLIPGATE_IMPORT void slipgate_server_free(struct slipgate_server *server);

// Begins a turn. A turn is this call, events, sends, and `slipgate_server_end_turn`.
SLIPGATE_IMPORT int32_t slipgate_server_begin_turn(struct slipgate_server *server);

// Ends a turn: runs timers, sends what is due, and counts timeouts.
SLIPGATE_IMPORT int32_t slipgate_server_end_turn(struct slipgate_server *server);

// Sends what is due without ending the turn. A loop that wakes on every datagram calls it on arrival, and
// `slipgate_server_end_turn` once per tick.
SLIPGATE_IMPORT int32_t slipgate_server_flush(struct slipgate_server *server);

// Sleeps until a datagram arrives, the server is woken, or the time in microseconds is over.
SLIPGATE_IMPORT int32_t slipgate_server_wait(struct slipgate_server *server, uint32_t microseconds);

// Takes the next event of this turn. `SLIPGATE_NONE` if there is none, and then the event is unchanged.
SLIPGATE_IMPORT int32_t slipgate_server_next_event(struct slipgate_server *server, struct slipgate_event *event);

// Takes up to `capacity` events of this turn, at least 1, and writes their number to `count`: fewer calls for a game
// that receives many messages. Continue until `SLIPGATE_NONE`, then `count` is 0. The bytes of all of them are lent
// until the next call of this function, of `slipgate_server_next_event` or `slipgate_server_free`.
SLIPGATE_IMPORT
int32_t slipgate_server_next_events(struct slipgate_server *server,
                                    struct slipgate_event *events,
                                    size_t capacity,
                                    size_t *count);

// Queues a message on this channel of every client, except `except` if it is not 0. `queued` and `refused` receive how
// many clients get it and how many have a full queue; both may be null.
//
// Errors: `TOO_LARGE`, `NO_CHANNEL`, `WRONG_KIND`, `WRONG_TRAFFIC`.
SLIPGATE_IMPORT
int32_t slipgate_server_broadcast(struct slipgate_server *server,
                                  uint8_t channel,
                                  uint64_t except,
                                  const uint8_t *bytes,
                                  size_t length,
                                  uint32_t *queued,
                                  uint32_t *refused);

// Disconnects every client with a text of up to 256 bytes for the players, and accepts no new ones. Continue with
// turns until `slipgate_server_connected` is 0, for some seconds at most.
SLIPGATE_IMPORT int32_t slipgate_server_stop(struct slipgate_server *server, const char *text, size_t length);

// Writes the handles of the connected clients in the order of their slots, at most `capacity`, and their number to
// `count`. `TOO_LARGE` if there are more than `capacity`; `count` has the number then, too.
SLIPGATE_IMPORT
int32_t slipgate_server_clients(struct slipgate_server *server,
                                uint64_t *clients,
                                size_t capacity,
                                size_t *count);

// Writes the number of used slots. A client that was kicked keeps its slot until it has acknowledged the reason.
SLIPGATE_IMPORT int32_t slipgate_server_connected(struct slipgate_server *server, uint32_t *count);

// Writes the handle of a client id while it is connected. `SLIPGATE_NONE` if it is not.
SLIPGATE_IMPORT int32_t slipgate_server_find(struct slipgate_server *server, uint64_t client_id, uint64_t *client);

// Sets whether new clients get a slot: 1 at first, 0 denies them as on a full server.
SLIPGATE_IMPORT int32_t slipgate_server_accept_new_clients(struct slipgate_server *server, uint32_t accept);

// Limits what the server sends to all clients together, in bytes each second; 0, the first value, is no limit. Then
// transfers may fill the uplink, and the other clients' messages wait behind them.
SLIPGATE_IMPORT int32_t slipgate_server_set_uplink(struct slipgate_server *server, uint64_t bytes_per_second);

// Replaces the private keys: 1 to 3 keys of 32 bytes each, newest first. Connected clients are not affected.
SLIPGATE_IMPORT int32_t slipgate_server_set_keys(struct slipgate_server *server, const uint8_t *keys, size_t length);

// Writes a bound address as a text such as "127.0.0.1:40000" with a zero at its end, from index 0 on. `SLIPGATE_NONE`
// behind the last one, `TOO_LARGE` if it does not fit; 64 bytes are enough.
SLIPGATE_IMPORT
int32_t slipgate_server_address(struct slipgate_server *server,
                                uint32_t index,
                                char *text,
                                size_t capacity);

// Writes the number of datagrams that were dropped for a reason, from index 0 on. `SLIPGATE_NONE` behind the last one.
// `name` receives a static string that ends with zero; it and `count` may be null.
SLIPGATE_IMPORT
int32_t slipgate_server_discards(struct slipgate_server *server,
                                 uint32_t index,
                                 uint64_t *count,
                                 const char **name);

// Encrypts a payload of 1 to 1200 bytes for a client, with `SLIPGATE_PAYLOADS`.
//
// Errors: `GONE`, `EMPTY`, `TOO_LARGE`, `WRONG_TRAFFIC`.
SLIPGATE_IMPORT
int32_t slipgate_server_send(struct slipgate_server *server,
                             uint64_t client,
                             const uint8_t *bytes,
                             size_t length);

// Sends an acknowledged packet of 1 byte to 16 KiB, with `SLIPGATE_PACKETS`. `sequence` receives its number and may be
// null.
//
// Errors: `GONE`, `EMPTY`, `TOO_LARGE`, `BACKLOGGED`, `WRONG_TRAFFIC`.
SLIPGATE_IMPORT
int32_t slipgate_server_send_packet(struct slipgate_server *server,
                                    uint64_t client,
                                    const uint8_t *bytes,
                                    size_t length,
                                    uint16_t *sequence);

// Queues a message on a client's channel, with `SLIPGATE_CHANNELS`. The bytes are copied. `options` may be null.
//
// Errors: `GONE`, `TOO_LARGE`, `BACKLOGGED`, `NO_CHANNEL`, `WRONG_KIND`, `WRONG_TRAFFIC`.
SLIPGATE_IMPORT
int32_t slipgate_server_send_message(struct slipgate_server *server,
                                     uint64_t client,
                                     uint8_t channel,
                                     const uint8_t *bytes,
                                     size_t length,
                                     const struct slipgate_send_options *options);

// Queues several messages in their order, each to its `client`, like `slipgate_server_send_message`: one call for a
// game that sends many. Each has its `status` afterwards; a refused one does not stop the ones behind it. On an
// ordered channel they arrive without it.
//
// Errors: `ARGUMENT` for null messages, otherwise the status of the first refused message.
SLIPGATE_IMPORT
int32_t slipgate_server_send_messages(struct slipgate_server *server,
                                      struct slipgate_outgoing_message *messages,
                                      size_t count);

// Starts a transfer to a client. It receives `label` with it. `id` may be null.
//
// Errors: `GONE`, `BACKLOGGED`, `NO_CHANNEL`, `WRONG_KIND`, `WRONG_TRAFFIC`.
SLIPGATE_IMPORT
int32_t slipgate_server_send_transfer(struct slipgate_server *server,
                                      uint64_t client,
                                      uint8_t channel,
                                      const struct slipgate_transfer *transfer,
                                      uint64_t label,
                                      uint32_t *id);

// Accepts an offered transfer. `GONE` if there is no such offer.
SLIPGATE_IMPORT
int32_t slipgate_server_accept_transfer(struct slipgate_server *server,
                                        uint64_t client,
                                        uint8_t channel,
                                        uint32_t id);

// Refuses an offered transfer, or cancels one that is being received.
SLIPGATE_IMPORT
int32_t slipgate_server_refuse_transfer(struct slipgate_server *server,
                                        uint64_t client,
                                        uint8_t channel,
                                        uint32_t id);

// Cancels a transfer that is being sent. `GONE` if there is none.
SLIPGATE_IMPORT
int32_t slipgate_server_cancel_transfer(struct slipgate_server *server,
                                        uint64_t client,
                                        uint8_t channel,
                                        uint32_t id);

// Disconnects a client with a code for its program, from 256 on or 0, and a text of up to 256 bytes for the player.
// Other codes count as 0, and a longer text is cut. Both are sent only with `SLIPGATE_CHANNELS`. The event
// `SLIPGATE_ENDED` of the client follows.
//
// Errors: `GONE`, `ARGUMENT` if the text is not UTF-8.
SLIPGATE_IMPORT
int32_t slipgate_server_kick(struct slipgate_server *server,
                             uint64_t client,
                             uint16_t code,
                             const char *text,
                             size_t length);

// Disconnects a client at once, without a text. It also frees the slot of a client that was kicked before.
SLIPGATE_IMPORT int32_t slipgate_server_disconnect(struct slipgate_server *server, uint64_t client);

// Writes the address, ids and counters of a client.
SLIPGATE_IMPORT
int32_t slipgate_server_client_info(struct slipgate_server *server,
                                    uint64_t client,
                                    struct slipgate_client_info *info);

// Writes the state of a client's path. `SLIPGATE_NONE` with `SLIPGATE_PAYLOADS`.
SLIPGATE_IMPORT
int32_t slipgate_server_path(struct slipgate_server *server,
                             uint64_t client,
                             struct slipgate_path *path);

// Writes how much may leave to a client now. `SLIPGATE_NONE` with `SLIPGATE_PAYLOADS`.
SLIPGATE_IMPORT
int32_t slipgate_server_budget(struct slipgate_server *server,
                               uint64_t client,
                               struct slipgate_budget *budget);

// Writes what a client's channel still takes: nothing where there is no such channel.
SLIPGATE_IMPORT
int32_t slipgate_server_remaining(struct slipgate_server *server,
                                  uint64_t client,
                                  uint8_t channel,
                                  struct slipgate_remaining *remaining);

// Creates a waker, which may outlive the server.
SLIPGATE_IMPORT int32_t slipgate_waker_new(struct slipgate_server *server, struct slipgate_waker **out);

// Ends the current wait of the server, or the next one. Any thread may call it at any time.
SLIPGATE_IMPORT int32_t slipgate_waker_wake(const struct slipgate_waker *waker);

// Frees a waker. Null is allowed.
SLIPGATE_IMPORT void slipgate_waker_free(struct slipgate_waker *waker);

// Writes a new private key of 32 bytes. `IO` if the system gives no entropy.
SLIPGATE_IMPORT int32_t slipgate_key_generate(uint8_t *key);

// Mints a connect token of 2048 bytes with a private key of 32 bytes. The key must not be in the program of a player.
//
// Errors: `ARGUMENT` for an invalid address, `TOO_LARGE` for too much user data, `CONFIG` for a lifetime or timeout
// out of its bounds and for addresses that cannot be dialled, `IO` if the system gives no entropy.
SLIPGATE_IMPORT int32_t slipgate_token_issue(const struct slipgate_claims *claims, const uint8_t *key, uint8_t *token);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SLIPGATE_H */
