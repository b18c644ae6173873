#include "format/quantize_model.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <limits>

#include "format/gguf_writer.h"
#include "os/file_sim.h"
#include "tensor/half.h"
#include "tensor/quant.h"
#include "tensor/testing/sample_weights.h"

namespace isthmus {
namespace {

using ::testing::HasSubstr;

constexpr size_t kWholeFile = size_t{1} << 30;
constexpr uint64_t kLayers = 8;

std::vector<std::byte> written_file(FileSystem& files, const std::string& path) {
  const auto text = files.read(path, kWholeFile).value();
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

struct Piece {
  std::string name;
  std::vector<uint64_t> dims;
};

/// Tensors of a small model: 256 columns everywhere except one matrix of 96 and one of 40.
std::vector<Piece> small_model(bool tied) {
  std::vector<Piece> out = {{"token_embd.weight", {256, 64}}};
  for (uint64_t i = 0; i < kLayers; ++i) {
    for (const char* name : {"attn_q", "attn_v", "ffn_down"}) {
      out.push_back({fmt::format("blk.{}.{}.weight", i, name), {256, 8}});
    }
    out.push_back({fmt::format("blk.{}.attn_norm.weight", i), {256}});
  }
  out.push_back({"blk.0.ffn_up.weight", {96, 8}});
  out.push_back({"blk.0.odd.weight", {40, 8}});
  out.push_back({"blk.0.ffn_gate_inp.weight", {256, 4}});
  if (!tied) out.push_back({"output.weight", {256, 64}});
  return out;
}

/// The model's file, all tensors F32.
std::vector<std::byte> source_file(bool tied = false, float poison = 0.0f) {
  SimFileSystem files;
  GgufHeader header;
  EXPECT_TRUE(header.set("general.architecture", "llama").ok());
  EXPECT_TRUE(header.set("general.file_type", uint32_t{0}).ok());
  EXPECT_TRUE(header.set("split.count", uint16_t{1}).ok());
  const auto pieces = small_model(tied);
  for (const auto& piece : pieces) EXPECT_TRUE(header.add_tensor(piece.name, DType::kF32, piece.dims).ok());
  auto writer = GgufWriter::create(files, "d/m", header);
  for (size_t i = 0; i < pieces.size(); ++i) {
    auto values = testing::bell_weights(header.tensor_bytes(i) / sizeof(float), i);
    if (poison != 0.0f && pieces[i].name == "blk.3.attn_v.weight") values[256 * 5 + 7] = poison;
    EXPECT_TRUE(writer->append(std::as_bytes(std::span(values))).ok());
  }
  EXPECT_TRUE(writer->publish().ok());
  return written_file(files, "d/m");
}

class QuantizeModelTest : public ::testing::Test {
 protected:
  Result<QuantizeReport> quantize(std::span<const std::byte> source, const QuantizeOptions& options) {
    ISTHMUS_ASSIGN_OR_RETURN(const auto model, GgufFile::parse(source, "source"));
    return quantize_model(model, files_, "d/out", options);
  }
  static QuantizeOptions options(const std::string& target, size_t threads = 1) {
    QuantizeOptions out;
    out.wish.target = target;
    out.threads = threads;
    return out;
  }
  static const TensorDecision& decision(const QuantizeReport& report, std::string_view name) {
    const auto same = [&](const TensorReport& t) { return t.decision.name == name; };
    return std::ranges::find_if(report.tensors, same)->decision;
  }
  SimFileSystem files_;
};

TEST_F(QuantizeModelTest, EveryTargetGivesAModelThatReadsBackClose) {
  const auto source = source_file();
  const auto model = GgufFile::parse(source, "source").value();
  for (const auto& target : quantize_targets()) {
    SimFileSystem files;
    const auto report = quantize_model(model, files, "d/out", options(std::string(target.name)));
    ASSERT_TRUE(report.ok()) << target.name << report.status().to_string();
    const auto bytes = written_file(files, "d/out");
    const auto result = GgufFile::parse(bytes, "out");
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    EXPECT_EQ(report->bytes_to, bytes.size());
    EXPECT_EQ(result->get_uint("general.file_type").value(), target.file_type);
    EXPECT_EQ(result->get_uint("general.quantization_version").value(), 2u);
    EXPECT_EQ(result->get_string("general.architecture").value(), "llama");
    EXPECT_FALSE(result->has("split.count"));
    for (size_t i = 0; i < model.tensors().size(); ++i) {
      const auto& tensor = result->tensors()[i];
      const auto& done = report->tensors[i];
      EXPECT_EQ(tensor.name, model.tensors()[i].name);
      EXPECT_EQ(tensor.dims, model.tensors()[i].dims);
      EXPECT_EQ(tensor.type, done.decision.to);
      EXPECT_LT(done.relative_rms, 0.3) << target.name << " " << tensor.name;
      EXPECT_EQ(done.relative_rms == 0.0, tensor.type == DType::kF32) << target.name << " " << tensor.name;
    }
  }
}

TEST_F(QuantizeModelTest, TheReportedErrorIsTheRealOne) {
  const auto source = source_file();
  const auto report = quantize(source, options("Q4_K_M"));
  ASSERT_TRUE(report.ok());
  const auto model = GgufFile::parse(source, "source").value();
  const auto bytes = written_file(files_, "d/out");
  const auto result = GgufFile::parse(bytes, "out").value();
  const auto* before = model.find("blk.2.attn_q.weight");
  const auto* after = result.find("blk.2.attn_q.weight");
  std::vector<float> a(before->cols() * before->rows());
  std::vector<float> b(a.size());
  ASSERT_TRUE(dequantize_row(before->type, before->data.data(), a.size(), a.data()).ok());
  ASSERT_TRUE(dequantize_row(after->type, after->data.data(), b.size(), b.data()).ok());
  const auto same = [](const TensorReport& t) { return t.decision.name == "blk.2.attn_q.weight"; };
  EXPECT_NEAR(std::ranges::find_if(report->tensors, same)->relative_rms, testing::relative_rms(b, a, {}),
              1e-12);
}

TEST_F(QuantizeModelTest, TheMixSpendsBitsByRule) {
  const auto report = quantize(source_file(), options("q4_k_m"));
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const auto to = [&](std::string_view name) { return decision(*report, name).to; };
  const auto why = [&](std::string_view name) { return decision(*report, name).reason; };
  EXPECT_EQ(to("output.weight"), DType::kQ6_K);
  EXPECT_EQ(why("output.weight"), QuantizeReason::kHead);
  EXPECT_EQ(to("token_embd.weight"), DType::kQ4_K);
  for (uint64_t i = 0; i < kLayers; ++i) {
    const bool favoured = i == 0 || i == 3 || i == 6 || i == 7;  // both ends, every third between
    const auto expected = favoured ? DType::kQ6_K : DType::kQ4_K;
    EXPECT_EQ(to(fmt::format("blk.{}.attn_v.weight", i)), expected) << i;
    EXPECT_EQ(to(fmt::format("blk.{}.ffn_down.weight", i)), expected) << i;
    EXPECT_EQ(to(fmt::format("blk.{}.attn_q.weight", i)), DType::kQ4_K) << i;
    EXPECT_EQ(why(fmt::format("blk.{}.attn_norm.weight", i)), QuantizeReason::kKept) << i;
  }
  EXPECT_EQ(to("blk.0.ffn_gate_inp.weight"), DType::kF32);
  EXPECT_LT(report->bits_per_weight, 7.0);
}

TEST_F(QuantizeModelTest, RowsThatDoNotFitFallToANamedAlternative) {
  const auto report = quantize(source_file(), options("Q4_K_M"));
  ASSERT_TRUE(report.ok());
  const auto& up = decision(*report, "blk.0.ffn_up.weight");
  EXPECT_EQ(up.reason, QuantizeReason::kFallback);
  EXPECT_EQ(up.wanted, DType::kQ4_K);
  EXPECT_EQ(up.to, DType::kQ5_0);
  EXPECT_EQ(decision(*report, "blk.0.odd.weight").to, DType::kF16);  // 40 is no multiple of 32 either
  EXPECT_EQ(quantize_reason_name(up.reason), "fallback");
}

TEST_F(QuantizeModelTest, ATiedEmbeddingIsTreatedAsTheHead) {
  const auto report = quantize(source_file(true), options("Q4_K_M"));
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(decision(*report, "token_embd.weight").to, DType::kQ6_K);
  EXPECT_EQ(decision(*report, "token_embd.weight").reason, QuantizeReason::kHead);
}

TEST_F(QuantizeModelTest, HeadAndEmbeddingCanBeAskedFor) {
  auto wish = options("Q4_0");
  wish.wish.head = DType::kQ8_0;
  wish.wish.embedding = DType::kQ5_1;
  const auto report = quantize(source_file(), wish);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(decision(*report, "output.weight").to, DType::kQ8_0);
  EXPECT_EQ(decision(*report, "token_embd.weight").to, DType::kQ5_1);
  EXPECT_EQ(decision(*report, "token_embd.weight").reason, QuantizeReason::kAsked);
  wish.wish.head = DType::kIQ2_S;
  EXPECT_EQ(quantize(source_file(), wish).status().code(), Code::kUnsupported);
}

TEST_F(QuantizeModelTest, AnyNumberOfThreadsGivesTheSameBytes) {
  const auto source = source_file();
  const auto model = GgufFile::parse(source, "source").value();
  std::vector<std::byte> first;
  for (const size_t threads : {1u, 2u, 3u, 7u, 100u}) {
    SimFileSystem files;
    ASSERT_TRUE(quantize_model(model, files, "d/out", options("Q5_K_M", threads)).ok());
    const auto bytes = written_file(files, "d/out");
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << threads;
  }
  EXPECT_EQ(quantize(source, options("Q5_K_M", 0)).status().code(), Code::kInvalidArgument);
}

TEST_F(QuantizeModelTest, QuantisedSourcesAreRefusedUnlessAllowed) {
  ASSERT_TRUE(quantize(source_file(), options("Q8_0")).ok());
  const auto quantised = written_file(files_, "d/out");
  const auto model = GgufFile::parse(quantised, "q8").value();
  SimFileSystem files;
  const auto refused = quantize_model(model, files, "d/out", options("Q4_0")).status();
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("'token_embd.weight' is quantised already (Q8_0)"));
  EXPECT_TRUE(files.names().empty());
  auto allowed = options("Q4_0");
  allowed.wish.allow_requantize = true;
  EXPECT_TRUE(quantize_model(model, files, "d/out", allowed).ok());
  // Exact expansion and unchanged types need no permission.
  EXPECT_TRUE(quantize_model(model, files, "d/f32", options("F32")).ok());
  const auto same = quantize_model(model, files, "d/q8", options("Q8_0"));
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(decision(*same, "output.weight").reason, QuantizeReason::kUnchanged);
  EXPECT_TRUE(written_file(files, "d/q8") == quantised);
}

TEST_F(QuantizeModelTest, BadWeightsNameTensorRowAndColumn) {
  const auto status =
      quantize(source_file(false, std::numeric_limits<float>::infinity()), options("Q4_0", 3)).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(),
              HasSubstr("'blk.3.attn_v.weight' row 5: the value in column 7 is not finite"));
  EXPECT_TRUE(files_.names().empty());
}

TEST_F(QuantizeModelTest, ImportanceIsUsedAndChecked) {
  const auto source = source_file();
  ImportanceMap importance = {{"blk.1.attn_q.weight", testing::sample_importance(256, 9)}};
  auto weighted = options("Q4_K_S");
  weighted.importance = &importance;
  const auto report = quantize(source, weighted);
  ASSERT_TRUE(report.ok());
  for (const auto& tensor : report->tensors) {
    EXPECT_EQ(tensor.weighted, tensor.decision.name == "blk.1.attn_q.weight");
  }
  importance["blk.1.attn_q.weight"].pop_back();
  weighted.overwrite = true;
  EXPECT_EQ(quantize(source, weighted).status().code(), Code::kInvalidArgument);
}

TEST_F(QuantizeModelTest, ProgressReachesTheEndAndStopsAreObeyed) {
  const auto source = source_file();
  auto watched = options("Q4_0");
  QuantizeProgress last;
  size_t calls = 0;
  watched.progress = [&](const QuantizeProgress& p) {
    EXPECT_GE(p.bytes_done, last.bytes_done);
    last = p;
    ++calls;
  };
  ASSERT_TRUE(quantize(source, watched).ok());
  EXPECT_EQ(last.bytes_done, last.bytes_total);
  EXPECT_GE(calls, last.tensors);
  CancelSource cancel;
  auto stopped = options("Q4_0");
  stopped.overwrite = true;
  stopped.stop.token = cancel.token();
  stopped.progress = [&](const QuantizeProgress& p) {
    if (p.tensor == 5) cancel.cancel();
  };
  const auto before = written_file(files_, "d/out");
  EXPECT_EQ(quantize(source, stopped).status().code(), Code::kCancelled);
  EXPECT_EQ(files_.names().size(), 1u);
  EXPECT_TRUE(written_file(files_, "d/out") == before);
}

TEST_F(QuantizeModelTest, UnknownTargetsListTheKnown) {
  const auto status = quantize(source_file(), options("Q4_X")).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("Q4_K_M"));
  EXPECT_EQ(find_quantize_target("iq4_xs")->base, DType::kIQ4_XS);
}

TEST_F(QuantizeModelTest, AFullDiskLeavesNothing) {
  const auto source = source_file();
  ASSERT_TRUE(quantize(source, options("Q4_0")).ok());
  const uint64_t operations = files_.operations();
  for (uint64_t n = 0; n < operations; n += 5) {
    SimFileSystem files;
    files.fail_at(n, ENOSPC);
    const auto model = GgufFile::parse(source, "source").value();
    const auto status = quantize_model(model, files, "d/out", options("Q4_0")).status();
    EXPECT_TRUE(status.ok() || status.code() == Code::kResourceExhausted) << n;
    EXPECT_TRUE(status.ok() || n + 2 >= operations || !files.exists("d/out")) << n;
  }
}

// ---- on real files ----

TEST(QuantizeFiles, TheSourceIsNeverReplacedAndTargetsOnlyWhenAsked) {
  namespace fs = std::filesystem;
  const auto dir = fs::path(::testing::TempDir()) / "isthmus_quantize_files";
  fs::remove_all(dir);
  fs::create_directories(dir);
  auto& files = real_file_system();
  const auto source = source_file();
  const auto path = (dir / "m.gguf").string();
  ASSERT_TRUE(publish_file(files, path, source).ok());
  const auto model = GgufFile::open(path);
  ASSERT_TRUE(model.ok());
  QuantizeOptions options;
  options.wish.target = "Q8_0";
  options.overwrite = true;
  EXPECT_THAT(quantize_model(*model, files, path, options).status().message(), HasSubstr("the model itself"));
  options.overwrite = false;
  const auto target = (dir / "q8.gguf").string();
  ASSERT_TRUE(quantize_model(*model, files, target, options).ok());
  EXPECT_EQ(quantize_model(*model, files, target, options).status().code(), Code::kFailedPrecondition);
  options.overwrite = true;
  EXPECT_TRUE(quantize_model(*model, files, target, options).ok());
  EXPECT_TRUE(GgufFile::open(target).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(dir), fs::directory_iterator()), 2);
  fs::remove_all(dir);
}

}  // namespace
}  // namespace isthmus
