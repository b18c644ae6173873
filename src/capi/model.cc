// Loading, planning and the facts of a model.
#include <limits>

#include "capi/border.h"
#include "capi/handles.h"

namespace {

using namespace isthmus;        // NOLINT: this file is a thin border over that namespace
using namespace isthmus::capi;  // NOLINT

constexpr size_t kMostThreads = 4096;
constexpr size_t kMostSequences = 65536;
constexpr size_t kMostTreeTokens = 4096;

isthmus_model_options default_options() {
  const ModelOptions engine;
  isthmus_model_options out{};
  out.struct_size = sizeof(out);
  out.context = engine.context;
  out.sequences = engine.sequences;
  out.threads = engine.threads;
  out.step_tokens = engine.step_tokens;
  out.tree_tokens = engine.step_outputs;
  out.precision = ISTHMUS_PRECISION_DEFAULT;
  out.kv_type = ISTHMUS_KV_F16;
  out.draft_tokens = engine.draft_tokens;
  return out;
}

Status check_range(size_t value, size_t least, size_t most, const char* name) {
  if (value >= least && value <= most) return ok_status();
  return invalid_argument(std::string("options.") + name + " is " + std::to_string(value) + "; it must be " +
                          std::to_string(least) + " to " + std::to_string(most));
}

Precision precision_of(int32_t value) {
  switch (value) {
    case ISTHMUS_PRECISION_FAST:
      return Precision::kFast;
    case ISTHMUS_PRECISION_BF16:
      return Precision::kBf16;
    case ISTHMUS_PRECISION_REFERENCE:
      return Precision::kReference;
    default:
      return Precision::kDefault;
  }
}

KvType kv_type_of(int32_t value) {
  switch (value) {
    case ISTHMUS_KV_BF16:
      return KvType::kBF16;
    case ISTHMUS_KV_F32:
      return KvType::kF32;
    case ISTHMUS_KV_Q8_0:
      return KvType::kQ8;
    default:
      return KvType::kF16;
  }
}

Result<ModelOptions> engine_options(const isthmus_model_options* options) {
  isthmus_model_options known = default_options();
  ISTHMUS_RETURN_IF_ERROR(read_struct(options, &known, "options"));
  ISTHMUS_RETURN_IF_ERROR(check_range(known.sequences, 1, kMostSequences, "sequences"));
  ISTHMUS_RETURN_IF_ERROR(check_range(known.threads, 0, kMostThreads, "threads"));
  ISTHMUS_RETURN_IF_ERROR(
      check_range(known.step_tokens, 1, std::numeric_limits<int32_t>::max(), "step_tokens"));
  ISTHMUS_RETURN_IF_ERROR(check_range(known.tree_tokens, 1, kMostTreeTokens, "tree_tokens"));
  ISTHMUS_RETURN_IF_ERROR(check_range(known.draft_tokens, 0, kMostDraftTokens, "draft_tokens"));
  ISTHMUS_RETURN_IF_ERROR(check_choice(known.precision, ISTHMUS_PRECISION_BF16, "options.precision"));
  ISTHMUS_RETURN_IF_ERROR(check_choice(known.kv_type, ISTHMUS_KV_Q8_0, "options.kv_type"));
  ModelOptions out;
  out.context = known.context;
  out.sequences = known.sequences;
  out.threads = known.threads;
  out.step_tokens = known.step_tokens;
  out.step_outputs = known.tree_tokens;
  out.draft_tokens = known.draft_tokens;
  out.precision = precision_of(known.precision);
  out.kv_type = kv_type_of(known.kv_type);
  if (known.memory_limit > 0) out.memory_limit = known.memory_limit;
  if (known.chat_template != nullptr) out.chat_template = known.chat_template;
  if (known.on_progress != nullptr) {
    out.progress = [call = known.on_progress, user = known.progress_user](uint64_t done, uint64_t total) {
      call(user, done, total);
    };
  }
  return out;
}

isthmus_memory memory_of(const ModelPlan& plan) {
  return {sizeof(isthmus_memory),
          plan.memory.weights,
          plan.memory.kv,
          plan.memory.work,
          plan.text,
          plan.total(),
          0};
}

}  // namespace

void isthmus_model_options_init(isthmus_model_options* options, size_t struct_size) {
  init_struct(default_options(), options, struct_size);
}

isthmus_code isthmus_model_load(const char* path, const isthmus_model_options* options,
                                const isthmus_limits* limits, isthmus_model** model, isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(model, "model"));
    ISTHMUS_RETURN_IF_ERROR(need(path, "path"));
    ISTHMUS_ASSIGN_OR_RETURN(ModelOptions known, engine_options(options));
    ISTHMUS_ASSIGN_OR_RETURN(known.stop, stop_policy(limits));
    ISTHMUS_RETURN_IF_ERROR(known.stop.check());
    auto out = std::make_unique<isthmus_model>();
    ISTHMUS_ASSIGN_OR_RETURN(out->model, LanguageModel::load(path, std::move(known)));
    out->tokenizer_name = out->model->tokenizer().name();
    *model = out.release();
    return ok_status();
  });
}

void isthmus_model_free(isthmus_model* model) { delete model; }

isthmus_code isthmus_model_plan(const char* path, const isthmus_model_options* options,
                                isthmus_memory* memory, isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need(path, "path"));
    ISTHMUS_ASSIGN_OR_RETURN(const ModelOptions known, engine_options(options));
    ISTHMUS_ASSIGN_OR_RETURN(const ModelPlan plan, LanguageModel::plan(path, known));
    return write_struct(memory_of(plan), memory, "memory");
  });
}

isthmus_code isthmus_model_memory(const isthmus_model* model, isthmus_memory* memory, isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need(model, "model"));
    isthmus_memory out = memory_of(model->model->memory_plan());
    out.used = model->model->ledger().used();
    return write_struct(out, memory, "memory");
  });
}

isthmus_code isthmus_model_get_facts(const isthmus_model* model, isthmus_model_facts* facts,
                                     isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need(model, "model"));
    const ModelConfig& config = model->model->config();
    const Tokenizer& tokenizer = model->model->tokenizer();
    isthmus_model_facts out{};
    out.architecture = config.architecture.c_str();
    out.name = config.name.c_str();
    out.tokenizer = model->tokenizer_name.c_str();
    out.layers = config.layers;
    out.width = config.d_model;
    out.heads = config.n_heads;
    out.kv_heads = config.n_kv_heads;
    out.head_dim = config.head_dim;
    out.vocab = config.vocab;
    out.trained_context = config.context;
    out.context = model->model->context();
    out.threads = model->model->memory_plan().threads;
    out.bos = tokenizer.bos().value_or(-1);
    out.eos = tokenizer.eos().value_or(-1);
    out.adds_bos = tokenizer.adds_bos() ? 1 : 0;
    out.adds_eos = tokenizer.adds_eos() ? 1 : 0;
    out.has_chat_template = model->model->chat_template().ok() ? 1 : 0;
    return write_struct(out, facts, "facts");
  });
}

isthmus_code isthmus_model_stop_tokens(const isthmus_model* model, const isthmus_token** tokens,
                                       size_t* count, isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(tokens, "tokens"));
    ISTHMUS_RETURN_IF_ERROR(need_out(count, "count"));
    ISTHMUS_RETURN_IF_ERROR(need(model, "model"));
    const auto& stops = model->model->tokenizer().stop_tokens();
    *tokens = stops.data();
    *count = stops.size();
    return ok_status();
  });
}
