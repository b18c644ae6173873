// Where Isthmus keeps its files, by the XDG base directory specification, version 0.8.
//
// Each place has one environment variable that overrides it; a relative path in an XDG variable is ignored,
// as the specification says, while a relative path in one of ours is an error. Nothing is created here.
// Thread-safe as long as nobody changes the environment.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace isthmus {

enum class Place {
  kConfig,   // ISTHMUS_CONFIG,  $XDG_CONFIG_HOME/isthmus,  ~/.config/isthmus
  kData,     // ISTHMUS_DATA,    $XDG_DATA_HOME/isthmus,    ~/.local/share/isthmus
  kModels,   // ISTHMUS_MODELS,  <data>/models
  kCache,    // ISTHMUS_CACHE,   $XDG_CACHE_HOME/isthmus,   ~/.cache/isthmus
  kState,    // ISTHMUS_STATE,   $XDG_STATE_HOME/isthmus,   ~/.local/state/isthmus
  kRuntime,  // ISTHMUS_RUNTIME, $XDG_RUNTIME_DIR/isthmus,  <cache>/run
};

/// The value of an environment variable; nullopt when unset or empty.
using EnvLookup = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> process_env(const std::string& name);

/// Absolute path of `place`. kInvalidArgument for a relative override, kFailedPrecondition without a home.
Result<std::string> standard_path(Place place, const EnvLookup& env = process_env);

/// The user's home directory: $HOME, else the account's entry.
Result<std::string> home_path(const EnvLookup& env = process_env);

/// Name of the variable that overrides `place` ("ISTHMUS_MODELS").
std::string_view override_variable(Place place);

}  // namespace isthmus
