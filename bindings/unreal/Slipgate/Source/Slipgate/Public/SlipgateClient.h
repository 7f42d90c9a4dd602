// A client that runs its turn on the game thread. It replaces no UNetDriver: it carries the game's own messages.
#pragma once

#include "Containers/Ticker.h"
#include "CoreMinimal.h"
#include "Subsystems/GameInstanceSubsystem.h"
#include "slipgate.hpp"

#include "SlipgateClient.generated.h"

DECLARE_DYNAMIC_MULTICAST_DELEGATE(FSlipgateConnected);
DECLARE_DYNAMIC_MULTICAST_DELEGATE_TwoParams(FSlipgateMessage, int32, Channel, const TArray<uint8>&, Bytes);
DECLARE_DYNAMIC_MULTICAST_DELEGATE_OneParam(FSlipgateEnded, const FString&, Reason);

UCLASS()
class SLIPGATE_API USlipgateClient : public UGameInstanceSubsystem
{
    GENERATED_BODY()

public:
    virtual void Initialize(FSubsystemCollectionBase& Collection) override;
    virtual void Deinitialize() override;

    // Creates a client with these channels and connects with a token of 2048 bytes. Returns an error for the log, or an
    // empty text.
    FString Connect(const slipgate::Traffic& Traffic, const TArray<uint8>& Token);

    UFUNCTION(BlueprintCallable, Category = "Slipgate")
    bool SendMessage(int32 Channel, const TArray<uint8>& Bytes);

    UFUNCTION(BlueprintCallable, Category = "Slipgate")
    void Leave(const FString& Text);

    UFUNCTION(BlueprintPure, Category = "Slipgate")
    bool IsConnected() const;

    UPROPERTY(BlueprintAssignable, Category = "Slipgate")
    FSlipgateConnected OnConnected;
    UPROPERTY(BlueprintAssignable, Category = "Slipgate")
    FSlipgateMessage OnMessage;
    // The reason is a sentence for the player.
    UPROPERTY(BlueprintAssignable, Category = "Slipgate")
    FSlipgateEnded OnEnded;

private:
    bool Turn(float DeltaSeconds);

    TUniquePtr<slipgate::Client> Client;
    FTSTicker::FDelegateHandle Ticker;
};
