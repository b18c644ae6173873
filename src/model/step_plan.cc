#include "model/step_plan.h"

#include <algorithm>
#include <string>

namespace isthmus {

Status StepPlan::check(const ForwardStep& step) const {
  size_t tokens = 0;
  for (const auto& sequence : step.sequences) tokens += sequence.tokens.size();
  if (tokens == 0) return invalid_argument("a step without tokens");
  if (tokens > ws_.shape().max_tokens) {
    return invalid_argument("a step of " + std::to_string(tokens) + " tokens, the workspace holds " +
                            std::to_string(ws_.shape().max_tokens));
  }
  if (step.outputs.size() > ws_.shape().max_outputs) {
    return invalid_argument(std::to_string(step.outputs.size()) + " rows of logits, the workspace holds " +
                            std::to_string(ws_.shape().max_outputs));
  }
  for (const uint32_t index : step.outputs) {
    if (index >= tokens)
      return invalid_argument("output " + std::to_string(index) + " is not a token of the step");
  }
  if (step.layers > model_.config().layers || (step.layers > 0 && !step.outputs.empty())) {
    return invalid_argument("a step through " + std::to_string(step.layers) + " of " +
                            std::to_string(model_.config().layers) + " layers, with " +
                            std::to_string(step.outputs.size()) + " outputs");
  }
  const bool exact_weights = model_.compute() == Compute::kF32;
  if (exact_weights != (step.compute == Compute::kF32)) {
    return invalid_argument("the step's arithmetic does not fit the way the weights are packed");
  }
  if (step.compute == Compute::kBf16 && !have_bf16()) {
    return unsupported("products of bfloat16 need tiles, which the instruction set in use does not have");
  }
  return ok_status();
}

Status StepPlan::prepare(const ForwardStep& step) {
  ISTHMUS_RETURN_IF_ERROR(check(step));
  ws_.tokens_.clear();
  ws_.slots_.clear();
  ws_.owner_.clear();
  ws_.positions_.clear();
  ws_.tree_bits_.clear();
  ws_.sequences_.clear();
  ws_.records_.clear();
  StepState& s = ws_.state_;
  s.views_full.clear();
  s.views_local.clear();
  // Views point into tree_bits_, which must not move while they are filled.
  size_t words = 0;
  for (const auto& sequence : step.sequences) {
    if (!sequence.parents.empty()) words += sequence.tokens.size() * ((sequence.tokens.size() + 63) / 64);
  }
  ws_.tree_bits_.reserve(words);
  for (size_t i = 0; i < step.sequences.size(); ++i)
    ISTHMUS_RETURN_IF_ERROR(add_sequence(step.sequences[i], i));
  for (KvSequence* sequence : ws_.sequences_) sequence->set_pending_compute(step.compute);
  s.tokens = ws_.tokens_.size();
  s.compute = step.compute;
  s.key_encoding = step.sequences[0].kv->key_encoding();
  s.slots = ws_.slots_;
  s.owner = ws_.owner_;
  s.sequences = ws_.sequences_;
  s.records = ws_.records_;
  fill_rope_rows();
  fill_attention(step);
  return ok_status();
}

Status StepPlan::add_sequence(const ForwardSequence& sequence, size_t index) {
  if (sequence.kv == nullptr || sequence.tokens.empty()) {
    return invalid_argument("sequence " + std::to_string(index) + " has no KV or no tokens");
  }
  if (sequence.slots.empty() && sequence.kv->pending() != sequence.tokens.size()) {
    return failed_precondition("sequence " + std::to_string(index) + " has room for " +
                               std::to_string(sequence.kv->pending()) + " pending tokens, the step brings " +
                               std::to_string(sequence.tokens.size()));
  }
  ISTHMUS_RETURN_IF_ERROR(check_encoding(sequence, index));
  ISTHMUS_RETURN_IF_ERROR(check_slots(sequence, index));
  ws_.sequences_.push_back(sequence.kv);
  ws_.records_.push_back(sequence.queries);
  const size_t first_token = ws_.tokens_.size();
  ISTHMUS_RETURN_IF_ERROR(place_tokens(sequence, index));
  fill_views(sequence, first_token);
  return ok_status();
}

Status StepPlan::check_encoding(const ForwardSequence& sequence, size_t index) const {
  const KeyEncoding encoding = sequence.kv->key_encoding();
  if (index > 0 && encoding != ws_.sequences_[0]->key_encoding()) {
    return invalid_argument("sequence " + std::to_string(index) +
                            " stores its keys in another encoding than sequence 0");
  }
  if (encoding != KeyEncoding::kAbsolute && !sequence.parents.empty()) {
    return unsupported("a token tree needs keys that are rotated by absolute positions");
  }
  if (sequence.queries != nullptr && (encoding != KeyEncoding::kAbsolute || !sequence.parents.empty())) {
    return unsupported(
        "queries are recorded for keys rotated by absolute positions, and not for token trees");
  }
  return ok_status();
}

/// Reopened tokens, then all pending ones.
Status StepPlan::check_slots(const ForwardSequence& sequence, size_t index) const {
  if (sequence.slots.empty()) return ok_status();
  const KvSequence& kv = *sequence.kv;
  if (sequence.slots.size() != sequence.tokens.size() || !sequence.parents.empty() ||
      sequence.queries != nullptr || kv.key_encoding() != KeyEncoding::kAbsolute) {
    return invalid_argument("sequence " + std::to_string(index) +
                            " computes tokens anew: it needs a place for each, no token tree, no record of "
                            "queries, and keys rotated by absolute positions");
  }
  size_t pending = 0;
  for (size_t i = 0; i < sequence.slots.size(); ++i) {
    const size_t slot = sequence.slots[i];
    const bool committed = slot < kv.length();
    const bool ascends = i == 0 || slot > sequence.slots[i - 1];
    if (!ascends || (committed ? !kv.is_open(slot) : slot != kv.length() + pending++)) {
      return failed_precondition("sequence " + std::to_string(index) + ": token " + std::to_string(slot) +
                                 " is not open to be written");
    }
  }
  if (pending == kv.pending()) return ok_status();
  return failed_precondition("sequence " + std::to_string(index) + " has " + std::to_string(kv.pending()) +
                             " pending tokens, the step brings " + std::to_string(pending));
}

/// Position of token `i` of a sequence whose first token is the step's token `first`.
Result<size_t> StepPlan::position_of(const ForwardSequence& sequence, size_t i, size_t first) const {
  const KvSequence& kv = *sequence.kv;
  if (!sequence.slots.empty()) return kv.position(sequence.slots[i]);
  if (sequence.parents.empty()) return kv.position(kv.length() + i);
  const int32_t parent = sequence.parents[i];
  if (parent < -1 || parent >= static_cast<int32_t>(i)) {
    return invalid_argument("token " + std::to_string(i) + " of the tree names parent " +
                            std::to_string(parent));
  }
  if (parent < 0) return kv.position(kv.length());
  return static_cast<size_t>(ws_.positions_[first + static_cast<size_t>(parent)]) + 1;
}

Status StepPlan::place_tokens(const ForwardSequence& sequence, size_t index) {
  const size_t length = sequence.kv->length();
  const size_t first = ws_.positions_.size();
  if (!sequence.parents.empty() && sequence.parents.size() != sequence.tokens.size()) {
    return invalid_argument("a token tree of " + std::to_string(sequence.tokens.size()) + " tokens with " +
                            std::to_string(sequence.parents.size()) + " parents");
  }
  for (size_t i = 0; i < sequence.tokens.size(); ++i) {
    const TokenId token = sequence.tokens[i];
    if (token < 0 || static_cast<size_t>(token) >= model_.config().vocab) {
      return invalid_argument("token " + std::to_string(token) + " is outside the vocabulary of " +
                              std::to_string(model_.config().vocab));
    }
    ISTHMUS_ASSIGN_OR_RETURN(const size_t position, position_of(sequence, i, first));
    ws_.tokens_.push_back(token);
    ws_.slots_.push_back(sequence.slots.empty() ? static_cast<uint32_t>(length + i) : sequence.slots[i]);
    ws_.owner_.push_back(static_cast<uint32_t>(index));
    ws_.positions_.push_back(static_cast<int32_t>(position));
  }
  return ok_status();
}

void StepPlan::fill_views(const ForwardSequence& sequence, size_t first_token) {
  const size_t n = sequence.tokens.size();
  const auto length = static_cast<uint32_t>(sequence.kv->length());
  const size_t words = (n + 63) / 64;
  const size_t window = model_.config().sliding_window;
  for (size_t i = 0; i < n; ++i) {
    const int32_t position = ws_.positions_[first_token + i];
    QueryView view{0, ws_.slots_[first_token + i] + 1, position, nullptr, 0};
    if (!sequence.parents.empty()) {
      // Its parent's ancestors, and itself.
      const size_t row = ws_.tree_bits_.size();
      ws_.tree_bits_.resize(row + words, 0);
      const int32_t parent = sequence.parents[i];
      if (parent >= 0) {
        const size_t from = row - (i - static_cast<size_t>(parent)) * words;
        std::copy_n(ws_.tree_bits_.begin() + static_cast<ptrdiff_t>(from), words,
                    ws_.tree_bits_.begin() + static_cast<ptrdiff_t>(row));
      }
      ws_.tree_bits_[row + i / 64] |= uint64_t{1} << (i % 64);
      view.tree_mask = ws_.tree_bits_.data() + row;
      view.tree_begin = length;
    }
    ws_.state_.views_full.push_back(view);
    const auto seen = static_cast<size_t>(position) + 1;
    view.first_key =
        window != 0 && seen > window ? static_cast<uint32_t>(sequence.kv->first_from(seen - window)) : 0;
    ws_.state_.views_local.push_back(view);
  }
}

void StepPlan::fill_rope_rows() {
  StepState& s = ws_.state_;
  s.rope = &rope_;
  s.rope_local = rope_local_;
  const bool absolute = s.key_encoding == KeyEncoding::kAbsolute;
  const auto fill = [&](const RopeTable& table, std::vector<float>& rows) {
    rows.resize(s.tokens * table.row_floats());
    for (size_t t = 0; t < s.tokens; ++t) {
      const auto place = static_cast<int32_t>(ws_.slots_[t] % kBlockKeys);
      table.row(absolute ? ws_.positions_[t] : place, rows.data() + t * table.row_floats());
    }
  };
  fill(rope_, s.rope_rows);
  if (rope_local_ != nullptr) fill(*rope_local_, s.rope_rows_local);
}

void StepPlan::fill_attention(const ForwardStep& step) {
  StepState& s = ws_.state_;
  const ModelConfig& config = model_.config();
  s.streams.clear();
  s.attention.clear();
  // Reserved first: attention entries hold spans into `streams`.
  s.streams.reserve(config.layers * step.sequences.size() * config.n_kv_heads);
  for (size_t layer = 0; layer < config.layers; ++layer) {
    const auto& views = config.is_local(layer) ? s.views_local : s.views_full;
    size_t first = 0;
    for (const auto& sequence : step.sequences) {
      const size_t at = s.streams.size();
      for (size_t head = 0; head < config.n_kv_heads; ++head) {
        s.streams.push_back(sequence.kv->stream(layer, head));
      }
      const size_t n = sequence.tokens.size();
      s.attention.push_back(
          {first, n, {s.streams.data() + at, config.n_kv_heads}, {views.data() + first, n}});
      first += n;
    }
  }
}

}  // namespace isthmus
