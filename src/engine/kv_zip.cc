#include "engine/kv_zip.h"

#include <algorithm>
#include <limits>
#include <string>

#include "kv/key_scores.h"

namespace isthmus {
namespace {

constexpr size_t kMostPart = 512;  // tokens of the text that are repeated at once
constexpr size_t kLeastPart = 8;
constexpr float kKept = std::numeric_limits<float>::infinity();
constexpr size_t kQueryTokens = 64;  // tokens of a step, whose queries are kept until they are asked
constexpr std::string_view kRequest = "\n\nRepeat the previous text exactly.\n\n";

class KvZip {
 public:
  KvZip(LanguageModel& model, const AttentionGeometry& geometry, const KvSequence& kv, Workspace& workspace,
        const StopPolicy& stop)
      : model_(model),
        geometry_(geometry),
        kv_(kv),
        workspace_(workspace),
        stop_(stop),
        record_(geometry, kQueryTokens, false),
        request_(model.tokenizer().encode(kRequest, Specials::kAsText, false)) {
    for (size_t layer = 0; layer < geometry.layers; ++layer) {
      if (geometry.pruned[layer]) layers_.push_back(layer);
    }
  }

  Result<std::vector<std::vector<float>>> run(std::span<const TokenId> text) {
    ISTHMUS_ASSIGN_OR_RETURN(const size_t most, part_size(text.size()));
    ISTHMUS_ASSIGN_OR_RETURN(
        const Charge charge,
        model_.ledger().charge(MemoryKind::kWork, QueryRecord::bytes(geometry_, kQueryTokens, false)));
    std::vector<std::vector<float>> out;
    for (const size_t layer : layers_) {
      for (size_t head = 0; head < geometry_.n_kv_heads; ++head) {
        out.emplace_back(kv_.held_keys(layer, head), kKept);
      }
    }
    for (size_t first = kv_.pruned_until(); first < text.size(); first += most) {
      const size_t count = std::min(most, text.size() - first);
      ISTHMUS_RETURN_IF_ERROR(repeat(text.subspan(first, count), first, out));
    }
    return out;
  }

 private:
  Result<size_t> part_size(size_t length) const {
    // A fork takes a copy of the last block where that is part full; whole blocks are shared.
    const size_t streams = kv_.layers() * kv_.kv_heads();
    const size_t held = length / kBlockKeys * kBlockKeys + kv_.pool()->free_blocks() / streams * kBlockKeys;
    const size_t most = std::min(model_.context(), held);
    const size_t room = most - std::min(most, length);
    if (room < request_.size() + kLeastPart) {
      return resource_exhausted("kvzip repeats the text behind itself: room for " +
                                std::to_string(request_.size() + kLeastPart) +
                                " more tokens is needed, there is room for " + std::to_string(room));
    }
    return std::min(kMostPart, room - request_.size());
  }

  /// Reads the request and the part behind the text; raises the scores of the part's keys.
  Status repeat(std::span<const TokenId> part, size_t first, std::vector<std::vector<float>>& out) {
    KvSequence kv = kv_.fork();
    std::vector<TokenId> tokens(request_.begin(), request_.end());
    tokens.insert(tokens.end(), part.begin(), part.end());
    std::vector<std::vector<float>> scores(out.size(), std::vector<float>(part.size()));
    const size_t most = std::min(kQueryTokens, workspace_.shape().max_tokens);
    for (size_t at = 0; at < tokens.size(); at += most) {
      ISTHMUS_RETURN_IF_ERROR(stop_.check());
      const auto step = std::span<const TokenId>(tokens).subspan(at, std::min(most, tokens.size() - at));
      ISTHMUS_RETURN_IF_ERROR(read(kv, step));
      ISTHMUS_RETURN_IF_ERROR(ask(kv, step.size(), first, scores));
    }
    for (size_t s = 0; s < out.size(); ++s) {
      const size_t removed = kv_.length() - out[s].size();
      std::copy(scores[s].begin(), scores[s].end(), out[s].begin() + static_cast<ptrdiff_t>(first - removed));
    }
    return ok_status();
  }

  Status read(KvSequence& kv, std::span<const TokenId> tokens) {
    ISTHMUS_RETURN_IF_ERROR(kv.grow(tokens.size()));
    const ForwardSequence sequence{&kv, tokens, {}, &record_};
    ForwardStep step;
    step.sequences = {&sequence, 1};
    step.compute = model_.prompt_compute();
    ISTHMUS_RETURN_IF_ERROR(model_.transformer().forward(step, workspace_, model_.pool()));
    kv.commit(tokens.size());
    return ok_status();
  }

  Status ask(const KvSequence& kv, size_t queries, size_t first, std::vector<std::vector<float>>& scores) {
    const size_t heads = geometry_.n_kv_heads;
    std::vector<Status> failures(model_.pool().size());
    model_.pool().run([&](Worker& worker) {
      for (size_t s = worker.index(); s < scores.size(); s += worker.count()) {
        Status status = raise_repeated(geometry_, kv, record_, layers_[s / heads], s % heads, queries, first,
                                       kv_.length(), scores[s]);
        if (!status.ok()) failures[worker.index()] = std::move(status);
      }
    });
    for (Status& status : failures) ISTHMUS_RETURN_IF_ERROR(std::move(status));
    return ok_status();
  }

  LanguageModel& model_;
  const AttentionGeometry& geometry_;
  const KvSequence& kv_;
  Workspace& workspace_;
  const StopPolicy& stop_;
  QueryRecord record_;
  std::vector<TokenId> request_;
  std::vector<size_t> layers_;
};

}  // namespace

Result<std::vector<std::vector<float>>> kvzip_scores(LanguageModel& model, const AttentionGeometry& geometry,
                                                     const KvSequence& kv, std::span<const TokenId> text,
                                                     Workspace& workspace, const StopPolicy& stop) {
  if (kv.length() != text.size()) return failed_precondition("kvzip repeats the text that was read");
  return KvZip(model, geometry, kv, workspace, stop).run(text);
}

}  // namespace isthmus
