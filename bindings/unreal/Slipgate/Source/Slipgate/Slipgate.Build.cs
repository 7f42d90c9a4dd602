// Links the native library from ThirdParty/, the files of an archive of `cargo xtask archive-c` for each platform.
using System.IO;
using UnrealBuildTool;

public class Slipgate : ModuleRules
{
    public Slipgate(ReadOnlyTargetRules Target) : base(Target)
    {
        PCHUsage = PCHUsageMode.UseExplicitOrSharedPCHs;
        PublicDependencyModuleNames.AddRange(new[] { "Core", "CoreUObject", "Engine" });
        string Root = Path.Combine(ModuleDirectory, "..", "..", "ThirdParty", Target.Platform.ToString());
        PublicIncludePaths.Add(Path.Combine(Root, "include"));
        if (Target.Platform == UnrealTargetPlatform.Win64)
        {
            PublicDefinitions.Add("SLIPGATE_SHARED=1");
            PublicAdditionalLibraries.Add(Path.Combine(Root, "lib", "libslipgate.dll.a"));
            PublicDelayLoadDLLs.Add("slipgate.dll");
            RuntimeDependencies.Add("$(TargetOutputDir)/slipgate.dll", Path.Combine(Root, "bin", "slipgate.dll"));
        }
        else
        {
            PublicAdditionalLibraries.Add(Path.Combine(Root, "lib", "libslipgate.a"));
        }
    }
}
