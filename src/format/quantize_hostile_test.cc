// Requantising a file whose tensor table lies must not carry memory of this process into the new model
// (reliability row 8: "requantise copies heap into a model"). A good file's extents are patched one by one;
// and a canary that fills the memory around the source and all memory that was freed before never turns up in
// an output.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "format/quantize_model.h"
#include "format/testing/gguf_builder.h"
#include "os/file_sim.h"
#include "tensor/quant.h"

namespace isthmus {
namespace {

using testing::GgufBuilder;
using ::testing::HasSubstr;
using testing::with_field;

constexpr std::string_view kCanary = "\xC3\x5A\x3C\xA5\x96\x69\xF1\x1E";
constexpr size_t kRow = 256;
constexpr uint64_t kQ8Bytes = kRow / 32 * 34;

/// One matrix each of F32, F16, Q8_0 and Q4_K with a norm between; sizes that need padding.
GgufBuilder good_model() {
  GgufBuilder b;
  b.preamble(5, 2)
      .pair("general.architecture", "llama")
      .pair<uint32_t>("general.file_type", GgufType::kU32, 7)
      .tensor("token_embd.weight", DType::kQ8_0, {kRow, 5}, 0)
      .tensor("blk.0.attn_q.weight", DType::kF32, {kRow, 2}, 1376)
      .tensor("blk.0.attn_norm.weight", DType::kF32, {3}, 3424)
      .tensor("blk.0.ffn_up.weight", DType::kF16, {kRow, 2}, 3456)
      .tensor("output.weight", DType::kQ4_K, {kRow, 3}, 4480)
      .data(0);
  const auto zeros = [&](size_t n) { b.text(std::string(n, '\0')); };
  for (size_t i = 0; i < 5 * kRow / 32; ++i)
    b.scalar<uint16_t>(0x2E66).text(std::string(32, static_cast<char>(i)));
  zeros(1376 - 5 * kQ8Bytes);
  for (size_t i = 0; i < 2 * kRow; ++i) b.scalar(static_cast<float>(i % 17) / 8 - 1);
  for (size_t i = 0; i < 3; ++i) b.scalar(1.5F);
  zeros(3456 - 3424 - 12);
  for (size_t i = 0; i < 2 * kRow; ++i) b.scalar<uint16_t>(static_cast<uint16_t>(0x3000 + i));
  for (size_t i = 0; i < 3; ++i)
    b.scalar<uint16_t>(0x2C00).scalar<uint16_t>(0x2800).text(std::string(140, 'q'));
  return b;
}

/// Fills memory that the allocator will hand out next with the canary.
void spray() {
  std::vector<std::unique_ptr<std::string>> blocks;
  for (const size_t size : {24, 56, 120, 248, 504, 1016, 2040, 4088, 8184, 16376, 65528, 262144}) {
    for (size_t i = 0; i < std::min<size_t>(64, (size_t{1} << 20) / size); ++i) {
      auto block = std::make_unique<std::string>();
      while (block->size() < size) block->append(kCanary);
      blocks.push_back(std::move(block));
    }
  }
}

/// The source in memory with canaries on both sides and behind its last byte.
class Surrounded {
 public:
  explicit Surrounded(std::span<const std::byte> bytes) : size_(bytes.size()) {
    while (all_.size() < kMargin) all_.append(kCanary);
    all_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    for (size_t i = 0; i < kMargin; i += kCanary.size()) all_.append(kCanary);
  }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(all_)).subspan(kMargin, size_); }

 private:
  static constexpr size_t kMargin = 8192;
  size_t size_;
  std::string all_;
};

struct Outcome {
  Status status;
  std::string file;  // what was published; empty when nothing
};

Outcome quantize(std::span<const std::byte> source, const std::string& target) {
  const Surrounded surrounded(source);
  spray();
  SimFileSystem files;
  Outcome out;
  const auto model = GgufFile::parse(surrounded.bytes(), "source");
  if (model.ok()) {
    QuantizeOptions options;
    options.wish.target = target;
    options.wish.allow_requantize = true;
    out.status = quantize_model(*model, files, "d/out", options).status();
  } else {
    out.status = model.status();
  }
  EXPECT_LE(files.names().size(), out.status.ok() ? 1U : 0U) << "something half-written was left";
  if (files.exists("d/out")) out.file = files.read("d/out", size_t{1} << 24).value();
  return out;
}

/// No canary in any alignment of the bytes, nor its first half.
bool has_canary(const std::string& file) { return file.find(kCanary.substr(0, 4)) != std::string::npos; }

const std::vector<std::string> kTargets = {"Q8_0", "F32", "F16", "Q4_0", "Q4_K_M"};

TEST(QuantizeCanary, GoodFilesGiveNoByteOfTheHeap) {
  const auto good = good_model();
  for (const auto& target : kTargets) {
    const Outcome out = quantize(good.bytes(), target);
    ASSERT_TRUE(out.status.ok()) << target << ": " << out.status.to_string();
    EXPECT_FALSE(has_canary(out.file)) << target;
    // Every byte is accounted for: header, tensors, and zeros between them.
    const auto bytes = std::as_bytes(std::span(out.file));
    const auto model = GgufFile::parse(bytes, target);
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    size_t end = 0;
    for (const auto& tensor : model->tensors()) {
      const auto at = static_cast<size_t>(tensor.data.data() - bytes.data());
      if (end != 0) {
        ASSERT_GE(at, end);
        ASSERT_LT(at - end, 32U);
        EXPECT_TRUE(std::all_of(bytes.begin() + static_cast<ptrdiff_t>(end),
                                bytes.begin() + static_cast<ptrdiff_t>(at),
                                [](std::byte x) { return x == std::byte{0}; }))
            << target << ", before " << tensor.name;
      }
      end = at + tensor.data.size();
    }
    ASSERT_LE(bytes.size() - end, 31U);
    for (size_t i = end; i < bytes.size(); ++i) EXPECT_EQ(bytes[i], std::byte{0});
  }
}

TEST(QuantizeCanary, ATensorPastTheEndIsRefusedAndNothingIsWritten) {
  const auto good = good_model();
  const size_t size = good.bytes().size();
  size_t patched = 0;
  for (const auto& field : good.fields()) {
    const bool offset = field.name.ends_with(" offset");
    if (!offset && !field.name.ends_with(" dim")) continue;
    ++patched;
    // Rows and columns are multiplied, offsets moved; all of these reach past the file's end.
    for (const uint64_t value :
         {uint64_t{size} / 32 * 32, uint64_t{size} / 32 * 32 + 4096, uint64_t{1} << 20, uint64_t{1} << 31,
          uint64_t{1} << 32, (uint64_t{1} << 42) + (offset ? 0 : 256), uint64_t{1} << 56,
          uint64_t{INT64_MAX} - 255, uint64_t{1} << 63, UINT64_MAX - 255, UINT64_MAX - 31}) {
      for (const auto& target : kTargets) {
        const Outcome out = quantize(with_field(good.bytes(), field, value), target);
        EXPECT_FALSE(out.status.ok()) << field.name << " = " << value;
        EXPECT_THAT(out.status.code(), ::testing::AnyOf(Code::kCorrupt, Code::kResourceExhausted))
            << field.name << " = " << value << ": " << out.status.to_string();
        EXPECT_TRUE(out.file.empty()) << field.name << " = " << value;
        const auto name = field.name.substr(0, field.name.find(' '));
        EXPECT_THAT(out.status.message(), HasSubstr(name)) << field.name << " = " << value;
      }
    }
  }
  EXPECT_EQ(patched, 5U + 9U);
}

TEST(QuantizeCanary, TypesThatMakeATensorLargerAreRefused) {
  const auto good = good_model();
  for (const auto& field : good.fields()) {
    if (!field.name.ends_with("weight type") || field.name.starts_with("blk.0.attn_norm")) continue;
    // A type with more bytes a value runs into the next tensor or past the end; one with fewer is a whole
    // tensor inside the file.
    for (const DType type : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_K, DType::kQ2_K}) {
      const auto bytes = with_field(good.bytes(), field, static_cast<uint64_t>(type));
      const Outcome out = quantize(bytes, "Q8_0");
      EXPECT_EQ(out.status.ok(), !out.file.empty());
      EXPECT_FALSE(has_canary(out.file)) << field.name;
    }
  }
  for (const auto& field : good.fields()) {
    if (field.name != "output.weight type") continue;
    const Outcome out = quantize(with_field(good.bytes(), field, static_cast<uint64_t>(DType::kF32)), "F32");
    EXPECT_EQ(out.status.code(), Code::kCorrupt);
    EXPECT_THAT(out.status.message(), HasSubstr("past the end"));
  }
}

TEST(QuantizeCanary, AFileCutShortIsRefused) {
  const auto good = good_model().bytes();
  for (size_t cut = 1; cut < good.size(); cut += 97) {
    const Outcome out = quantize(std::span(good).first(good.size() - cut), "Q8_0");
    EXPECT_EQ(out.status.code(), Code::kCorrupt) << cut;
    EXPECT_TRUE(out.file.empty()) << cut;
  }
}

}  // namespace
}  // namespace isthmus
