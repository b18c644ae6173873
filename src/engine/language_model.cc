#include "engine/language_model.h"

#include <algorithm>

#include "engine/head_text.h"
#include "engine/lookup_proposer.h"
#include "kernels/isa.h"
#include "ops/linear_tiles.h"
#include "os/cpu.h"
#include "os/paths.h"

namespace isthmus {
namespace {

// Code of this library and of those it stands on that a first answer makes resident, measured: the resident
// set after an answer less the one before loading, less the planned parts.
constexpr uint64_t kCodeBytes = 3'500'000;
// Stack and allocator cache of one compute thread, measured.
constexpr uint64_t kThreadBytes = 100'000;
// HeadMode::kAuto: the least share of the weights that the output matrix must have.
constexpr double kHeadShare = 0.15;
constexpr size_t kHeadTokens = 1536;  // of the calibration text

Compute packing_of(Precision precision) {
  return precision == Precision::kReference ? Compute::kF32 : Compute::kInt16;
}

bool is_builtin(const std::string& name) {
  const auto names = ChatTemplate::builtin_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

uint64_t process_bytes() { return os::resident_bytes() + kCodeBytes; }

Result<std::shared_ptr<LanguageModel>> LanguageModel::load(const std::string& path, ModelOptions options) {
  std::shared_ptr<LanguageModel> model(new LanguageModel(std::move(options)));
  Status status = model->open(path);
  if (status.ok()) status = model->check_limit();
  if (status.ok()) status = model->load_all();
  if (!status.ok() && model->file_ != nullptr) {
    // Zeros in the place of lost pages look like many other mistakes.
    ISTHMUS_RETURN_IF_ERROR(model->file_->intact().with_context(path));
  }
  ISTHMUS_RETURN_IF_ERROR(status.with_context(path));
  return model;
}

Status LanguageModel::check_limit() const {
  if (plan_.total() <= options_.memory_limit) return ok_status();
  std::string parts = "weights " + format_bytes(plan_.memory.weights) + ", KV cache of " +
                      std::to_string(plan_.context) + " tokens " + format_bytes(plan_.memory.kv) +
                      ", work buffers " + format_bytes(plan_.memory.work) + ", tokenizer " +
                      format_bytes(plan_.text);
  if (plan_.memory.head > 0) parts += ", output head " + format_bytes(plan_.memory.head);
  if (options_.process_bytes > 0) parts += ", program " + format_bytes(plan_.process);
  return resource_exhausted("needs " + format_bytes(plan_.total()) + " (" + parts +
                            "), the memory limit is " + format_bytes(options_.memory_limit));
}

Status LanguageModel::load_all() {
  ISTHMUS_RETURN_IF_ERROR(load_text());
  // Neither the header's pages nor what building the tokenizer left behind is needed again.
  file_->release_pages();
  os::release_freed_memory();
  pool_ = std::make_unique<ThreadPool>(plan_.threads);
  ISTHMUS_RETURN_IF_ERROR(
      transformer_->load(*pool_, ledger_, options_.progress, options_.stop, options_.packed_cache));
  file_->release_pages();
  if (transformer_->compute() != Compute::kF32) {
    const auto cache = standard_path(Place::kCache);
    // Some milliseconds, and only where there are tiles: not worth a file.
    if (const auto speeds = measure_tiles(*pool_); speeds.ok()) set_tile_plan(speeds->plan());
    streams_ =
        choose_streams(*transformer_, *pool_, real_file_system(), cache.ok() ? *cache + "/streams" : "");
  }
  ISTHMUS_ASSIGN_OR_RETURN(blocks_, transformer_->make_pool(pool_shape(), ledger_));
  make_head();
  return ok_status();
}

Result<ModelPlan> LanguageModel::plan(const std::string& path, const ModelOptions& options) {
  LanguageModel model(options);
  ISTHMUS_RETURN_IF_ERROR(model.open(path).with_context(path));
  return model.plan_;
}

Status LanguageModel::open(const std::string& path) {
  // A set that was asked for and is not there must not become another one.
  ISTHMUS_ASSIGN_OR_RETURN(const Isa isa, active_isa());
  if (options_.precision == Precision::kBf16 && !have_bf16()) {
    return unsupported("bf16 precision needs AMX tiles; the instruction set in use is " +
                       std::string(isa_name(isa)));
  }
  ISTHMUS_ASSIGN_OR_RETURN(GgufFile file, GgufFile::open(path));
  file_ = std::make_shared<const GgufFile>(std::move(file));
  plan_.threads = options_.threads == 0 ? os::usable_cpus() : options_.threads;
  ISTHMUS_ASSIGN_OR_RETURN(transformer_,
                           Transformer::open(file_, packing_of(options_.precision), options_.context));
  const size_t trained = config().context;
  plan_.context = options_.context != 0 ? options_.context : std::min(trained, kDefaultContext);
  if (plan_.context > trained) {
    return invalid_argument("a context of " + std::to_string(plan_.context) +
                            " tokens was asked for; the model was trained for " + std::to_string(trained));
  }
  if (options_.draft_tokens > kMostDraftTokens) {
    return invalid_argument("drafts of " + std::to_string(options_.draft_tokens) +
                            " tokens were asked for; at most " + std::to_string(kMostDraftTokens) +
                            " are possible");
  }
  ISTHMUS_RETURN_IF_ERROR(check_streaming());
  ISTHMUS_RETURN_IF_ERROR(choose_codes());
  plan_.memory = transformer_->plan(run_shape(), pool_shape().context, plan_.threads);
  plan_.text = Tokenizer::memory_bytes(*file_);
  plan_.memory.work += kThreadBytes * plan_.threads;
  if (options_.draft_tokens > 0) {
    plan_.memory.work += LookupProposer::bytes(LookupProposer::window_for(plan_.context));
  }
  plan_.process = options_.process_bytes;
  plan_head();
  return ok_status();
}

/// The budget, the block that goes next and a block of new tokens have to fit the context.
Status LanguageModel::check_streaming() const {
  const EvictionOptions& eviction = options_.eviction;
  if (eviction.policy != KvPolicy::kStreaming) return ok_status();
  ISTHMUS_RETURN_IF_ERROR(check_eviction(eviction));
  if (eviction.tokens + 2 * kBlockKeys > plan_.context) {
    return invalid_argument("streaming with " + std::to_string(eviction.tokens) +
                            " keys needs a context of " + std::to_string(eviction.tokens + 2 * kBlockKeys) +
                            " tokens; it is " + std::to_string(plan_.context));
  }
  return ok_status();
}

Status LanguageModel::choose_codes() {
  ISTHMUS_ASSIGN_OR_RETURN(
      coded_,
      isthmus::coded_formats(options_.kv_codec, {options_.kv_type, options_.kv_type}, config().layers));
  if (!options_.kv_levels.empty() && (!coded_.empty() || !kv_type_info(options_.kv_type).exact)) {
    return invalid_argument("levels of single blocks go with KV as written, of f32, f16 or bf16");
  }
  if (coded_.empty()) return ok_status();
  if (!kv_type_info(options_.kv_type).exact) {
    return invalid_argument("KV of type " + std::string(kv_type_info(options_.kv_type).name) +
                            " is coded already; codes for full blocks go with f32, f16 and bf16");
  }
  if (options_.eviction.policy == KvPolicy::kWindow) {
    return unsupported("the policy 'window' with coded KV: it takes single keys out of full blocks");
  }
  const bool takes_keys = options_.eviction.on() && options_.eviction.policy != KvPolicy::kStreaming;
  if (takes_keys && run_shape().key_encoding == KeyEncoding::kUnrotated) {
    return unsupported(
        "a policy that gives up keys with keys coded before their rotation; code them rotated, or keep all");
  }
  return ok_status();
}

void LanguageModel::plan_head() {
  if (options_.head == HeadMode::kFull) return;
  const uint64_t bytes = HeadScreen::planned_bytes(*transformer_, &head_off_);
  if (!head_off_.empty()) return;
  if (options_.head == HeadMode::kAuto) {
    const auto head = static_cast<double>(transformer_->head_bytes());
    if (head < kHeadShare * static_cast<double>(transformer_->weight_bytes())) {
      head_off_ = "the output matrix is a small part of the model";
    } else if (plan_.total() + bytes > options_.memory_limit) {
      head_off_ = "the memory limit leaves no room for it";
    }
    if (!head_off_.empty()) return;
  }
  plan_.memory.head = bytes;
}

void LanguageModel::make_head() {
  if (!head_off_.empty()) {
    head_ = std::make_unique<HeadScreen>(head_off_);
    return;
  }
  std::vector<TokenId> text = tokenizer_->encode(head_calibration_text(), Specials::kAsText, true);
  text.resize(std::min(text.size(), kHeadTokens));
  StopPolicy stop;
  stop.token = options_.stop.token;
  head_ = std::make_unique<HeadScreen>(*transformer_, *file_, options_.packed_cache, ledger_, std::move(text),
                                       plan_.context, plan_.threads, std::move(stop));
}

RunShape LanguageModel::pool_shape() const {
  RunShape shape = run_shape();
  const size_t whole = (plan_.context + kBlockKeys - 1) / kBlockKeys * kBlockKeys;
  shape.context =
      options_.kv_tokens != 0 ? options_.kv_tokens : whole * std::max<size_t>(1, options_.sequences);
  return shape;
}

Status LanguageModel::load_text() {
  ISTHMUS_ASSIGN_OR_RETURN(text_charge_, ledger_.charge(MemoryKind::kText, plan_.text));
  ISTHMUS_ASSIGN_OR_RETURN(tokenizer_, Tokenizer::from_gguf(*file_));
  if (tokenizer_->vocab_size() > config().vocab) {
    return corrupt("the tokenizer has " + std::to_string(tokenizer_->vocab_size()) +
                   " tokens, the embedding only " + std::to_string(config().vocab));
  }
  ISTHMUS_RETURN_IF_ERROR(read_template());
  return file_->intact();
}

Status LanguageModel::read_template() {
  std::string source = options_.chat_template;
  if (source.empty()) {
    ISTHMUS_ASSIGN_OR_RETURN(const std::string_view own, file_->get_string_or("tokenizer.chat_template", ""));
    source = own;
  }
  if (source.empty()) {
    template_error_ = failed_precondition(
        "this model has no chat template; pass one with --template (a file, or chatml, llama3, gemma or "
        "phi3), or "
        "use --raw");
    return ok_status();
  }
  auto parsed = is_builtin(source) ? ChatTemplate::builtin(source) : ChatTemplate::parse(source);
  if (parsed.ok()) {
    template_.emplace(std::move(*parsed));
  } else if (options_.chat_template.empty()) {
    // The model can still be used without its template; who needs it is told why there is none.
    template_error_ = parsed.status().with_context("the model's chat template");
  } else {
    return parsed.status().with_context("chat template");
  }
  return ok_status();
}

Result<const ChatTemplate*> LanguageModel::chat_template() const {
  if (!template_) return template_error_;
  return &*template_;
}

RunShape LanguageModel::run_shape() const {
  RunShape shape;
  shape.context = plan_.context;
  const size_t held = std::max(plan_.context, options_.kv_tokens);
  const size_t draft_step = options_.draft_tokens + 1;
  shape.max_tokens = std::min(std::max(draft_step, options_.step_tokens), held);
  shape.max_outputs = std::max(draft_step, options_.step_outputs);
  shape.k_type = options_.kv_type;
  shape.v_type = options_.kv_type;
  shape.coded = coded_;
  shape.residual = options_.kv_codec.residual;
  for (const int bits : options_.kv_levels) shape.levels.push_back(level_format(bits));
  if (options_.kv_codec.keys == KeyForm::kUnrotated) shape.key_encoding = KeyEncoding::kUnrotated;
  const bool streaming = options_.eviction.policy == KvPolicy::kStreaming;
  if (streaming && shape.key_encoding == KeyEncoding::kAbsolute) {
    shape.key_encoding = KeyEncoding::kBlockRelative;
  }
  shape.coding_put_off = options_.eviction.on() && !streaming;
  return shape;
}

Result<std::shared_ptr<BlockPool>> LanguageModel::make_pool(const KvCodec& codec) {
  RunShape shape = run_shape();
  ISTHMUS_ASSIGN_OR_RETURN(
      shape.coded, isthmus::coded_formats(codec, {options_.kv_type, options_.kv_type}, config().layers));
  shape.residual = codec.residual;
  if (codec.keys == KeyForm::kUnrotated) shape.key_encoding = KeyEncoding::kUnrotated;
  return transformer_->make_pool(shape, ledger_);
}

Compute LanguageModel::prompt_compute() const {
  if (options_.precision == Precision::kBf16) return Compute::kBf16;
  return options_.precision == Precision::kFast ? Compute::kInt8 : generation_compute();
}

Compute LanguageModel::generation_compute() const {
  return options_.precision == Precision::kReference ? Compute::kF32 : Compute::kInt16;
}

Result<std::unique_ptr<Workspace>> LanguageModel::make_workspace() {
  return Workspace::create(*transformer_, run_shape(), pool_->size(), ledger_);
}

}  // namespace isthmus
