#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "format/testing/gguf_builder.h"

namespace isthmus {
namespace {

using testing::GgufBuilder;
using ::testing::HasSubstr;

struct Llama3Keys {
  float factor = 8;
  float low = 1;
  float high = 4;
  uint32_t original = 128;
  std::string absent;           // this key is left out
  bool divisors_too = false;    // rope_freqs.weight as well
  const char* type = "llama3";  // rope.scaling.type
};

/// The RoPE configuration that a file with these keys gives.
Result<ModelConfig> read_rope(const Llama3Keys& keys) {
  const auto has = [&](const char* name) { return keys.absent != name ? 1U : 0U; };
  GgufBuilder b;
  b.preamble(keys.divisors_too ? 1 : 0, 1 + has("factor") + has("low_freq_factor") + has("high_freq_factor") +
                                            has("original_context_length"));
  b.pair("llama.rope.scaling.type", keys.type);
  const auto number = [&](const char* name, float value) {
    if (has(name) != 0) b.pair<float>(std::string("llama.rope.scaling.") + name, GgufType::kF32, value);
  };
  number("factor", keys.factor);
  number("low_freq_factor", keys.low);
  number("high_freq_factor", keys.high);
  if (has("original_context_length") != 0)
    b.pair<uint32_t>("llama.rope.scaling.original_context_length", GgufType::kU32, keys.original);
  if (keys.divisors_too) {
    b.tensor("rope_freqs.weight", DType::kF32, {16}, 0).data(0);
    for (int i = 0; i < 16; ++i) b.scalar<float>(2);
  }
  const auto file = GgufFile::parse(b.bytes(), "test.gguf");
  EXPECT_TRUE(file.ok()) << file.status().to_string();
  ModelConfig config;
  config.architecture = "llama";
  config.head_dim = 32;
  config.context = 1024;
  ISTHMUS_RETURN_IF_ERROR(read_rope_config(*file, RopeStyle::kInterleaved, config));
  return config;
}

TEST(Llama3Scaling, IsReadFromItsKeys) {
  const auto config = read_rope({});
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(config->rope.factor, 8);
  EXPECT_EQ(config->rope.low_freq_factor, 1);
  EXPECT_EQ(config->rope.high_freq_factor, 4);
  EXPECT_EQ(config->rope.original_context, 128U);
  EXPECT_TRUE(config->rope_factors.empty());
}

TEST(Llama3Scaling, EveryKeyIsNeededAndNamed) {
  for (const char* name : {"factor", "low_freq_factor", "high_freq_factor", "original_context_length"}) {
    Llama3Keys keys;
    keys.absent = name;
    const auto config = read_rope(keys);
    ASSERT_FALSE(config.ok()) << name;
    EXPECT_THAT(config.status().message(), HasSubstr(std::string("llama.rope.scaling.") + name));
  }
}

TEST(Llama3Scaling, ValuesThatCannotBeAreNamed) {
  const auto message = [](const auto& change) {
    Llama3Keys keys;
    change(keys);
    const auto config = read_rope(keys);
    EXPECT_EQ(config.status().code(), Code::kCorrupt);
    return config.status().message();
  };
  EXPECT_THAT(message([](auto& k) { k.factor = 0.5F; }), HasSubstr("factor is 0.5"));
  EXPECT_THAT(message([](auto& k) { k.factor = std::nanf(""); }), HasSubstr("factor"));
  EXPECT_THAT(message([](auto& k) { k.low = 0; }), HasSubstr("low_freq_factor"));
  EXPECT_THAT(message([](auto& k) { k.low = 4; }), HasSubstr("ascending"));
  EXPECT_THAT(message([](auto& k) { k.high = std::nanf(""); }), HasSubstr("high_freq_factor"));
  EXPECT_THAT(message([](auto& k) { k.original = 0; }), HasSubstr("original_context_length"));
}

TEST(Llama3Scaling, ATensorOfDivisorsIsNotScaledOnceMore) {
  Llama3Keys keys;
  keys.divisors_too = true;
  const auto config = read_rope(keys);
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(config->rope_factors, std::vector<float>(16, 2.0F));
}

TEST(RopeScalingType, UnknownOnesListTheKnown) {
  Llama3Keys keys;
  keys.type = "su";
  const auto config = read_rope(keys);
  EXPECT_EQ(config.status().code(), Code::kUnsupported);
  EXPECT_THAT(config.status().message(), HasSubstr("'su'; known are none, linear, yarn, longrope, llama3"));
}

}  // namespace
}  // namespace isthmus
