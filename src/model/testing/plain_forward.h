// The forward pass written out plainly in float64, with any positions and any mask: the oracle of texts that
// are put together of parts. For the tiny models of families llama, qwen2 and gemma3 with float32 weights and
// unscaled rotation.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "model/config.h"
#include "tensor/quant.h"

namespace isthmus::testing {

class PlainModel {
 public:
  using Row = std::vector<double>;
  /// Whether query i sees key j, both indices of tokens. Sliding windows come on top.
  using Mask = std::function<bool(size_t i, size_t j)>;

  PlainModel(const std::string& path, const ModelConfig& config) : config_(config) {
    auto file = GgufFile::open(path);
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    file_ = std::make_shared<const GgufFile>(std::move(*file));
  }

  /// Logits after each token.
  std::vector<Row> logits(const std::vector<int32_t>& tokens, const std::vector<size_t>& positions,
                          const Mask& sees) const {
    std::vector<Row> x;
    const Matrix& embedding = matrix("token_embd.weight");
    for (const int32_t token : tokens) {
      x.push_back(embedding.rows[static_cast<size_t>(token)]);
      for (double& value : x.back()) value *= config_.embedding_scale;
    }
    for (size_t layer = 0; layer < config_.layers; ++layer) run_layer(layer, positions, sees, x);
    const Matrix& head = config_.tied_head ? embedding : matrix("output.weight");
    std::vector<Row> out;
    for (const Row& row : x) out.push_back(head.times(norm(row, vector("output_norm.weight"))));
    return out;
  }

 private:
  struct Matrix {
    std::vector<Row> rows;
    Row times(const Row& x) const {
      Row out;
      for (const Row& row : rows) {
        double sum = 0;
        for (size_t i = 0; i < x.size(); ++i) sum += row[i] * x[i];
        out.push_back(sum);
      }
      return out;
    }
  };

  const Matrix& matrix(const std::string& name) const {
    const auto known = matrices_.find(name);
    if (known != matrices_.end()) return known->second;
    Matrix& out = matrices_[name];
    const auto tensor = file_->tensor(name);
    EXPECT_TRUE(tensor.ok()) << name;
    std::vector<float> row((*tensor)->dims[0]);
    std::vector<std::byte> bytes(row.size() * sizeof(float));
    for (size_t r = 0; r < (*tensor)->dims[1]; ++r) {
      EXPECT_TRUE(file_->read(**tensor, r * bytes.size(), bytes).ok());
      EXPECT_TRUE(dequantize_row((*tensor)->type, bytes.data(), row.size(), row.data()).ok());
      out.rows.emplace_back(row.begin(), row.end());
    }
    return out;
  }
  const Row& vector(const std::string& name) const { return matrix(name).rows.front(); }
  bool has(const std::string& name) const { return file_->tensor(name).ok(); }

  Row norm(const Row& x, const Row& weight) const {
    double sum = 0;
    for (const double value : x) sum += value * value;
    const double scale = 1 / std::sqrt(sum / static_cast<double>(x.size()) + config_.norm_eps);
    Row out(x.size());
    for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight[i];
    return out;
  }

  Row project(const std::string& prefix, const Row& x) const {
    Row out = matrix(prefix + ".weight").times(x);
    if (!has(prefix + ".bias")) return out;
    const Row& bias = vector(prefix + ".bias");
    for (size_t i = 0; i < out.size(); ++i) out[i] += bias[i];
    return out;
  }

  /// Normalises (where the family does) and rotates each head.
  void prepare_heads(const std::string& norm_name, const RopeParams& rope, size_t position,
                     Row& heads) const {
    const size_t dim = config_.head_dim;
    for (size_t at = 0; at < heads.size(); at += dim) {
      Row head(heads.begin() + static_cast<ptrdiff_t>(at), heads.begin() + static_cast<ptrdiff_t>(at + dim));
      if (has(norm_name)) head = norm(head, vector(norm_name));
      for (size_t i = 0; i < rope.dims / 2; ++i) {
        const bool half = rope.style == RopeStyle::kHalf;
        const size_t a = half ? i : 2 * i;
        const size_t b = half ? i + rope.dims / 2 : 2 * i + 1;
        const double angle =
            static_cast<double>(position) *
            std::pow(rope.base, -2.0 * static_cast<double>(i) / static_cast<double>(rope.dims));
        const double x = head[a];
        const double y = head[b];
        head[a] = x * std::cos(angle) - y * std::sin(angle);
        head[b] = x * std::sin(angle) + y * std::cos(angle);
      }
      std::copy(head.begin(), head.end(), heads.begin() + static_cast<ptrdiff_t>(at));
    }
  }

  Row attend(const Row& q, const std::vector<Row>& k, const std::vector<Row>& v,
             const std::vector<size_t>& seen) const {
    const size_t dim = config_.head_dim;
    Row out(q.size());
    for (size_t head = 0; head < config_.n_heads; ++head) {
      const size_t kv = head / (config_.n_heads / config_.n_kv_heads) * dim;
      Row weights;
      double sum = 0;
      for (const size_t j : seen) {
        double score = 0;
        for (size_t d = 0; d < dim; ++d) score += q[head * dim + d] * k[j][kv + d];
        weights.push_back(std::exp(score * config_.attention_scale));
        sum += weights.back();
      }
      for (size_t s = 0; s < seen.size(); ++s) {
        for (size_t d = 0; d < dim; ++d) out[head * dim + d] += weights[s] / sum * v[seen[s]][kv + d];
      }
    }
    return out;
  }

  void add_branch(const std::string& norm_name, Row branch, Row& x) const {
    if (has(norm_name)) branch = norm(branch, vector(norm_name));
    for (size_t i = 0; i < x.size(); ++i) x[i] += branch[i];
  }

  Row feed_forward(const std::string& prefix, const Row& x) const {
    Row gate = matrix(prefix + "ffn_gate.weight").times(x);
    const Row up = matrix(prefix + "ffn_up.weight").times(x);
    for (size_t i = 0; i < gate.size(); ++i) {
      const double g = gate[i];
      const double inner = std::sqrt(2 / 3.14159265358979323846) * (g + 0.044715 * g * g * g);
      const double on =
          config_.architecture == "gemma3" ? 0.5 * (1 + std::tanh(inner)) : 1 / (1 + std::exp(-g));
      gate[i] = g * on * up[i];
    }
    return matrix(prefix + "ffn_down.weight").times(gate);
  }

  void run_layer(size_t layer, const std::vector<size_t>& positions, const Mask& sees,
                 std::vector<Row>& x) const {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    const bool local = config_.is_local(layer);
    const RopeParams& rope = local ? config_.rope_local : config_.rope;
    std::vector<Row> q;
    std::vector<Row> k;
    std::vector<Row> v;
    for (size_t i = 0; i < x.size(); ++i) {
      const Row normed = norm(x[i], vector(prefix + "attn_norm.weight"));
      q.push_back(project(prefix + "attn_q", normed));
      k.push_back(project(prefix + "attn_k", normed));
      v.push_back(project(prefix + "attn_v", normed));
      prepare_heads(prefix + "attn_q_norm.weight", rope, positions[i], q.back());
      prepare_heads(prefix + "attn_k_norm.weight", rope, positions[i], k.back());
    }
    for (size_t i = 0; i < x.size(); ++i) {
      std::vector<size_t> seen;
      for (size_t j = 0; j <= i; ++j) {
        if (sees(i, j) && (!local || positions[i] - positions[j] < config_.sliding_window)) seen.push_back(j);
      }
      add_branch(prefix + "post_attention_norm.weight",
                 project(prefix + "attn_output", attend(q[i], k, v, seen)), x[i]);
      const Row normed = norm(x[i], vector(prefix + "ffn_norm.weight"));
      add_branch(prefix + "post_ffw_norm.weight", feed_forward(prefix, normed), x[i]);
    }
  }

  ModelConfig config_;
  std::shared_ptr<const GgufFile> file_;
  mutable std::map<std::string, Matrix> matrices_;
};

}  // namespace isthmus::testing
