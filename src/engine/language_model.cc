#include "engine/language_model.h"

#include <algorithm>

#include "os/cpu.h"

namespace isthmus {
namespace {

// An estimate of what tokenizer and parsed metadata take per vocabulary entry; not yet fitted to
// measurements.
constexpr uint64_t kTextBytesPerToken = 220;

Compute packing_of(Precision precision) {
  return precision == Precision::kReference ? Compute::kF32 : Compute::kInt16;
}

bool is_builtin(const std::string& name) {
  const auto names = ChatTemplate::builtin_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Result<std::shared_ptr<LanguageModel>> LanguageModel::load(const std::string& path, ModelOptions options) {
  std::shared_ptr<LanguageModel> model(new LanguageModel(std::move(options)));
  ISTHMUS_RETURN_IF_ERROR(model->open(path).with_context(path));
  const ModelPlan& plan = model->plan_;
  if (plan.total() > model->options_.memory_limit) {
    return resource_exhausted(
        path + ": needs " + format_bytes(plan.total()) + " (weights " + format_bytes(plan.memory.weights) +
        ", KV cache of " + std::to_string(plan.context) + " tokens " + format_bytes(plan.memory.kv) +
        ", work buffers " + format_bytes(plan.memory.work) + ", tokenizer " + format_bytes(plan.text) +
        "), the memory limit is " + format_bytes(model->options_.memory_limit));
  }
  ISTHMUS_RETURN_IF_ERROR(model->load_text().with_context(path));
  model->pool_ = std::make_unique<ThreadPool>(plan.threads);
  ISTHMUS_RETURN_IF_ERROR(
      model->transformer_->load(*model->pool_, model->ledger_, model->options_.progress, model->options_.stop)
          .with_context(path));
  RunShape shape = model->run_shape();
  shape.context *= std::max<size_t>(1, model->options_.sequences);
  ISTHMUS_ASSIGN_OR_RETURN(model->blocks_, model->transformer_->make_pool(shape, model->ledger_));
  return model;
}

Result<ModelPlan> LanguageModel::plan(const std::string& path, const ModelOptions& options) {
  LanguageModel model(options);
  ISTHMUS_RETURN_IF_ERROR(model.open(path).with_context(path));
  return model.plan_;
}

Status LanguageModel::open(const std::string& path) {
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
  plan_.memory = transformer_->plan(run_shape(), plan_.threads);
  plan_.memory.kv *= std::max<size_t>(1, options_.sequences);
  plan_.text = kTextBytesPerToken * config().vocab;
  return ok_status();
}

Status LanguageModel::load_text() {
  ISTHMUS_ASSIGN_OR_RETURN(text_charge_, ledger_.charge(MemoryKind::kText, plan_.text));
  ISTHMUS_ASSIGN_OR_RETURN(tokenizer_, Tokenizer::from_gguf(*file_));
  if (tokenizer_->vocab_size() > config().vocab) {
    return corrupt("the tokenizer has " + std::to_string(tokenizer_->vocab_size()) +
                   " tokens, the embedding only " + std::to_string(config().vocab));
  }
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
  shape.max_tokens = std::min(std::max<size_t>(1, options_.step_tokens), plan_.context);
  shape.max_outputs = std::max<size_t>(1, options_.step_outputs);
  shape.k_type = options_.kv_type;
  shape.v_type = options_.kv_type;
  return shape;
}

Compute LanguageModel::prompt_compute() const {
  return options_.precision == Precision::kFast ? Compute::kInt8 : generation_compute();
}

Compute LanguageModel::generation_compute() const {
  return options_.precision == Precision::kReference ? Compute::kF32 : Compute::kInt16;
}

Result<std::unique_ptr<Workspace>> LanguageModel::make_workspace() {
  return Workspace::create(*transformer_, run_shape(), pool_->size(), ledger_);
}

}  // namespace isthmus
