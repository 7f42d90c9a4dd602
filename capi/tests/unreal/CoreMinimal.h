// What SlipgateClient.cpp uses of Unreal Engine 5, for the test that the module fits slipgate.hpp. Names and signatures
// are those of the engine's documentation; the bodies do as much as a run without the engine needs.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

using int32 = std::int32_t;
using uint8 = std::uint8_t;
using ANSICHAR = char;
using TCHAR = char16_t;

// The engine's macros of one parameter: no header that a module includes may use these names.
#define check(Expression) { if (!(Expression)) std::abort(); }
#define verify(Expression) { if (!(Expression)) std::abort(); }
#define ensure(Expression) (Expression)

#define SLIPGATE_API
#define UCLASS(...)
#define UFUNCTION(...)
#define UPROPERTY(...)
#define GENERATED_BODY() using Super = UGameInstanceSubsystem;

template <typename Element> class TArray {
public:
    TArray() = default;
    TArray(const Element* First, int32 Count) : Elements(First, First + Count) {}
    const Element* GetData() const { return Elements.data(); }
    int32 Num() const { return static_cast<int32>(Elements.size()); }

private:
    std::vector<Element> Elements;
};

class FUTF8ToTCHAR {
public:
    FUTF8ToTCHAR(const ANSICHAR* Text, int32 Length) : Bytes(Text, static_cast<std::size_t>(Length)) {}
    const std::string& Get() const { return Bytes; }

private:
    std::string Bytes;
};

class FString {
public:
    FString() = default;
    FString(const FUTF8ToTCHAR& Text) : Bytes(Text.Get()) {}
    FString(const ANSICHAR* Text) : Bytes(Text) {}
    bool IsEmpty() const { return Bytes.empty(); }
    const ANSICHAR* operator*() const { return Bytes.c_str(); }

private:
    std::string Bytes;
};

#define UTF8_TO_TCHAR(Text) FString(Text)
#define TCHAR_TO_UTF8(Text) (Text)

template <typename Object> class TUniquePtr {
public:
    TUniquePtr() = default;
    explicit TUniquePtr(Object* Raw) : Owned(Raw) {}
    void Reset() { Owned.reset(); }
    Object* operator->() const { return Owned.get(); }
    explicit operator bool() const { return Owned != nullptr; }

private:
    std::unique_ptr<Object> Owned;
};

template <typename Object, typename... Arguments> TUniquePtr<Object> MakeUnique(Arguments&&... Values) {
    return TUniquePtr<Object>(new Object(std::forward<Arguments>(Values)...));
}

template <typename... Arguments> class TStubDelegate {
public:
    void Broadcast(Arguments... Values) const {
        if (Listener) Listener(Values...);
    }
    std::function<void(Arguments...)> Listener;
};

#define DECLARE_DYNAMIC_MULTICAST_DELEGATE(Name) using Name = TStubDelegate<>
#define DECLARE_DYNAMIC_MULTICAST_DELEGATE_OneParam(Name, First, FirstName) using Name = TStubDelegate<First>
#define DECLARE_DYNAMIC_MULTICAST_DELEGATE_TwoParams(Name, First, FirstName, Second, SecondName)                      \
    using Name = TStubDelegate<First, Second>
