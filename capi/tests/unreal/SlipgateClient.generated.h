// The engine generates this file.
#pragma once
