// Broken and hostile files: each group of tests is a class of faults that has killed other readers. The files
// are built here, byte by byte; what is asserted is a typed error that names what is wrong, and that nothing
// was allocated on the word of the file.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "format/gguf.h"
#include "format/gguf_limits.h"
#include "format/gguf_split.h"
#include "format/testing/gguf_builder.h"
#include "os/cpu.h"
#include "tensor/quant.h"

namespace isthmus {
namespace {

using testing::GgufBuilder;
using ::testing::HasSubstr;
using testing::small_gguf;
using testing::with_field;

constexpr uint64_t kWrapValues[] = {0, 1, uint64_t{1} << 31, uint64_t{1} << 32, INT64_MAX, UINT64_MAX};

Status parse_status(std::span<const std::byte> bytes) { return GgufFile::parse(bytes, "test.gguf").status(); }
Status parse_status(const GgufBuilder& builder) { return parse_status(builder.bytes()); }

/// Reads everything that an accepted file offers; a view outside the file shows up under ASan.
void read_all(const GgufFile& file, std::span<const std::byte> bytes) {
  for (const auto& key : file.keys()) {
    static_cast<void>(file.get_strings(key).ok() || file.get_ints(key).ok() || file.get_floats(key).ok());
    static_cast<void>(file.get_string(key).ok() || file.get_float(key).ok() || file.get_bool(key).ok());
  }
  for (const auto& tensor : file.tensors()) {
    ASSERT_GE(tensor.data.data(), bytes.data());
    ASSERT_LE(tensor.data.data() + tensor.data.size(), bytes.data() + bytes.size());
    ASSERT_EQ(tensor.data.size(), row_bytes(tensor.type, tensor.cols()).value() * tensor.rows());
  }
}

/// Accepted or refused, but never crashed; what is accepted is whole.
void survives(std::span<const std::byte> bytes) {
  const auto file = GgufFile::parse(bytes, "test.gguf");
  if (file.ok()) {
    read_all(*file, bytes);
  } else {
    ASSERT_FALSE(file.status().message().empty());
    ASSERT_NE(file.status().code(), Code::kInternal);
  }
}

// ---- row 1: sizes that wrap ----

TEST(GgufOverflow, EveryPairOfFieldsAtEveryWrapValue) {
  const auto good = small_gguf();
  ASSERT_TRUE(parse_status(good).ok());
  const auto& fields = good.fields();
  for (size_t i = 0; i < fields.size(); ++i) {
    for (const uint64_t first : kWrapValues) {
      const auto once = with_field(good.bytes(), fields[i], first);
      survives(once);
      for (size_t j = i + 1; j < fields.size(); ++j) {
        for (const uint64_t second : kWrapValues) survives(with_field(once, fields[j], second));
      }
    }
  }
}

// ---- row 2: a dimension whose product wraps ----

TEST(GgufOverflow, DimensionsThatWrapNameTheTensor) {
  const auto good = small_gguf();
  for (const auto& field : good.fields()) {
    if (!field.name.ends_with(" dim")) continue;
    for (const uint64_t dim :
         {(uint64_t{1} << 42) + 1, uint64_t{1} << 62, uint64_t{1} << 63, UINT64_MAX - 31}) {
      const auto status = parse_status(with_field(good.bytes(), field, dim));
      EXPECT_EQ(status.code(), Code::kCorrupt) << field.name << " " << dim;
      EXPECT_THAT(status.message(), HasSubstr(field.name.substr(0, field.name.size() - 4)));
    }
  }
  GgufBuilder b;  // 2^32 * 2^32 rows of one value: the product is 2^64
  b.preamble(1, 0).tensor("w", DType::kF32, {1, uint64_t{1} << 32, uint64_t{1} << 32}, 0).data(64);
  EXPECT_THAT(parse_status(b).message(), HasSubstr("too large"));
}

// ---- row 3: counts and enumerations out of range ----

TEST(GgufBounds, NumberOfDimensions) {
  const auto with_dims = [](uint32_t n_dims) {
    GgufBuilder b;
    b.preamble(1, 0).string("w").field("n_dims", n_dims);
    for (uint32_t i = 0; i < std::min(n_dims, 6u); ++i) b.field("dim", uint64_t{1});
    return b.field("type", uint32_t{0}).field("offset", uint64_t{0}).data(64);
  };
  EXPECT_EQ(parse_status(with_dims(0)).code(), Code::kCorrupt);
  for (uint32_t n = 1; n <= 4; ++n) EXPECT_TRUE(parse_status(with_dims(n)).ok()) << n;
  EXPECT_EQ(parse_status(with_dims(5)).code(), Code::kCorrupt);
  EXPECT_THAT(parse_status(with_dims(UINT32_MAX)).message(), HasSubstr("'w'"));
}

TEST(GgufBounds, UnknownTensorTypesNameTypeAndTensor) {
  for (const uint32_t id : {4u, 5u, 31u, 33u, 36u, 38u, 43u, 1000u, UINT32_MAX}) {
    GgufBuilder b;
    b.preamble(1, 0).tensor("some.weight", static_cast<DType>(id), {32}, 0).data(64);
    const auto status = parse_status(b);
    EXPECT_EQ(status.code(), Code::kUnsupported) << id;
    EXPECT_THAT(status.message(), HasSubstr("some.weight"));
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(id)));
  }
}

TEST(GgufBounds, UnknownValueTypes) {
  for (const uint32_t id : {13u, 255u, UINT32_MAX}) {
    GgufBuilder scalar;
    scalar.preamble(0, 1).pair<uint64_t>("k", static_cast<GgufType>(id), 0);
    EXPECT_EQ(parse_status(scalar).code(), Code::kCorrupt);
    GgufBuilder array;
    array.preamble(0, 1).array<uint64_t>("k", static_cast<GgufType>(id), {0});
    EXPECT_THAT(parse_status(array).message(), HasSubstr("'k'"));
  }
}

TEST(GgufBounds, MagicAndVersions) {
  const auto good = small_gguf();
  const auto version = [&](uint32_t v) {
    return parse_status(with_field(good.bytes(), good.fields()[0], v));
  };
  EXPECT_TRUE(version(2).ok());
  for (const uint32_t v : {0u, 1u, 4u, UINT32_MAX}) EXPECT_EQ(version(v).code(), Code::kUnsupported) << v;
  EXPECT_THAT(version(0x03000000).message(), HasSubstr("big-endian"));
  EXPECT_THAT(version(0x02000000).message(), HasSubstr("big-endian"));
  auto wrong = good.bytes();
  wrong[0] = std::byte{'g'};
  EXPECT_EQ(parse_status(wrong).code(), Code::kCorrupt);
  EXPECT_EQ(parse_status(std::span<const std::byte>()).code(), Code::kCorrupt);
}

// ---- row 4: zeros and empties ----

TEST(GgufEmpty, ZeroDimensionsEmptyKeysAndEmptyNamesAreRefused) {
  for (size_t zero = 0; zero < 4; ++zero) {
    uint64_t dims[4] = {1, 1, 1, 1};
    dims[zero] = 0;
    GgufBuilder b;
    b.preamble(1, 0).tensor("w", DType::kF32, {dims[0], dims[1], dims[2], dims[3]}, 0).data(64);
    EXPECT_EQ(parse_status(b).code(), Code::kCorrupt);
    EXPECT_THAT(parse_status(b).message(), HasSubstr(fmt::format("dimension {} is 0", zero)));
  }
  GgufBuilder key;
  key.preamble(0, 1).pair<uint32_t>("", GgufType::kU32, 1);
  EXPECT_EQ(parse_status(key).code(), Code::kCorrupt);
  GgufBuilder name;
  name.preamble(1, 0).tensor("", DType::kF32, {1}, 0).data(64);
  EXPECT_EQ(parse_status(name).code(), Code::kCorrupt);
}

TEST(GgufEmpty, EmptyValuesAndAnEmptyFileAreFine) {
  GgufBuilder b;
  b.preamble(0, 2).pair("s", "").strings("a", {});
  EXPECT_TRUE(parse_status(b).ok());
  GgufBuilder nothing;
  nothing.preamble(0, 0);
  EXPECT_TRUE(parse_status(nothing).ok());
}

// ---- row 5: lengths that ask for more than there is ----

TEST(GgufLyingHeader, NothingIsAllocatedOnTheWordOfTheFile) {
  const auto good = small_gguf();
  // The peak of the tests before this one would hide ours.
  ASSERT_TRUE(os::reset_peak_resident());
  const uint64_t before = os::peak_resident_bytes();
  for (const auto& field : good.fields()) {
    for (const uint64_t value : {uint64_t{1} << 24, uint64_t{1} << 33, uint64_t{1} << 40, UINT64_MAX}) {
      survives(with_field(good.bytes(), field, value));
    }
  }
  EXPECT_LE(os::peak_resident_bytes() - before, 2 * good.bytes().size() + (64u << 20));
}

/// Takes memory, uses it and lets it go; the compiler may not leave that out.
void use_memory(size_t bytes) {
  const std::vector<char> block(bytes, 1);
  volatile const char* last = &block.back();
  EXPECT_EQ(*last, 1);
}

TEST(GgufLyingHeader, ThePeakIsSeen) {
  use_memory(size_t{192} << 20);
  ASSERT_TRUE(os::reset_peak_resident());
  const uint64_t before = os::peak_resident_bytes();
  use_memory(size_t{96} << 20);
  EXPECT_GE(os::peak_resident_bytes() - before, uint64_t{90} << 20);
}

TEST(GgufLyingHeader, ErrorsSayWhatIsMissing) {
  GgufBuilder tensors;
  tensors.preamble(60'000, 0);
  EXPECT_THAT(parse_status(tensors).message(), HasSubstr("60000 tensors are stated but only 0 bytes follow"));
  GgufBuilder keys;
  keys.preamble(0, 60'000);
  EXPECT_EQ(parse_status(keys).code(), Code::kCorrupt);
  GgufBuilder array;
  array.preamble(0, 1).array_head("tokens", GgufType::kString, 1'000'000);
  EXPECT_EQ(parse_status(array).code(), Code::kCorrupt);
  EXPECT_THAT(parse_status(array).message(), HasSubstr("'tokens'"));
  GgufBuilder text;
  text.preamble(0, 1).head("k", GgufType::kString).field("length", uint64_t{1} << 40).text("abc");
  EXPECT_THAT(parse_status(text).message(), HasSubstr("only 3 follow"));
}

// ---- row 6: alignment ----

TEST(GgufAlignment, OnlyPowersOfTwoUpToTheLimit) {
  const auto with_alignment = [](uint32_t alignment) {
    GgufBuilder b;
    b.preamble(1, 1).pair<uint32_t>("general.alignment", GgufType::kU32, alignment);
    return parse_status(b.tensor("w", DType::kF32, {1}, 0).data(4, 65'536));
  };
  for (const uint32_t bad : {0u, 3u, 24u, 65'535u, 65'537u, 131'072u, 1u << 31, UINT32_MAX}) {
    EXPECT_EQ(with_alignment(bad).code(), Code::kCorrupt) << bad;
    EXPECT_THAT(with_alignment(bad).message(), HasSubstr("general.alignment"));
  }
  EXPECT_TRUE(with_alignment(32'768).ok());
  EXPECT_TRUE(with_alignment(65'536).ok());
}

TEST(GgufAlignment, OfAnotherTypeIsRefused) {
  GgufBuilder wide;
  wide.preamble(0, 1).pair<uint64_t>("general.alignment", GgufType::kU64, uint64_t{1} << 63);
  EXPECT_THAT(parse_status(wide).message(), HasSubstr("of type u64, not u32"));
  GgufBuilder text;
  text.preamble(0, 1).pair("general.alignment", "32");
  EXPECT_EQ(parse_status(text).code(), Code::kCorrupt);
  GgufBuilder array;
  array.preamble(0, 1).array<uint32_t>("general.alignment", GgufType::kU32, {});
  EXPECT_EQ(parse_status(array).code(), Code::kCorrupt);
}

// ---- row 7: values read as what they are not ----

TEST(GgufGetters, EveryGetterAgainstEveryType) {
  GgufBuilder b;
  b.preamble(0, 26);
  for (uint32_t t = 0; t <= 12; ++t) {
    const auto type = static_cast<GgufType>(t);
    const auto key = fmt::format("k{}", t);
    if (type == GgufType::kString) {
      b.pair(key, "xx");
    } else if (type == GgufType::kArray) {
      b.array<uint8_t>(key, GgufType::kU8, {});
    } else {
      b.head(key, type).text(std::string(t >= 10            ? 8
                                         : t >= 4 && t <= 6 ? 4
                                         : t == 2 || t == 3 ? 2
                                                            : 1,
                                         '\1'));
    }
    const auto element = type == GgufType::kArray ? GgufType::kU8 : type;
    b.array_head(fmt::format("a{}", t), element, 1);
    if (type == GgufType::kString) {
      b.string("xx");
    } else {
      b.text(std::string(t >= 10 ? 8 : t >= 4 && t <= 6 ? 4 : t == 2 || t == 3 ? 2 : 1, '\1'));
    }
  }
  const auto file = GgufFile::parse(b.bytes(), "test.gguf");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  for (uint32_t t = 0; t <= 12; ++t) {
    const auto type = static_cast<GgufType>(t);
    const bool text = type == GgufType::kString;
    const bool array = type == GgufType::kArray;
    const bool boolean = type == GgufType::kBool;
    const bool real = type == GgufType::kF32 || type == GgufType::kF64;
    const bool integer = !text && !array && !boolean && !real;
    const auto scalar = fmt::format("k{}", t);
    EXPECT_EQ(file->get_uint(scalar).ok(), integer) << t;
    EXPECT_EQ(file->get_int(scalar).ok(), integer) << t;
    EXPECT_EQ(file->get_float(scalar).ok(), integer || real) << t;
    EXPECT_EQ(file->get_bool(scalar).ok(), boolean) << t;
    EXPECT_EQ(file->get_string(scalar).ok(), text) << t;
    EXPECT_FALSE(file->get_strings(scalar).ok()) << t;
    EXPECT_EQ(file->get_ints(scalar).ok(), array) << t;
    EXPECT_EQ(file->get_floats(scalar).ok(), array) << t;
    const auto list = fmt::format("a{}", t);
    for (const auto& status : {file->get_uint(list).status(), file->get_float(list).status(),
                               file->get_bool(list).status(), file->get_string(list).status()}) {
      EXPECT_EQ(status.code(), Code::kCorrupt) << t;
      EXPECT_THAT(status.message(), HasSubstr(list));
    }
    EXPECT_EQ(file->get_strings(list).ok(), text) << t;
    EXPECT_EQ(file->get_ints(list).ok(), integer || array) << t;
    EXPECT_EQ(file->get_floats(list).ok(), integer || real || array) << t;
  }
}

TEST(GgufGetters, ValuesThatDoNotFitAreErrors) {
  GgufBuilder b;
  b.preamble(0, 2)
      .pair<int32_t>("minus", GgufType::kI32, -1)
      .pair<uint64_t>("big", GgufType::kU64, UINT64_MAX);
  const auto file = GgufFile::parse(b.bytes(), "test.gguf");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->get_uint("minus").status().code(), Code::kCorrupt);
  EXPECT_EQ(file->get_int("big").status().code(), Code::kCorrupt);
  EXPECT_THAT(file->get_int("big").status().message(), HasSubstr("does not fit"));
}

TEST(GgufGetters, ABoolIsZeroOrOne) {
  GgufBuilder b;
  b.preamble(0, 1).pair<uint8_t>("flag", GgufType::kBool, 2);
  EXPECT_EQ(parse_status(b).code(), Code::kCorrupt);
  GgufBuilder array;
  array.preamble(0, 1).array<uint8_t>("flags", GgufType::kBool, {0, 1, 255});
  EXPECT_EQ(parse_status(array).code(), Code::kCorrupt);
}

// ---- row 8: tensors outside of the file, or over each other ----

TEST(GgufExtents, TheLastByteDecides) {
  const auto with_data = [](size_t n) {
    GgufBuilder b;
    return parse_status(b.preamble(1, 0).tensor("big.weight", DType::kQ4_0, {64, 3}, 32).data(n));
  };
  EXPECT_TRUE(with_data(32 + 108).ok());
  EXPECT_EQ(with_data(32 + 107).code(), Code::kCorrupt);
  EXPECT_THAT(with_data(32 + 107).message(), HasSubstr("'big.weight'"));
  EXPECT_THAT(with_data(32 + 107).message(), HasSubstr("past the end"));
  EXPECT_EQ(with_data(0).code(), Code::kCorrupt);
}

TEST(GgufExtents, OffsetsAreAlignedAndTensorsApart) {
  const auto second_at = [](uint64_t offset) {
    GgufBuilder b;
    b.preamble(2, 0).tensor("a", DType::kF32, {16}, 0).tensor("b", DType::kF32, {8}, offset);
    return parse_status(b.data(256));
  };
  EXPECT_TRUE(second_at(64).ok());
  EXPECT_TRUE(second_at(128).ok());  // gaps are allowed
  for (const uint64_t overlap : {0u, 32u}) {
    EXPECT_THAT(second_at(overlap).message(), HasSubstr("overlap")) << overlap;
  }
  for (const uint64_t odd : {uint64_t{65}, uint64_t{72}, UINT64_MAX}) {
    EXPECT_THAT(second_at(odd).message(), HasSubstr("not a multiple of 32")) << odd;
  }
  EXPECT_THAT(second_at(UINT64_MAX - 31).message(), HasSubstr("past the end"));
  EXPECT_THAT(second_at(uint64_t{1} << 63).message(), HasSubstr("past the end"));
}

TEST(GgufExtents, RowsAreWholeBlocks) {
  GgufBuilder b;
  b.preamble(1, 0).tensor("w", DType::kQ4_K, {128, 2}, 0).data(512);
  EXPECT_THAT(parse_status(b).message(), HasSubstr("not whole blocks of 256 (Q4_K)"));
}

TEST(GgufExtents, DuplicatesAreRefused) {
  GgufBuilder keys;
  keys.preamble(0, 3).pair("x", "1").pair("y", "2").pair("x", "3");
  EXPECT_THAT(parse_status(keys).message(), HasSubstr("'x' appears twice"));
  GgufBuilder tensors;
  tensors.preamble(2, 0).tensor("w", DType::kF32, {1}, 0).tensor("w", DType::kF32, {1}, 32).data(64);
  EXPECT_THAT(parse_status(tensors).message(), HasSubstr("'w' appears twice"));
}

// ---- row 9: truncation ----

TEST(GgufTruncation, EveryLengthShortOfTheWholeIsRefused) {
  const auto good = small_gguf();
  const std::span whole(good.bytes());
  for (size_t n = 0; n < whole.size(); ++n) {
    // A copy of exactly n bytes, so that ASan sees a read of one more.
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n));
    const auto status = parse_status(cut);
    ASSERT_EQ(status.code(), Code::kCorrupt) << n;
  }
}

// ---- row 11: nesting ----

TEST(GgufNesting, ArraysOfArraysAreRefusedHoweverDeep) {
  GgufBuilder b;
  b.preamble(0, 1).head("deep", GgufType::kArray);
  for (int i = 0; i < 1'000'000; ++i) {
    b.scalar(static_cast<uint32_t>(GgufType::kArray)).scalar(uint64_t{1});
  }
  b.scalar(static_cast<uint32_t>(GgufType::kU8)).scalar(uint64_t{1}).scalar(uint8_t{1});
  EXPECT_EQ(parse_status(b).code(), Code::kUnsupported);
  EXPECT_THAT(parse_status(b).message(), HasSubstr("'deep'"));
}

// ---- messages ----

TEST(GgufMessages, NamesFromTheFileAreShownHarmless) {
  GgufBuilder b;
  const std::string evil = std::string("\x1b[31m\n\0'", 8) + std::string(200, 'A');
  b.preamble(0, 1).pair<uint8_t>(evil, GgufType::kBool, 7);
  const auto message = parse_status(b).message();
  EXPECT_THAT(message, HasSubstr("\\x1b[31m\\x0a\\x00\\x27AAA"));
  EXPECT_LT(message.size(), 250u);
}

// ---- limits: one below, at, one above ----

TEST(GgufLimits, Keys) {
  for (const uint64_t n : {kGgufMaxKeys - 1, kGgufMaxKeys, kGgufMaxKeys + 1}) {
    GgufBuilder b;
    b.preamble(0, n);
    for (uint64_t i = 0; i < n; ++i) b.pair<uint8_t>(fmt::format("k{}", i), GgufType::kU8, 0);
    EXPECT_EQ(parse_status(b).code(), n <= kGgufMaxKeys ? Code::kOk : Code::kResourceExhausted) << n;
  }
}

TEST(GgufLimits, Tensors) {
  for (const uint64_t n : {kGgufMaxTensors - 1, kGgufMaxTensors, kGgufMaxTensors + 1}) {
    GgufBuilder b;
    b.preamble(n, 1).pair<uint32_t>("general.alignment", GgufType::kU32, 1);
    for (uint64_t i = 0; i < n; ++i) b.tensor(fmt::format("t{}", i), DType::kI8, {1}, i);
    b.data(n, 1);
    EXPECT_EQ(parse_status(b).code(), n <= kGgufMaxTensors ? Code::kOk : Code::kResourceExhausted) << n;
  }
}

TEST(GgufLimits, KeyBytes) {
  for (const uint64_t n : {kGgufMaxKeyBytes - 1, kGgufMaxKeyBytes, kGgufMaxKeyBytes + 1}) {
    GgufBuilder b;
    b.preamble(0, 1).pair<uint8_t>(std::string(n, 'k'), GgufType::kU8, 0);
    EXPECT_EQ(parse_status(b).code(), n <= kGgufMaxKeyBytes ? Code::kOk : Code::kResourceExhausted) << n;
  }
}

TEST(GgufLimits, TensorNameBytes) {
  for (const uint64_t n : {kGgufMaxNameBytes - 1, kGgufMaxNameBytes, kGgufMaxNameBytes + 1}) {
    GgufBuilder b;
    b.preamble(1, 0).tensor(std::string(n, 't'), DType::kF32, {1}, 0).data(4);
    EXPECT_EQ(parse_status(b).code(), n <= kGgufMaxNameBytes ? Code::kOk : Code::kResourceExhausted) << n;
  }
}

TEST(GgufLimits, StringBytes) {
  for (const uint64_t n : {kGgufMaxStringBytes - 1, kGgufMaxStringBytes, kGgufMaxStringBytes + 1}) {
    GgufBuilder b;
    b.preamble(0, 1).pair("s", std::string(n, 's'));
    EXPECT_EQ(parse_status(b).code(), n <= kGgufMaxStringBytes ? Code::kOk : Code::kResourceExhausted) << n;
  }
}

TEST(GgufLimits, ArrayElements) {
  for (const uint64_t n : {kGgufMaxArrayElements - 1, kGgufMaxArrayElements, kGgufMaxArrayElements + 1}) {
    GgufBuilder b;
    b.preamble(0, 1).array_head("a", GgufType::kU8, n).text(std::string(n, '\0'));
    EXPECT_EQ(parse_status(b).code(), n <= kGgufMaxArrayElements ? Code::kOk : Code::kResourceExhausted) << n;
  }
}

TEST(GgufLimits, Parts) {
  for (const uint64_t n : {kGgufMaxParts - 1, kGgufMaxParts, kGgufMaxParts + 1}) {
    const auto paths = split_paths(split_path("m", 0, n), n);
    EXPECT_EQ(paths.status().code(), n <= kGgufMaxParts ? Code::kOk : Code::kResourceExhausted) << n;
  }
}

}  // namespace
}  // namespace isthmus
