#include "format/gguf.h"
#include "text/vocab.h"

namespace isthmus::tok {
namespace {

// A key that may be absent. Other errors pass through.
template <class T>
Status read_optional(const Result<T>& value, std::optional<T>& out) {
  if (value.ok()) {
    out = value.value();
    return ok_status();
  }
  return value.status().code() == Code::kNotFound ? ok_status() : value.status();
}

struct IdKey {
  std::string_view key;
  std::optional<uint64_t> VocabSpec::*field;
};

// Later entries of the same field are older spellings of the key; they count when the first is absent.
constexpr IdKey kIdKeys[] = {
    {"tokenizer.ggml.bos_token_id", &VocabSpec::bos},
    {"tokenizer.ggml.eos_token_id", &VocabSpec::eos},
    {"tokenizer.ggml.eot_token_id", &VocabSpec::eot},
    {"tokenizer.ggml.eom_token_id", &VocabSpec::eom},
    {"tokenizer.ggml.unknown_token_id", &VocabSpec::unknown},
    {"tokenizer.ggml.fim_pre_token_id", &VocabSpec::fim_prefix},
    {"tokenizer.ggml.prefix_token_id", &VocabSpec::fim_prefix},
    {"tokenizer.ggml.fim_suf_token_id", &VocabSpec::fim_suffix},
    {"tokenizer.ggml.suffix_token_id", &VocabSpec::fim_suffix},
    {"tokenizer.ggml.fim_mid_token_id", &VocabSpec::fim_middle},
    {"tokenizer.ggml.middle_token_id", &VocabSpec::fim_middle},
    {"tokenizer.ggml.fim_pad_token_id", &VocabSpec::fim_pad},
    {"tokenizer.ggml.fim_rep_token_id", &VocabSpec::fim_repo},
    {"tokenizer.ggml.fim_sep_token_id", &VocabSpec::fim_sep},
};

Status read_ids(const GgufFile& file, VocabSpec& spec) {
  for (const auto& [key, field] : kIdKeys) {
    std::optional<uint64_t> id;
    ISTHMUS_RETURN_IF_ERROR(read_optional(file.get_uint(key), id));
    if (!id) continue;
    if (*id >= spec.tokens.size()) {
      return corrupt(std::string(key) + " is " + std::to_string(*id) + "; the vocabulary has " +
                     std::to_string(spec.tokens.size()) + " tokens");
    }
    if (!(spec.*field)) spec.*field = id;
  }
  return ok_status();
}

}  // namespace

Result<VocabSpec> read_vocab_spec(const GgufFile& file) {
  VocabSpec spec;
  ISTHMUS_ASSIGN_OR_RETURN(spec.model, file.get_string("tokenizer.ggml.model"));
  ISTHMUS_ASSIGN_OR_RETURN(spec.pre, file.get_string_or("tokenizer.ggml.pre", ""));
  ISTHMUS_ASSIGN_OR_RETURN(spec.model_name, file.get_string_or("general.name", ""));
  ISTHMUS_ASSIGN_OR_RETURN(spec.tokens, file.get_strings("tokenizer.ggml.tokens"));
  if (file.has("tokenizer.ggml.token_type")) {
    ISTHMUS_ASSIGN_OR_RETURN(spec.kinds, file.get_ints("tokenizer.ggml.token_type"));
  }
  if (spec.model == "llama") {
    ISTHMUS_ASSIGN_OR_RETURN(spec.scores, file.get_floats("tokenizer.ggml.scores"));
  } else if (spec.model == "gpt2") {
    ISTHMUS_ASSIGN_OR_RETURN(spec.merges, file.get_strings("tokenizer.ggml.merges"));
  }
  ISTHMUS_RETURN_IF_ERROR(read_ids(file, spec));
  ISTHMUS_RETURN_IF_ERROR(read_optional(file.get_bool("tokenizer.ggml.add_bos_token"), spec.add_bos));
  ISTHMUS_RETURN_IF_ERROR(read_optional(file.get_bool("tokenizer.ggml.add_eos_token"), spec.add_eos));
  ISTHMUS_RETURN_IF_ERROR(
      read_optional(file.get_bool("tokenizer.ggml.add_space_prefix"), spec.add_space_prefix));
  return spec;
}

}  // namespace isthmus::tok
