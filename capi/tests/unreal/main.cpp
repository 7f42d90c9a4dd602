// Runs the Unreal module without the engine: connects to a server of this program, and takes an echo. Prints "ok".
#include <cstring>

#include "SlipgateClient.h"

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition);       \
            return 1;                                                          \
        }                                                                      \
    } while (0)

int main() {
    slipgate::Traffic Traffic;
    const auto Chat = Traffic.add(SLIPGATE_RELIABLE_ORDERED, "chat");
    const slipgate_traffic Settings = Traffic.get();
    std::uint8_t Key[SLIPGATE_KEY_BYTES], Token[SLIPGATE_TOKEN_BYTES];
    char Address[64];
    slipgate_server* Server = nullptr;
    slipgate_server_config Config;
    slipgate_claims Claims;
    std::memset(&Claims, 0, sizeof Claims);
    CHECK(slipgate_key_generate(Key) == SLIPGATE_DONE && slipgate_server_config_init(&Config) == SLIPGATE_DONE);
    Config.bind = "127.0.0.1:0";
    Config.keys = Key;
    Config.keys_length = sizeof Key;
    Config.traffic = &Settings;
    Config.flags = SLIPGATE_ACCEPT_OLD_TOKENS;
    CHECK(slipgate_server_new(&Config, &Server, nullptr, 0) == SLIPGATE_DONE);
    CHECK(slipgate_server_address(Server, 0, Address, sizeof Address) == SLIPGATE_DONE);
    Claims.size = sizeof Claims;
    Claims.client_id = 5;
    Claims.servers = Address;
    CHECK(slipgate_token_issue(&Claims, Key, Token) == SLIPGATE_DONE);

    USlipgateClient Client;
    FSubsystemCollectionBase Collection;
    int Connected = 0, Echoes = 0, Ended = 0;
    const TArray<uint8> Message(reinterpret_cast<const uint8*>("hello"), 5);
    Client.OnConnected.Listener = [&] { Connected += Client.SendMessage(Chat, Message); };
    Client.OnMessage.Listener = [&](int32 Channel, const TArray<uint8>& Bytes) {
        Echoes += Channel == Chat && Bytes.Num() == 5 && std::memcmp(Bytes.GetData(), "hello", 5) == 0;
    };
    Client.OnEnded.Listener = [&](const FString& Reason) { Ended += !Reason.IsEmpty(); };
    Client.Initialize(Collection);
    CHECK(!Client.IsConnected() && !Client.SendMessage(Chat, Message));
    CHECK(!Client.Connect(Traffic, TArray<uint8>(Token, 7)).IsEmpty());
    CHECK(Client.Connect(Traffic, TArray<uint8>(Token, sizeof Token)).IsEmpty());
    for (int Turn = 0; Turn < 20000 && Ended == 0; Turn++) {
        slipgate_event Event;
        slipgate_server_begin_turn(Server);
        while (slipgate_server_next_event(Server, &Event) == SLIPGATE_DONE)
            if (Event.kind == SLIPGATE_MESSAGE)
                slipgate_server_send_message(Server, Event.client, Chat, Event.bytes, Event.length, nullptr);
        slipgate_server_end_turn(Server);
        FTSTicker::GetCoreTicker().Tick(0.016f);
        if (Echoes == 1) Client.Leave(FString("bye"));
        slipgate_server_wait(Server, 1000);
    }
    CHECK(Connected == 1 && Echoes == 1 && Ended == 1 && !Client.IsConnected());
    Client.Deinitialize();
    slipgate_server_free(Server);
    std::puts("ok");
    return 0;
}
