#include "format/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <map>

#include "format/testing/gguf_builder.h"
#include "os/file_sim.h"

namespace isthmus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kReadAll = size_t{1} << 30;

std::vector<std::byte> pattern(size_t n, size_t start) {
  std::vector<std::byte> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>((start + i * 7) % 251);
  return out;
}

/// What a SimFileSystem holds under a name, as the reader wants it.
std::vector<std::byte> contents(SimFileSystem& files, const std::string& path) {
  const auto text = files.read(path, kReadAll).value();
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void set_every_type(GgufHeader& h) {
  ASSERT_TRUE(h.set("u8", uint8_t{200}).ok());
  ASSERT_TRUE(h.set("i8", int8_t{-100}).ok());
  ASSERT_TRUE(h.set("u16", uint16_t{60'000}).ok());
  ASSERT_TRUE(h.set("i16", int16_t{-30'000}).ok());
  ASSERT_TRUE(h.set("u32", uint32_t{4'000'000'000}).ok());
  ASSERT_TRUE(h.set("i32", int32_t{-2'000'000'000}).ok());
  ASSERT_TRUE(h.set("f32", 1.5f).ok());
  ASSERT_TRUE(h.set("bool", true).ok());
  ASSERT_TRUE(h.set("string", "text").ok());
  ASSERT_TRUE(h.set("u64", UINT64_MAX).ok());
  ASSERT_TRUE(h.set("i64", INT64_MIN).ok());
  ASSERT_TRUE(h.set("f64", 0.1).ok());
}

void set_arrays(GgufHeader& h) {
  ASSERT_TRUE(h.set_array<int32_t>("ints", std::vector<int32_t>{-1, 2}).ok());
  ASSERT_TRUE(h.set_array<float>("floats", std::vector<float>{0.5f}).ok());
  const std::array<bool, 2> flags = {true, false};
  ASSERT_TRUE(h.set_array<bool>("flags", flags).ok());
  ASSERT_TRUE(h.set_strings("strings", std::vector<std::string_view>{"a", "", "\xff"}).ok());
  ASSERT_TRUE(h.set_array<uint64_t>("empty", {}).ok());
}

void expect_every_type(const GgufFile& file) {
  EXPECT_EQ(file.get_uint("u8").value(), 200u);
  EXPECT_EQ(file.get_int("i8").value(), -100);
  EXPECT_EQ(file.get_uint("u16").value(), 60'000u);
  EXPECT_EQ(file.get_int("i16").value(), -30'000);
  EXPECT_EQ(file.get_uint("u32").value(), 4'000'000'000u);
  EXPECT_EQ(file.get_int("i32").value(), -2'000'000'000);
  EXPECT_EQ(file.get_float("f32").value(), 1.5);
  EXPECT_TRUE(file.get_bool("bool").value());
  EXPECT_EQ(file.get_string("string").value(), "text");
  EXPECT_EQ(file.get_uint("u64").value(), UINT64_MAX);
  EXPECT_EQ(file.get_int("i64").value(), INT64_MIN);
  EXPECT_EQ(file.get_float("f64").value(), 0.1);
  EXPECT_THAT(file.get_ints("ints").value(), ElementsAre(-1, 2));
  EXPECT_THAT(file.get_floats("floats").value(), ElementsAre(0.5f));
  EXPECT_EQ(file.count_of("flags").value(), 2u);
  EXPECT_THAT(file.get_strings("strings").value(), ElementsAre("a", "", "\xff"));
  EXPECT_TRUE(file.get_ints("empty").value().empty());
}

TEST(GgufWriter, WhatIsWrittenIsReadBack) {
  for (const uint32_t alignment : {1u, 32u, 4096u}) {
    SimFileSystem files;
    GgufHeader header;
    set_every_type(header);
    set_arrays(header);
    ASSERT_TRUE(header.set_alignment(alignment).ok());
    ASSERT_TRUE(header.add_tensor("a", DType::kF32, std::array<uint64_t, 1>{5}).ok());
    ASSERT_TRUE(header.add_tensor("b", DType::kQ4_K, std::array<uint64_t, 2>{512, 3}).ok());
    ASSERT_TRUE(header.add_tensor("c", DType::kI8, std::array<uint64_t, 4>{1, 2, 3, 5}).ok());
    const std::map<std::string, std::vector<std::byte>> data = {
        {"a", pattern(20, 1)}, {"b", pattern(864, 2)}, {"c", pattern(30, 3)}};
    const uint64_t promised = header.file_bytes();
    auto writer = GgufWriter::create(files, "d/m.gguf", header);
    ASSERT_TRUE(writer.ok());
    const std::span b(data.at("b"));
    ASSERT_TRUE(writer->append(data.at("a")).ok());
    for (size_t i = 0; i < b.size(); i += 100) {
      ASSERT_TRUE(writer->append(b.subspan(i, std::min<size_t>(100, b.size() - i))).ok());
    }
    ASSERT_TRUE(writer->append(data.at("c")).ok());
    ASSERT_TRUE(writer->publish().ok());

    const auto bytes = contents(files, "d/m.gguf");
    EXPECT_EQ(bytes.size(), promised);
    const auto file = GgufFile::parse(bytes, "m");
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    expect_every_type(*file);
    for (size_t i = 0; i < 3; ++i) {
      const auto& tensor = file->tensors()[i];
      EXPECT_EQ(tensor.file_offset, header.tensor_offset(i));
      EXPECT_EQ(std::vector(tensor.data.begin(), tensor.data.end()), data.at(tensor.name)) << tensor.name;
    }
    EXPECT_EQ(file->find("c")->rows(), 30u);
  }
}

TEST(GgufWriter, CopyingEveryPairGivesTheSameHeader) {
  const auto source = testing::small_gguf();
  const auto file = GgufFile::parse(source.bytes(), "m");
  ASSERT_TRUE(file.ok());
  GgufHeader header;
  for (const auto& key : file->keys()) ASSERT_TRUE(header.copy(*file, key).ok()) << key;
  for (const auto& tensor : file->tensors()) {
    ASSERT_TRUE(
        header.add_tensor(tensor.name, tensor.type, std::span(tensor.dims).first(tensor.n_dims)).ok());
  }
  const auto encoded = header.encode();
  EXPECT_TRUE(std::equal(encoded.begin(), encoded.end(), source.bytes().begin()));
  EXPECT_EQ(encoded.size(), file->tensors()[0].file_offset);
  EXPECT_EQ(header.copy(*file, "absent").code(), Code::kNotFound);
}

TEST(GgufWriter, SettingAgainReplacesAndRemovingRemoves) {
  GgufHeader header;
  ASSERT_TRUE(header.set("a", 1u).ok() && header.set("b", 2u).ok() && header.set("a", "text").ok());
  header.remove("b");
  header.remove("absent");
  const auto bytes = header.encode();
  const auto file = GgufFile::parse(bytes, "m");
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(file->keys(), ElementsAre("a"));
  EXPECT_EQ(file->get_string("a").value(), "text");
}

TEST(GgufWriter, RefusesWhatTheReaderWouldRefuse) {
  GgufHeader h;
  const std::array<uint64_t, 1> one = {1};
  EXPECT_EQ(h.set("", 1u).code(), Code::kInvalidArgument);
  EXPECT_EQ(h.set(std::string(kGgufMaxKeyBytes + 1, 'k'), 1u).code(), Code::kResourceExhausted);
  EXPECT_EQ(h.set("s", std::string(kGgufMaxStringBytes + 1, 's')).code(), Code::kResourceExhausted);
  EXPECT_EQ(h.set("general.alignment", 64u).code(), Code::kInvalidArgument);
  for (const uint32_t bad : {0u, 3u, 131'072u})
    EXPECT_EQ(h.set_alignment(bad).code(), Code::kInvalidArgument);
  EXPECT_EQ(h.add_tensor("", DType::kF32, one).code(), Code::kInvalidArgument);
  EXPECT_EQ(h.add_tensor(std::string(300, 't'), DType::kF32, one).code(), Code::kResourceExhausted);
  EXPECT_EQ(h.add_tensor("t", DType::kF32, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(h.add_tensor("t", DType::kF32, std::array<uint64_t, 5>{1, 1, 1, 1, 1}).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(h.add_tensor("t", DType::kF32, std::array<uint64_t, 2>{4, 0}).code(), Code::kInvalidArgument);
  EXPECT_THAT(h.add_tensor("t", DType::kQ4_0, std::array<uint64_t, 2>{33, 1}).message(), HasSubstr("33 x 1"));
  EXPECT_EQ(h.add_tensor("t", DType::kF32, std::array<uint64_t, 2>{UINT64_MAX, 2}).code(),
            Code::kInvalidArgument);
  EXPECT_TRUE(h.add_tensor("t", DType::kF32, one).ok());
  EXPECT_EQ(h.add_tensor("t", DType::kF32, one).code(), Code::kInvalidArgument);
  EXPECT_EQ(h.set_alignment(64).code(), Code::kFailedPrecondition);
}

TEST(GgufWriter, TensorBytesMustMatchTheHeader) {
  SimFileSystem files;
  GgufHeader header;
  ASSERT_TRUE(header.add_tensor("w", DType::kF32, std::array<uint64_t, 1>{4}).ok());
  auto writer = GgufWriter::create(files, "d/m.gguf", header);
  ASSERT_TRUE(writer.ok());
  EXPECT_THAT(writer->append(pattern(17, 0)).message(), HasSubstr("'w' takes 16 bytes more, 17 were given"));
  ASSERT_TRUE(writer->append(pattern(10, 0)).ok());
  EXPECT_EQ(writer->publish().code(), Code::kFailedPrecondition);
  ASSERT_TRUE(writer->append(pattern(6, 0)).ok());
  EXPECT_EQ(writer->append(pattern(1, 0)).code(), Code::kInvalidArgument);
  EXPECT_TRUE(writer->publish().ok());
}

TEST(GgufWriter, AnyFailureLeavesNothingBehind) {
  for (uint64_t n = 0; n < 7; ++n) {
    SimFileSystem files;
    files.fail_at(n, ENOSPC);
    const auto status = [&] {
      GgufHeader header;
      ISTHMUS_RETURN_IF_ERROR(header.add_tensor("w", DType::kF32, std::array<uint64_t, 1>{4}));
      ISTHMUS_ASSIGN_OR_RETURN(auto writer, GgufWriter::create(files, "d/m.gguf", header));
      ISTHMUS_RETURN_IF_ERROR(writer.append(pattern(16, 0)));
      return writer.publish();
    }();
    files.heal();
    EXPECT_EQ(status.code(), Code::kResourceExhausted) << n;
    EXPECT_TRUE(n > 6 || !files.exists("d/m.gguf")) << n;
  }
}

}  // namespace
}  // namespace isthmus
