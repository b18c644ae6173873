#include "os/paths.h"

#include <gtest/gtest.h>

#include <map>

namespace isthmus {
namespace {

EnvLookup fake_env(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto it = values.find(name);
    if (it == values.end() || it->second.empty()) return std::nullopt;
    return it->second;
  };
}

TEST(Paths, DefaultsFollowTheSpecification) {
  const auto env = fake_env({{"HOME", "/h/a"}});
  EXPECT_EQ(*standard_path(Place::kConfig, env), "/h/a/.config/isthmus");
  EXPECT_EQ(*standard_path(Place::kData, env), "/h/a/.local/share/isthmus");
  EXPECT_EQ(*standard_path(Place::kModels, env), "/h/a/.local/share/isthmus/models");
  EXPECT_EQ(*standard_path(Place::kCache, env), "/h/a/.cache/isthmus");
  EXPECT_EQ(*standard_path(Place::kState, env), "/h/a/.local/state/isthmus");
  EXPECT_EQ(*standard_path(Place::kRuntime, env), "/h/a/.cache/isthmus/run");
}

TEST(Paths, XdgVariablesMoveThePlaces) {
  const auto env = fake_env({{"HOME", "/h/a"},
                             {"XDG_DATA_HOME", "/data/"},
                             {"XDG_CACHE_HOME", "relative/is/ignored"},
                             {"XDG_RUNTIME_DIR", "/run/user/7"}});
  EXPECT_EQ(*standard_path(Place::kModels, env), "/data/isthmus/models");
  EXPECT_EQ(*standard_path(Place::kCache, env), "/h/a/.cache/isthmus");
  EXPECT_EQ(*standard_path(Place::kRuntime, env), "/run/user/7/isthmus");
}

TEST(Paths, OwnVariableWinsAndMustBeAbsolute) {
  const auto env = fake_env({{"HOME", "/h/a"},
                             {"XDG_DATA_HOME", "/data"},
                             {"ISTHMUS_MODELS", "/big/models"},
                             {"ISTHMUS_CACHE", "cache"}});
  EXPECT_EQ(*standard_path(Place::kModels, env), "/big/models");
  EXPECT_EQ(*standard_path(Place::kData, env), "/data/isthmus");
  const auto bad = standard_path(Place::kCache, env);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), Code::kInvalidArgument);
  EXPECT_NE(bad.status().message().find("ISTHMUS_CACHE"), std::string::npos);
}

TEST(Paths, EachPlaceHasItsOwnOverride) {
  for (const Place place :
       {Place::kConfig, Place::kData, Place::kModels, Place::kCache, Place::kState, Place::kRuntime}) {
    const auto env = fake_env({{std::string(override_variable(place)), "/only/here"}});
    EXPECT_EQ(*standard_path(place, env), "/only/here");
  }
}

}  // namespace
}  // namespace isthmus
