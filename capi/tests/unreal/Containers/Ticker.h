// The ticker of Unreal Engine 5; see CoreMinimal.h.
#pragma once

#include "CoreMinimal.h"

class FTickerDelegate {
public:
    template <typename Object> static FTickerDelegate CreateUObject(Object* Self, bool (Object::*Method)(float)) {
        FTickerDelegate Delegate;
        Delegate.Call = [Self, Method](float DeltaSeconds) { return (Self->*Method)(DeltaSeconds); };
        return Delegate;
    }
    std::function<bool(float)> Call;
};

class FTSTicker {
public:
    using FDelegateHandle = int;
    static FTSTicker& GetCoreTicker() {
        static FTSTicker Ticker;
        return Ticker;
    }
    FDelegateHandle AddTicker(const FTickerDelegate& Delegate) {
        Added = Delegate;
        return 1;
    }
    void RemoveTicker(FDelegateHandle) { Added = FTickerDelegate(); }
    void Tick(float DeltaSeconds) {
        if (Added.Call) Added.Call(DeltaSeconds);
    }

private:
    FTickerDelegate Added;
};
