// The subsystem of Unreal Engine 5; see CoreMinimal.h.
#pragma once

#include "CoreMinimal.h"

class FSubsystemCollectionBase {};

class UGameInstanceSubsystem {
public:
    virtual ~UGameInstanceSubsystem() = default;
    virtual void Initialize(FSubsystemCollectionBase&) {}
    virtual void Deinitialize() {}
};
