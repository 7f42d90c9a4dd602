#include "SlipgateClient.h"

void USlipgateClient::Initialize(FSubsystemCollectionBase& Collection)
{
    Super::Initialize(Collection);
    Ticker = FTSTicker::GetCoreTicker().AddTicker(FTickerDelegate::CreateUObject(this, &USlipgateClient::Turn));
}

void USlipgateClient::Deinitialize()
{
    FTSTicker::GetCoreTicker().RemoveTicker(Ticker);
    // The destructor disconnects, so that the slot is free at once.
    Client.Reset();
    Super::Deinitialize();
}

FString USlipgateClient::Connect(const slipgate::Traffic& Traffic, const TArray<uint8>& Token)
{
    // Exceptions are off in Unreal, so the functions of the C interface report errors.
    slipgate_client* Raw = nullptr;
    char Error[256] = "";
    const slipgate_traffic Settings = Traffic.get();
    if (slipgate_client_new(&Settings, &Raw, Error, sizeof Error) < 0) return UTF8_TO_TCHAR(Error);
    Client = MakeUnique<slipgate::Client>(Raw);
    const int32 Status = Client->connect(Token.GetData(), Token.Num());
    return Status < 0 ? FString(UTF8_TO_TCHAR(slipgate_status_text(Status))) : FString();
}

bool USlipgateClient::SendMessage(int32 Channel, const TArray<uint8>& Bytes)
{
    const slipgate::Bytes Message(reinterpret_cast<const char*>(Bytes.GetData()), Bytes.Num());
    return Client && Client->send_message(static_cast<uint8>(Channel), Message) == SLIPGATE_DONE;
}

void USlipgateClient::Leave(const FString& Text)
{
    if (Client) Client->leave(0, TCHAR_TO_UTF8(*Text));
}

bool USlipgateClient::IsConnected() const
{
    return Client && Client->is_connected();
}

bool USlipgateClient::Turn(float)
{
    if (!Client) return true;
    Client->begin_turn();
    while (auto Event = Client->next())
    {
        const TArray<uint8> Bytes(Event->slipgate_event::bytes, static_cast<int32>(Event->length));
        if (Event->is(SLIPGATE_CONNECTED)) OnConnected.Broadcast();
        if (Event->is(SLIPGATE_MESSAGE)) OnMessage.Broadcast(static_cast<int32>(Event->channel), Bytes);
        if (Event->is(SLIPGATE_ENDED))
            OnEnded.Broadcast(FString(FUTF8ToTCHAR(reinterpret_cast<const ANSICHAR*>(Bytes.GetData()), Bytes.Num())));
        // A listener may have ended the client.
        if (!Client) return true;
    }
    Client->end_turn();
    return true;
}
