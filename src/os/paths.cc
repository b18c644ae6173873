#include "os/paths.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

namespace isthmus {
namespace {

struct PlaceRule {
  std::string_view own;         // our override
  std::string_view xdg;         // the specification's variable; empty: none
  std::string_view below_home;  // default under the home directory
};

constexpr PlaceRule rule_of(Place place) {
  switch (place) {
    case Place::kConfig:
      return {"ISTHMUS_CONFIG", "XDG_CONFIG_HOME", ".config"};
    case Place::kData:
      return {"ISTHMUS_DATA", "XDG_DATA_HOME", ".local/share"};
    case Place::kModels:
      return {"ISTHMUS_MODELS", "", ""};
    case Place::kCache:
      return {"ISTHMUS_CACHE", "XDG_CACHE_HOME", ".cache"};
    case Place::kState:
      return {"ISTHMUS_STATE", "XDG_STATE_HOME", ".local/state"};
    case Place::kRuntime:
      break;
  }
  return {"ISTHMUS_RUNTIME", "XDG_RUNTIME_DIR", ""};
}

bool is_absolute(const std::string& path) { return !path.empty() && path.front() == '/'; }

std::string join(const std::string& folder, std::string_view name) {
  std::string out = folder;
  if (out.empty() || out.back() != '/') out += '/';
  return out.append(name);
}

}  // namespace

std::optional<std::string> process_env(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::string_view override_variable(Place place) { return rule_of(place).own; }

Result<std::string> home_path(const EnvLookup& env) {
  const auto home = env("HOME");
  if (home && is_absolute(*home)) return *home;
  std::vector<char> buffer(16384);
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr &&
      found->pw_dir != nullptr && found->pw_dir[0] == '/') {
    return std::string(found->pw_dir);
  }
  return failed_precondition("no home directory: HOME is not set and the account has none");
}

Result<std::string> standard_path(Place place, const EnvLookup& env) {
  const PlaceRule rule = rule_of(place);
  if (const auto own = env(std::string(rule.own))) {
    if (is_absolute(*own)) return *own;
    return invalid_argument(std::string(rule.own) + " must be an absolute path, not '" + *own + "'");
  }
  if (place == Place::kModels) {
    ISTHMUS_ASSIGN_OR_RETURN(const std::string data, standard_path(Place::kData, env));
    return join(data, "models");
  }
  if (const auto base = env(std::string(rule.xdg)); base && is_absolute(*base)) return join(*base, "isthmus");
  if (place == Place::kRuntime) {
    ISTHMUS_ASSIGN_OR_RETURN(const std::string cache, standard_path(Place::kCache, env));
    return join(cache, "run");
  }
  ISTHMUS_ASSIGN_OR_RETURN(const std::string home, home_path(env));
  return join(join(home, rule.below_home), "isthmus");
}

}  // namespace isthmus
