// Session: texts put together of parts, and parts of a text computed anew.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <numeric>

#include "engine/session.h"

namespace isthmus {
namespace {

using PartsClock = std::chrono::steady_clock;

/// The layer whose values tell which tokens deviate: CacheBlend's second.
size_t deviation_layer(const ModelConfig& config) { return std::min<size_t>(1, config.layers - 1); }

/// Values [token][kv heads * head_dim] of one layer.
class LayerValues {
 public:
  LayerValues(const KvSequence& kv, size_t layer, std::span<const uint32_t> tokens)
      : width_(kv.kv_heads() * kv.pool()->config().head_dim), values_(tokens.size() * width_) {
    const BlockPoolConfig& config = kv.pool()->config();
    for (size_t head = 0; head < kv.kv_heads(); ++head) {
      const KvStreamRef stream = kv.stream(layer, head);
      for (size_t i = 0; i < tokens.size(); ++i) {
        const KvBlockRef& block = stream.blocks[tokens[i] / kBlockKeys];
        kv_read(block.v_type, KvPart::kValue, block.v, tokens[i] % kBlockKeys,
                values_.data() + i * width_ + head * config.head_dim, config.head_dim);
      }
    }
  }

  /// Squared distance of token i to what it is in `other`.
  double distance(const LayerValues& other, size_t i) const {
    double sum = 0;
    for (size_t d = i * width_; d < (i + 1) * width_; ++d) {
      const double by = static_cast<double>(values_[d]) - static_cast<double>(other.values_[d]);
      sum += by * by;
    }
    return sum;
  }

 private:
  size_t width_;
  std::vector<float> values_;
};

Status check_parts(std::span<const TextPart> parts, size_t most_tokens, size_t most_positions) {
  size_t tokens = 0;
  size_t next = 0;
  for (const TextPart& part : parts) {
    if (part.position < next)
      return invalid_argument("compose: parts overlap at position " + std::to_string(part.position));
    if (part.kv != nullptr && part.kv->length() < part.tokens.size()) {
      return invalid_argument("compose: a part of " + std::to_string(part.tokens.size()) +
                              " tokens with the KV of " + std::to_string(part.kv->length()));
    }
    tokens += part.tokens.size();
    next = part.position + part.tokens.size();
  }
  if (tokens > most_tokens) {
    return resource_exhausted("the parts have " + std::to_string(tokens) + " tokens, the context holds " +
                              std::to_string(most_tokens));
  }
  if (next > most_positions) {
    return resource_exhausted("the parts reach position " + std::to_string(next) + " of " +
                              std::to_string(most_positions));
  }
  return ok_status();
}

std::string trim_number(double value) {
  std::string out = std::to_string(value);
  out.erase(out.find_last_not_of('0') + 1);
  if (out.back() == '.') out.pop_back();
  return out;
}

}  // namespace

Result<RepairOptions> parse_repair(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const std::string number(colon == std::string_view::npos ? "" : text.substr(colon + 1));
  RepairOptions out;
  if (text == "none") return out;
  if (text == "all") {
    out.kind = RepairKind::kAll;
    return out;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  const bool read = !number.empty() && error == std::errc() && end == number.data() + number.size();
  if (kind == "first" && read && value >= 1 && value <= 65536 && value == std::floor(value)) {
    out.kind = RepairKind::kFirst;
    out.first = static_cast<size_t>(value);
    return out;
  }
  if (kind == "deviating" && read && value > 0 && value <= 1) {
    out.kind = RepairKind::kDeviating;
    out.share = value;
    return out;
  }
  return invalid_argument("'" + std::string(text) +
                          "' is no repair: none, first:16 (tokens of each part), deviating:0.1 "
                          "(share of all tokens, at most 1) or all");
}

std::string repair_name(const RepairOptions& repair) {
  switch (repair.kind) {
    case RepairKind::kNone:
      return "none";
    case RepairKind::kFirst:
      return "first:" + std::to_string(repair.first);
    case RepairKind::kDeviating:
      return "deviating:" + trim_number(repair.share);
    case RepairKind::kAll:
      return "all";
  }
  return "unknown";
}

Status Session::recompute_last(const StopPolicy& stop) {
  if (tokens_.empty()) return failed_precondition("recompute_last: no text is held");
  if (slid() > 0 || kv_.pruned()) return failed_precondition("recompute_last: keys were given up");
  forget_tried();
  // A coded block can only be left whole.
  const size_t kept = kv_.reachable(tokens_.size() - 1);
  const std::vector<TokenId> last(tokens_.begin() + static_cast<ptrdiff_t>(kept), tokens_.end());
  ISTHMUS_RETURN_IF_ERROR(truncate(kept));
  return append(last, Purpose::kPrompt, stop);
}

void Session::adopt(KvSequence kv, std::vector<TokenId> tokens) {
  (void)truncate(0);
  kv_ = std::move(kv);
  tokens_ = std::move(tokens);
}

KvSequence Session::take_kv() {
  KvSequence out = std::move(kv_);
  kv_ = model_->make_sequence();
  (void)truncate(0);
  return out;
}

Status Session::recompute(std::span<const uint32_t> tokens, const StopPolicy& stop) {
  forget_tried();
  return compute_in_place(tokens, 0, false, stop);
}

/// `layers` as in ForwardStep; `newest`: the last of `tokens` is the text's last one, and its logits are
/// wanted.
Status Session::compute_in_place(std::span<const uint32_t> tokens, size_t layers, bool newest,
                                 const StopPolicy& stop) {
  std::vector<TokenId> values;
  while (!tokens.empty()) {
    ISTHMUS_RETURN_IF_ERROR(stop.check());
    const size_t n = std::min(workspace_->shape().max_tokens, tokens.size());
    const auto part = tokens.first(n);
    ISTHMUS_RETURN_IF_ERROR(kv_.reopen(part));
    values.clear();
    for (const uint32_t token : part) values.push_back(tokens_[token]);
    const ForwardSequence sequence{&kv_, values, {}, nullptr, part};
    const auto last = static_cast<uint32_t>(n - 1);
    ForwardStep step;
    step.sequences = {&sequence, 1};
    step.compute = model_->prompt_compute();
    step.layers = layers;
    if (newest && n == tokens.size()) {
      step.outputs = {&last, 1};
      step.logits = logits_.data();
      best_ = 0;
      row_ = 0;
    }
    const Status status = model_->transformer().forward(step, *workspace_, model_->pool());
    kv_.commit(0);
    ISTHMUS_RETURN_IF_ERROR(status);
    tokens = tokens.subspan(n);
  }
  return ok_status();
}

Result<ComposeFigures> Session::compose(std::span<const TextPart> parts, const RepairOptions& repair,
                                        const StopPolicy& stop, bool code) {
  const auto start = PartsClock::now();
  if (endless()) return unsupported("a text without end cannot be put together of parts");
  ISTHMUS_RETURN_IF_ERROR(check_parts(parts, model_->context(), most_positions()));
  ISTHMUS_RETURN_IF_ERROR(truncate(0));
  kv_.put_off_coding();
  ComposeFigures out;
  const Status status = put_together(parts, repair, stop, out);
  if (!status.ok()) (void)truncate(0);
  if (eviction_ == nullptr && code) kv_.code_now();
  ISTHMUS_RETURN_IF_ERROR(status);
  out.seconds = std::chrono::duration<double>(PartsClock::now() - start).count();
  return out;
}

Status Session::put_together(std::span<const TextPart> parts, const RepairOptions& repair,
                             const StopPolicy& stop, ComposeFigures& out) {
  std::vector<uint32_t> anew;    // to be computed whatever the repair
  std::vector<uint32_t> copied;  // may be repaired
  for (const TextPart& part : parts) {
    ISTHMUS_RETURN_IF_ERROR(kv_.jump_to(part.position));
    if (part.tokens.empty()) continue;
    const auto at = static_cast<uint32_t>(kv_.length());
    if (part.kv != nullptr) {
      ISTHMUS_RETURN_IF_ERROR(kv_.append_copy(*part.kv, 0, part.tokens.size(), part.exactness));
      ISTHMUS_RETURN_IF_ERROR(turn_part(at, part));
    } else {
      ISTHMUS_RETURN_IF_ERROR(kv_.append_blank(part.tokens.size(), Exactness::kExact));
    }
    const size_t repaired = repair.kind == RepairKind::kFirst ? repair.first
                            : repair.kind == RepairKind::kAll ? SIZE_MAX
                                                              : 0;
    for (uint32_t i = 0; i < part.tokens.size(); ++i) {
      const bool wanted = part.kv == nullptr || (at > 0 && i < repaired);
      if (wanted) anew.push_back(at + i);
      if (part.kv == nullptr) continue;
      ++out.copied;
      out.repaired += wanted ? 1 : 0;
      if (at > 0) copied.push_back(at + i);
    }
    tokens_.insert(tokens_.end(), part.tokens.begin(), part.tokens.end());
  }
  out.tokens = tokens_.size();
  double looked = 0;  // layers through which every copied token went
  if (repair.kind == RepairKind::kDeviating && !copied.empty()) {
    const auto wanted = static_cast<size_t>(std::ceil(repair.share * static_cast<double>(copied.size())));
    ISTHMUS_RETURN_IF_ERROR(choose_deviating(copied, wanted, anew, stop));
    out.repaired = wanted;
    looked = static_cast<double>(deviation_layer(model_->config()) + 1);
  }
  const auto layers = static_cast<double>(model_->config().layers);
  if (out.copied > 0) {
    const double work =
        static_cast<double>(out.repaired) * layers + looked * static_cast<double>(copied.size());
    out.recomputed = work / (layers * static_cast<double>(out.copied));
  }
  const bool newest = !anew.empty() && anew.back() + 1 == tokens_.size();
  ISTHMUS_RETURN_IF_ERROR(compute_in_place(anew, 0, newest, stop));
  logits_valid_ = newest;
  return ok_status();
}

Status Session::turn_part(uint32_t at, const TextPart& part) {
  if (part.turn == 0) return ok_status();
  std::vector<uint32_t> tokens(part.tokens.size());
  std::iota(tokens.begin(), tokens.end(), at);
  ISTHMUS_RETURN_IF_ERROR(kv_.reopen(tokens));
  model_->pool().run([&](Worker& worker) {
    const auto [first, last] = worker.range(kv_.layers());
    for (size_t layer = first; layer < last; ++layer) {
      kv_.turn_keys(layer, at, tokens.size(), model_->transformer().rope(layer), part.turn);
    }
  });
  kv_.commit(0);
  return ok_status();
}

/// Runs all tokens through the first layers and adds the `wanted` copied ones whose values change most to
/// `anew`.
Status Session::choose_deviating(std::span<const uint32_t> copied, size_t wanted, std::vector<uint32_t>& anew,
                                 const StopPolicy& stop) {
  const size_t layer = deviation_layer(model_->config());
  const uint64_t floats = copied.size() * model_->config().kv_dim() * 2;
  ISTHMUS_ASSIGN_OR_RETURN(const Charge charge,
                           model_->ledger().charge(MemoryKind::kWork, floats * sizeof(float)));
  const LayerValues before(kv_, layer, copied);
  std::vector<uint32_t> all(anew);
  all.insert(all.end(), copied.begin(), copied.end());
  std::sort(all.begin(), all.end());
  ISTHMUS_RETURN_IF_ERROR(compute_in_place(all, layer + 1, false, stop));
  const LayerValues after(kv_, layer, copied);
  std::vector<double> distance(copied.size());
  for (size_t i = 0; i < copied.size(); ++i) distance[i] = before.distance(after, i);
  std::vector<uint32_t> order(copied.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return distance[a] > distance[b]; });
  for (size_t i = 0; i < wanted; ++i) anew.push_back(copied[order[i]]);
  std::sort(anew.begin(), anew.end());
  return ok_status();
}

}  // namespace isthmus
