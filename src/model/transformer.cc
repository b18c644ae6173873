#include "model/transformer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>

#include "model/step_plan.h"
#include "model/workspace.h"
#include "ops/norm.h"
#include "tensor/quant.h"

namespace isthmus {

/// The first error of several threads. any() is exact behind a barrier that follows the add() calls.
class FirstError {
 public:
  void add(Status status) {
    if (status.ok()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (status_.ok()) status_ = std::move(status);
    any_.store(true, std::memory_order_relaxed);
  }
  bool any() const { return any_.load(std::memory_order_relaxed); }
  const Status& status() const { return status_; }

 private:
  std::mutex mutex_;
  std::atomic<bool> any_{false};
  Status status_;
};

Transformer::Transformer(std::shared_ptr<const GgufFile> file, Compute compute)
    : file_(std::move(file)), compute_(compute), binder_(*file_, compute) {}

Transformer::~Transformer() = default;

Result<std::unique_ptr<Transformer>> Transformer::open(std::shared_ptr<const GgufFile> file, Compute compute,
                                                       size_t context) {
  std::unique_ptr<Transformer> out(new Transformer(std::move(file), compute));
  ISTHMUS_RETURN_IF_ERROR(out->bind(context));
  return out;
}

Status Transformer::bind(size_t context) {
  ISTHMUS_ASSIGN_OR_RETURN(const std::string_view architecture, file_->get_string("general.architecture"));
  ISTHMUS_ASSIGN_OR_RETURN(family_, find_family(architecture));
  ISTHMUS_RETURN_IF_ERROR(read_common_config(*file_, config_));
  ISTHMUS_RETURN_IF_ERROR(family_->configure(*file_, config_));

  const size_t positions = context == 0 ? config_.context : context;
  ISTHMUS_ASSIGN_OR_RETURN(RopeTable rope,
                           RopeTable::create(rope_for_context(config_, positions), positions));
  rope_ = std::make_unique<RopeTable>(std::move(rope));
  if (config_.sliding_window != 0) {
    ISTHMUS_ASSIGN_OR_RETURN(RopeTable local, RopeTable::create(config_.rope_local, positions));
    rope_local_ = std::make_unique<RopeTable>(std::move(local));
  }

  weights_.layers.resize(config_.layers);
  for (size_t i = 0; i < config_.layers; ++i) {
    ISTHMUS_RETURN_IF_ERROR(family_->bind_layer(config_, i, binder_, weights_.layers[i]));
  }
  ISTHMUS_RETURN_IF_ERROR(binder_.vector("output_norm.weight", config_.d_model, &weights_.output_norm));
  ISTHMUS_ASSIGN_OR_RETURN(weights_.embedding, file_->tensor("token_embd.weight"));
  if (!dtype_info(weights_.embedding->type).computable) {
    return unsupported("tensor 'token_embd.weight' has type " +
                       std::string(dtype_info(weights_.embedding->type).name));
  }
  const char* const head = config_.tied_head ? "token_embd.weight" : "output.weight";
  ISTHMUS_RETURN_IF_ERROR(binder_.matrix(head, config_.vocab, config_.d_model, &weights_.head));
  head_type_ = weights_.embedding->type;
  if (!config_.tied_head) {
    ISTHMUS_ASSIGN_OR_RETURN(const GgufTensor* output, file_->tensor(head));
    head_type_ = output->type;
  }
  return ok_status();
}

BlockPoolConfig Transformer::pool_config(const RunShape& shape) const {
  const size_t per_stream = (shape.context + kBlockKeys - 1) / kBlockKeys;
  BlockPoolConfig config;
  config.k_type = shape.k_type;
  config.v_type = shape.v_type;
  config.head_dim = config_.head_dim;
  config.key_encoding = shape.key_encoding;
  config.blocks = per_stream * config_.layers * config_.n_kv_heads;
  config.coded = shape.coded;
  config.levels = shape.levels;
  config.residual = shape.residual;
  if (!shape.coded.empty()) config.blocks = coded_pool_blocks(config, shape, per_stream);
  if (!shape.levels.empty()) {
    const size_t slab = BlockPool::kSlabBlocks;  // and one that is part full for each level
    config.blocks = (config.blocks + slab - 1) / slab * slab + shape.levels.size() * slab;
  }
  return config;
}

/// Coded blocks for the whole context beside open ones for the newest tokens (or, where coding is put off,
/// for all), and for each format a slab that is part full.
size_t Transformer::coded_pool_blocks(const BlockPoolConfig& config, const RunShape& shape,
                                      size_t per_stream) const {
  const size_t open_bytes = BlockPool::block_bytes(config);
  const size_t newest = shape.coding_put_off ? per_stream : shape.residual / kBlockKeys + 1;
  size_t bytes = 0;
  for (const KvFormat& format : shape.coded) {
    const size_t a_stream =
        (format == config.open() ? 0 : newest * open_bytes) + per_stream * config.format_bytes(format);
    bytes += a_stream * config_.n_kv_heads;
  }
  constexpr size_t kMostFormats = 8;
  const size_t blocks = (bytes + open_bytes - 1) / open_bytes + kMostFormats * BlockPool::kSlabBlocks;
  return blocks / BlockPool::kSlabBlocks * BlockPool::kSlabBlocks;
}

MemoryPlan Transformer::plan(const RunShape& shape, size_t pool_tokens, size_t threads) const {
  RunShape all = shape;
  all.context = pool_tokens;
  const BlockPoolConfig pool = pool_config(all);
  MemoryPlan plan;
  plan.weights = HugeArena::resident_bytes(weight_bytes());
  plan.kv = HugeArena::resident_bytes(pool.blocks * BlockPool::block_bytes(pool));
  plan.work = HugeArena::resident_bytes(Workspace::bytes(config_, shape, compute_, threads)) +
              BlockPool::bookkeeping(pool) +
              (pool_tokens + kBlockKeys - 1) / kBlockKeys * config_.layers * config_.n_kv_heads *
                  KvSequence::kBookkeeping +
              shape.max_outputs * config_.vocab * sizeof(float);
  const uint64_t load = WeightBinder::load_bytes();
  if (plan.kv + plan.work < load) plan.work = load - plan.kv;
  return plan;
}

Status Transformer::load(ThreadPool& pool, Ledger& ledger, const LoadProgress& progress,
                         const StopPolicy& stop, const PackedCacheOptions& cache) {
  ISTHMUS_ASSIGN_OR_RETURN(charge_,
                           ledger.charge(MemoryKind::kWeights, HugeArena::resident_bytes(weight_bytes())));
  cache_ = std::make_unique<PackedCache>(*file_, compute_ == Compute::kF32, binder_.planned_bytes(),
                                         binder_.entries(), cache, StopPolicy{stop.token});
  if (auto cached = cache_->read(pool); cached.ok()) {
    arena_ = std::move(*cached);
    ISTHMUS_RETURN_IF_ERROR(binder_.adopt(arena_.data()));
    if (progress) progress(binder_.planned_bytes(), binder_.planned_bytes());
    return ok_status();
  }
  ISTHMUS_ASSIGN_OR_RETURN(arena_, binder_.load(pool, progress, stop));
  cache_->write({arena_.data(), static_cast<size_t>(binder_.planned_bytes())});
  return ok_status();
}

uint64_t Transformer::head_bytes() const {
  const auto bytes = packed_bytes(head_type_, config_.vocab, config_.d_model, compute_);
  return bytes.ok() ? *bytes : 0;
}

std::vector<const PackedMatrix*> Transformer::matrices() const {
  std::vector<const PackedMatrix*> all;
  for (const LayerWeights& w : weights_.layers) {
    for (const PackedMatrix* matrix : {&w.wq, &w.wk, &w.wv, &w.wo, &w.gate, &w.up, &w.down})
      all.push_back(matrix);
  }
  all.push_back(&weights_.head);
  return all;
}

Result<std::shared_ptr<BlockPool>> Transformer::make_pool(const RunShape& shape, Ledger& ledger) const {
  return BlockPool::create(pool_config(shape), ledger);
}

KvSequence Transformer::make_sequence(std::shared_ptr<BlockPool> pool) const {
  return KvSequence(std::move(pool), config_.layers, config_.n_kv_heads);
}

AttentionGeometry Transformer::attention_geometry() const {
  AttentionGeometry out{config_.layers,
                        config_.n_heads,
                        config_.n_kv_heads,
                        config_.head_dim,
                        config_.attention_scale,
                        config_.attention_softcap,
                        std::vector<bool>(config_.layers),
                        rope_.get()};
  for (size_t layer = 0; layer < config_.layers; ++layer) out.pruned[layer] = !config_.is_local(layer);
  return out;
}

Status Transformer::embed(TokenId token, std::byte* row, float* out) const {
  if (config_.tied_head) {
    unpack_row(weights_.head, static_cast<size_t>(token), out);
  } else {
    const GgufTensor& table = *weights_.embedding;
    // Read, not mapped: the rows that a text uses would make most of the table resident (the kernel maps 64
    // KiB around each), and one read costs a microsecond.
    const size_t bytes = row_bytes(table.type, table.cols()).value_or(0);
    ISTHMUS_RETURN_IF_ERROR(file_->read(table, static_cast<uint64_t>(token) * bytes, {row, bytes}));
    ISTHMUS_RETURN_IF_ERROR(dequantize_row(table.type, row, config_.d_model, out));
  }
  if (config_.embedding_scale != 1.0F) {
    float_kernels().mul_scalar(out, config_.embedding_scale, config_.d_model, out);
  }
  return ok_status();
}

Status Transformer::forward(const ForwardStep& step, Workspace& workspace, ThreadPool& pool) const {
  if (pool.size() > workspace.threads()) {
    return invalid_argument("the workspace was made for " + std::to_string(workspace.threads()) +
                            " threads, the pool has " + std::to_string(pool.size()));
  }
  StepPlan plan(*this, *rope_, rope_local_.get(), workspace);
  ISTHMUS_RETURN_IF_ERROR(plan.prepare(step));
  choose_head(step, workspace);
  FirstError error;
  pool.run([&](Worker& worker) { run(step, workspace, worker, error); });
  return error.status();
}

void Transformer::run(const ForwardStep& step, Workspace& workspace, Worker& worker,
                      FirstError& error) const {
  StepState& s = workspace.state_;
  const auto [first, last] = worker.range(s.tokens);
  const auto& mine = workspace.per_thread_[worker.index()];
  for (size_t t = first; t < last; ++t) {
    error.add(
        embed(workspace.tokens_[t], reinterpret_cast<std::byte*>(mine.normed), s.x + t * config_.d_model));
  }
  worker.barrier();
  if (error.any()) return;  // every thread sees it behind the barrier

  LayerRun layer(s, worker, mine.normed, mine.acts);
  const size_t layers = step.layers == 0 ? config_.layers : step.layers;
  for (size_t i = 0; i < layers; ++i) {
    layer.begin_layer(i, weights_.layers[i]);
    family_->run_layer(layer);
  }
  run_outputs(step, workspace, worker);
}

/// How this step's logits are made; no step fails for want of the faster way.
void Transformer::choose_head(const ForwardStep& step, Workspace& workspace) const {
  HeadChoice& head = workspace.head_;
  const Screen* screen = screen_.load(std::memory_order_acquire);
  head.screen = nullptr;
  head.timed = step.best > 0 && step.best <= kScreenMostBest && step.outputs.size() == 1 &&
               step.logits != nullptr && step.compute == Compute::kInt16 && screen != nullptr;
  if (!head.timed) return;
  if (head.scratch == nullptr) {
    auto scratch = ScreenScratch::create(config_.vocab, config_.d_model, workspace.threads_);
    if (!scratch.ok()) return;
    head.scratch = std::move(*scratch);
  }
  if (head.policy.two_stage()) head.screen = screen;
}

void Transformer::run_outputs(const ForwardStep& step, Workspace& workspace, Worker& worker) const {
  const size_t n = step.outputs.size();
  if (n == 0) return;
  const size_t d = config_.d_model;
  const StepState& s = workspace.state_;
  const auto [first, last] = worker.range(n);
  for (size_t i = first; i < last; ++i) {
    float* row = workspace.out_rows_ + i * d;
    rms_norm_rows({s.x + step.outputs[i] * d, d, row, d, d}, 0, 1, weights_.output_norm, config_.norm_eps);
    if (step.hidden != nullptr) std::copy(row, row + d, step.hidden + i * d);
  }
  if (step.logits == nullptr) return;
  if (!workspace.head_.timed) {
    return run_head(workspace.out_rows_, n, step.compute, step.logits, workspace, worker);
  }
  worker.barrier();
  const auto start = std::chrono::steady_clock::now();
  if (workspace.head_.screen != nullptr) {
    run_best(step, workspace, worker);
  } else {
    run_head(workspace.out_rows_, n, step.compute, step.logits, workspace, worker);
  }
  worker.barrier();
  if (worker.index() == 0) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    workspace.head_.note(spent.count(), panel_count(config_.vocab));
  }
}

void Transformer::run_best(const ForwardStep& step, Workspace& workspace, Worker& worker) const {
  const Activations acts(workspace.out_rows_, config_.d_model, 1, config_.d_model, step.compute,
                         workspace.out_acts_);
  if (worker.index() == 0) quantize_activations(acts, 0, 1);
  worker.barrier();
  screen_best(*workspace.head_.screen, acts, step.best, step.logits, *workspace.head_.scratch, worker);
}

void Transformer::run_head(const float* rows, size_t n, Compute compute, float* logits, Workspace& workspace,
                           Worker& worker) const {
  // Few rows: expanding the weights to bfloat16 would cost more time than it saves.
  const Compute used = compute == Compute::kBf16 ? Compute::kInt16 : compute;
  const Activations acts(rows, config_.d_model, n, config_.d_model, used, workspace.out_acts_);
  const auto [first, last] = worker.range(n);
  quantize_activations(acts, first, last);
  worker.barrier();
  const std::array tasks = {LinearTask{&weights_.head, logits, config_.vocab, nullptr, false}};
  linear(tasks, acts, worker);
}

Status Transformer::head(const float* hidden, size_t n, Compute compute, float* logits, Workspace& workspace,
                         ThreadPool& pool) const {
  if (n > workspace.shape().max_outputs) {
    return invalid_argument(std::to_string(n) + " rows of logits, the workspace holds " +
                            std::to_string(workspace.shape().max_outputs));
  }
  pool.run([&](Worker& worker) { run_head(hidden, n, compute, logits, workspace, worker); });
  return ok_status();
}

}  // namespace isthmus
