// The module of Unreal Engine 5; see CoreMinimal.h.
#pragma once

class FDefaultModuleImpl {};
#define IMPLEMENT_MODULE(Class, Name) Class Name##Module;
