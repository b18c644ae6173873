#include "model/workspace.h"

#include <algorithm>
#include <functional>

#include "base/checked.h"

namespace isthmus {
namespace {

/// The widest input of a matrix product, in columns.
size_t widest_input(const ModelConfig& config) {
  return std::max({config.d_model, config.q_dim(), config.d_ff});
}

/// Scratch of the largest attention call: a chunk of the context, or one token over all of it.
uint64_t attention_bytes(const ModelConfig& config, const RunShape& shape, size_t threads) {
  const KvStreamRef stream{{}, shape.context + shape.max_tokens, 0};
  const std::vector<KvStreamRef> heads(config.n_kv_heads, stream);
  const QueryView view{0, static_cast<uint32_t>(stream.keys), 0, nullptr, 0};
  const auto need = [&](size_t tokens) {
    const std::vector<QueryView> views(tokens, view);
    const AttentionSeq seq{0, tokens, heads, views};
    const AttentionArgs args{nullptr,
                             0,
                             nullptr,
                             0,
                             config.n_heads,
                             config.n_kv_heads,
                             config.head_dim,
                             config.attention_scale,
                             config.attention_softcap,
                             {&seq, 1},
                             nullptr};
    return static_cast<uint64_t>(attention_scratch_bytes(args, threads));
  };
  return std::max(need(1), need(shape.max_tokens));
}

/// Memory of a product's input. A step may use any class but the reference's, and which of them has the
/// larger records depends on the instruction set.
uint64_t input_bytes(size_t tokens, size_t cols, Compute compute) {
  if (compute == Compute::kF32) return Activations::bytes(tokens, cols, compute);
  uint64_t most = 0;
  for (const Compute used : {Compute::kInt8, Compute::kInt16, Compute::kBf16}) {
    if (used == Compute::kBf16 && !have_bf16()) continue;
    most = std::max<uint64_t>(most, Activations::bytes(tokens, cols, used));
  }
  return most;
}

/// Calls `take(bytes)` for each buffer in a fixed order, so that counting and laying out cannot differ.
struct Layout {
  uint64_t bytes = 0;
  uint64_t take(uint64_t n) {
    const uint64_t at = bytes;
    bytes += round_up<uint64_t>(n, 64);
    return at;
  }
};

struct Offsets {
  uint64_t x, normed, qkv, attn, hidden, branch, acts, attention, out_rows, out_acts;
  std::vector<uint64_t> thread_normed, thread_acts;
  uint64_t total;
};

Offsets lay_out(const ModelConfig& config, const RunShape& shape, Compute compute, size_t threads) {
  Layout layout;
  const uint64_t t = shape.max_tokens;
  const auto floats = [&](uint64_t rows, uint64_t cols) { return layout.take(rows * cols * sizeof(float)); };
  Offsets o{};
  o.x = floats(t, config.d_model);
  o.normed = floats(t, config.d_model);
  o.qkv = floats(t, config.qkv_dim());
  o.attn = floats(t, config.q_dim());
  o.hidden = floats(t, config.d_ff);
  o.branch = floats(t, config.d_model);
  o.acts = layout.take(input_bytes(shape.max_tokens, widest_input(config), compute));
  o.attention = layout.take(attention_bytes(config, shape, threads));
  o.out_rows = floats(shape.max_outputs, config.d_model);
  o.out_acts = layout.take(input_bytes(shape.max_outputs, config.d_model, compute));
  for (size_t i = 0; i < threads; ++i) {
    o.thread_normed.push_back(floats(kFewTokens, config.d_model));
    o.thread_acts.push_back(layout.take(input_bytes(kFewTokens, widest_input(config), compute)));
  }
  o.total = layout.bytes;
  return o;
}

}  // namespace

uint64_t Workspace::bytes(const ModelConfig& config, const RunShape& shape, Compute compute, size_t threads) {
  return lay_out(config, shape, compute, threads).total;
}

Result<std::unique_ptr<Workspace>> Workspace::create(const Transformer& model, const RunShape& shape,
                                                     size_t threads, Ledger& ledger) {
  if (shape.max_tokens == 0 || shape.context == 0) return invalid_argument("a step needs at least one token");
  const ModelConfig& config = model.config();
  const Offsets o = lay_out(config, shape, model.compute(), threads);
  std::unique_ptr<Workspace> out(new Workspace(shape, threads));
  ISTHMUS_ASSIGN_OR_RETURN(out->charge_, ledger.charge(MemoryKind::kWork, o.total));
  ISTHMUS_ASSIGN_OR_RETURN(out->arena_, HugeArena::allocate(static_cast<size_t>(o.total)));
  std::byte* base = out->arena_.data();
  const auto floats = [&](uint64_t offset) { return reinterpret_cast<float*>(base + offset); };
  StepState& s = out->state_;
  s.kernels = &float_kernels();
  s.config = &config;
  s.x = floats(o.x);
  s.normed = floats(o.normed);
  s.qkv = floats(o.qkv);
  s.attn = floats(o.attn);
  s.hidden = floats(o.hidden);
  s.branch = floats(o.branch);
  s.acts = base + o.acts;
  s.attention_scratch = base + o.attention;  // fresh pages: its counters are zero
  out->attention_bytes_ = o.out_rows - o.attention;
  out->out_rows_ = floats(o.out_rows);
  out->out_acts_ = base + o.out_acts;
  for (size_t i = 0; i < threads; ++i) {
    out->per_thread_.push_back({floats(o.thread_normed[i]), base + o.thread_acts[i]});
  }
  return out;
}

}  // namespace isthmus
