// What stands behind the opaque types of isthmus.h. Each handle owns its parts and shares the model;
// SessionUse refuses a second call on a session that is in one.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"
#include "engine/generate.h"
#include "engine/language_model.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "isthmus/isthmus.h"
#include "text/tokenizer.h"

struct isthmus_error {
  isthmus::Code code = isthmus::Code::kOk;
  std::unique_ptr<std::string> message;  // null only in the error of last resort: no memory
};

struct isthmus_cancel {
  isthmus::CancelSource source;
};

struct isthmus_model {
  std::shared_ptr<isthmus::LanguageModel> model;
  std::string tokenizer_name;
};

struct isthmus_decoder {
  std::shared_ptr<isthmus::LanguageModel> model;
  uint32_t flags = 0;
  std::optional<isthmus::StreamDecoder> decoder;
  std::string text;  // what the last call gave out
};

struct isthmus_session {
  std::unique_ptr<isthmus::Session> session;
  std::shared_ptr<isthmus::LanguageModel> model;
  std::vector<float> tree_logits;
  mutable std::atomic<bool> busy = false;
};

namespace isthmus::capi {

/// A Sampled in the form of the border, with the memory that it points to.
class SampledView {
 public:
  SampledView() = default;
  // The view points into the lists. A moved list keeps its memory, a copied one does not, so a copy starts
  // empty.
  SampledView(SampledView&&) noexcept = default;
  SampledView& operator=(SampledView&&) noexcept = default;
  SampledView(const SampledView&) : SampledView() {}
  SampledView& operator=(const SampledView&) = delete;
  void assign(const Sampled& sampled);
  const isthmus_sampled* get() const { return &view_; }

 private:
  isthmus_sampled view_{};
  std::vector<isthmus_logprob> top_;
  std::vector<isthmus_logprob> top_final_;
};

/// Parameters as the engine takes them, checked. `from` may be null.
Result<SamplerParams> sampler_params(const isthmus_sampler_params* from, size_t vocab);

/// Marks a session as in a call for as long as it lives.
class SessionUse {
 public:
  explicit SessionUse(const isthmus_session& session)
      : session_(session), taken_(!session.busy.exchange(true, std::memory_order_acquire)) {}
  ~SessionUse() {
    if (taken_) session_.busy.store(false, std::memory_order_release);
  }
  SessionUse(const SessionUse&) = delete;
  SessionUse& operator=(const SessionUse&) = delete;
  Status status() const {
    return taken_ ? ok_status() : failed_precondition("the session is in another call at this moment");
  }

 private:
  const isthmus_session& session_;
  const bool taken_;
};

}  // namespace isthmus::capi

struct isthmus_sampler {
  std::shared_ptr<isthmus::LanguageModel> model;
  isthmus::Sampler sampler;
  isthmus::capi::SampledView sampled;
};

struct isthmus_result {
  isthmus::GenerateResult result;
  std::vector<isthmus::capi::SampledView> details;
  uint64_t peak_bytes = 0;
};
