// C++17 over isthmus.h: handles that free themselves, values instead of out-parameters, exceptions instead of
// codes.
//
// Header only; the library behind it is the C one, so a program may be built with another compiler or
// standard than the library. Every failure throws isthmus::Error with the code and message of the C API.
// Ownership, threads and lifetimes are those of isthmus.h. An exception that leaves a callback ends the run
// and reaches the caller of generate().
//
//   isthmus::Model model("smollm2.gguf");
//   isthmus::Session session(model);
//   auto prompt = model.encode_chat(R"([{"role": "user", "content": "Hello"}])");
//   std::cout << session.generate(prompt).text();
#ifndef ISTHMUS_ISTHMUS_HPP
#define ISTHMUS_ISTHMUS_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isthmus.h"

namespace isthmus {
// An inline namespace of its own keeps these names apart from those inside the static library.
inline namespace v0 {

/// A failure of the C API.
class Error : public std::runtime_error {
 public:
  Error(isthmus_code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  isthmus_code code() const noexcept { return code_; }

 private:
  isthmus_code code_;
};

namespace detail {

struct Delete {
  void operator()(isthmus_error* p) const noexcept { isthmus_error_free(p); }
  void operator()(isthmus_cancel* p) const noexcept { isthmus_cancel_free(p); }
  void operator()(isthmus_model* p) const noexcept { isthmus_model_free(p); }
  void operator()(isthmus_decoder* p) const noexcept { isthmus_decoder_free(p); }
  void operator()(isthmus_sampler* p) const noexcept { isthmus_sampler_free(p); }
  void operator()(isthmus_session* p) const noexcept { isthmus_session_free(p); }
  void operator()(isthmus_result* p) const noexcept { isthmus_result_free(p); }
};

template <class T>
using Handle = std::unique_ptr<T, Delete>;

/// check(f, args…): calls f(args…, &error) and throws what it reports.
template <class Function, class... Args>
void check(Function function, Args... args) {
  isthmus_error* raw = nullptr;
  const isthmus_code code = function(args..., &raw);
  const Handle<isthmus_error> error(raw);
  if (code != ISTHMUS_OK) throw Error(code, isthmus_error_message(error.get()));
}

/// make<T>(f, args…): calls f(args…, &handle, &error).
template <class T, class Function, class... Args>
Handle<T> make(Function function, Args... args) {
  T* handle = nullptr;
  check(function, args..., &handle);
  return Handle<T>(handle);
}

struct Free {
  void operator()(void* p) const noexcept { isthmus_free(p); }
};

/// take_tokens(f, args…): f(args…, &tokens, &count, &error), as a vector.
template <class Function, class... Args>
std::vector<isthmus_token> take_tokens(Function function, Args... args) {
  isthmus_token* tokens = nullptr;
  size_t count = 0;
  check(function, args..., &tokens, &count);
  const std::unique_ptr<isthmus_token, Free> owner(tokens);
  return std::vector<isthmus_token>(tokens, tokens + count);
}

template <class Function, class... Args>
std::string take_text(Function function, Args... args) {
  char* text = nullptr;
  size_t length = 0;
  check(function, args..., &text, &length);
  const std::unique_ptr<char, Free> owner(text);
  return std::string(text, length);
}

}  // namespace detail

using Token = isthmus_token;
using Tokens = std::vector<Token>;

/// Version of the library at run time.
inline std::string version() { return isthmus_version(); }

/// Ends running calls; set() from any thread or a signal handler.
class Cancel {
 public:
  Cancel() : handle_(detail::make<isthmus_cancel>(isthmus_cancel_create)) {}
  void set() noexcept { isthmus_cancel_set(handle_.get()); }
  void reset() noexcept { isthmus_cancel_reset(handle_.get()); }
  bool is_set() const noexcept { return isthmus_cancel_is_set(handle_.get()) != 0; }
  isthmus_cancel* get() const noexcept { return handle_.get(); }

 private:
  detail::Handle<isthmus_cancel> handle_;
};

/// When a call must stop. The Cancel must outlive the call.
struct Limits {
  const Cancel* cancel = nullptr;
  std::chrono::milliseconds deadline{0};  // from the beginning of the call; 0: none

  isthmus_limits c() const {
    if (deadline.count() < 0) throw Error(ISTHMUS_INVALID_ARGUMENT, "the deadline is negative");
    isthmus_limits out{};
    isthmus_limits_init(&out, sizeof(out));
    out.cancel = cancel != nullptr ? cancel->get() : nullptr;
    out.deadline_ms = static_cast<uint64_t>(deadline.count());
    return out;
  }
};

struct ModelOptions : isthmus_model_options {
  ModelOptions() : isthmus_model_options{} {
    isthmus_model_options_init(this, sizeof(isthmus_model_options));
  }
};

struct SamplerParams : isthmus_sampler_params {
  SamplerParams() : isthmus_sampler_params{} {
    isthmus_sampler_params_init(this, sizeof(isthmus_sampler_params));
  }
  static SamplerParams greedy() {
    SamplerParams out;
    out.temperature = 0;
    return out;
  }
};

struct ChatOptions : isthmus_chat_options {
  ChatOptions() : isthmus_chat_options{} { isthmus_chat_options_init(this, sizeof(isthmus_chat_options)); }
};

/// A loaded model. Copies share it; any thread.
class Model {
 public:
  explicit Model(const std::string& path, const ModelOptions& options = {}, const Limits& limits = {}) {
    const isthmus_limits c = limits.c();
    handle_ = detail::make<isthmus_model>(isthmus_model_load, path.c_str(), &options, &c);
  }

  isthmus_model_facts facts() const {
    isthmus_model_facts out{};
    out.struct_size = sizeof(out);
    detail::check(isthmus_model_get_facts, get(), &out);
    return out;
  }
  isthmus_memory memory() const {
    isthmus_memory out{};
    out.struct_size = sizeof(out);
    detail::check(isthmus_model_memory, get(), &out);
    return out;
  }
  Tokens stop_tokens() const {
    const Token* tokens = nullptr;
    size_t count = 0;
    detail::check(isthmus_model_stop_tokens, get(), &tokens, &count);
    return Tokens(tokens, tokens + count);
  }

  /// flags as in isthmus_tokenize().
  Tokens tokenize(std::string_view text, uint32_t flags = 0) const {
    return detail::take_tokens(isthmus_tokenize, get(), text.data(), text.size(), flags);
  }
  std::string detokenize(const Tokens& tokens, uint32_t flags = 0) const {
    return detail::take_text(isthmus_detokenize, get(), tokens.data(), tokens.size(), flags);
  }
  std::string piece(Token token, uint32_t flags = 0) const {
    const char* bytes = nullptr;
    size_t length = 0;
    detail::check(isthmus_token_piece, get(), token, flags, &bytes, &length);
    return std::string(bytes, length);
  }
  std::string render_chat(std::string_view messages, const ChatOptions& options = {}) const {
    return detail::take_text(isthmus_render_chat, get(), messages.data(), messages.size(), &options);
  }
  Tokens encode_chat(std::string_view messages, const ChatOptions& options = {}) const {
    return detail::take_tokens(isthmus_encode_chat, get(), messages.data(), messages.size(), &options);
  }

  isthmus_model* get() const noexcept { return handle_.get(); }

 private:
  std::shared_ptr<isthmus_model> handle_;
};

/// Streaming detokenizer; one thread at a time.
class Decoder {
 public:
  explicit Decoder(const Model& model, uint32_t flags = 0)
      : handle_(detail::make<isthmus_decoder>(isthmus_decoder_create, model.get(), flags)) {}
  std::string push(Token token) {
    const char* text = nullptr;
    size_t length = 0;
    detail::check(isthmus_decoder_push, handle_.get(), token, &text, &length);
    return std::string(text, length);
  }
  std::string finish() {
    const char* text = nullptr;
    size_t length = 0;
    detail::check(isthmus_decoder_finish, handle_.get(), &text, &length);
    return std::string(text, length);
  }

 private:
  detail::Handle<isthmus_decoder> handle_;
};

/// What a run produced.
class Generation {
 public:
  explicit Generation(detail::Handle<isthmus_result> handle) : handle_(std::move(handle)) {}
  std::string_view text() const noexcept {
    size_t length = 0;
    const char* text = isthmus_result_text(handle_.get(), &length);
    return {text, length};
  }
  Tokens tokens() const {
    size_t count = 0;
    const Token* tokens = isthmus_result_tokens(handle_.get(), &count);
    return Tokens(tokens, tokens + count);
  }
  isthmus_finish_reason reason() const noexcept { return isthmus_result_reason(handle_.get()); }
  std::string stop_string() const { return isthmus_result_stop_string(handle_.get()); }
  /// Null when log-probabilities were not asked for.
  const isthmus_sampled* logprobs(size_t i) const noexcept { return isthmus_result_detail(handle_.get(), i); }
  isthmus_figures figures() const {
    isthmus_figures out{};
    out.struct_size = sizeof(out);
    detail::check(isthmus_result_figures, handle_.get(), &out);
    return out;
  }

 private:
  detail::Handle<isthmus_result> handle_;
};

struct GenerateOptions {
  SamplerParams sampler;
  size_t max_tokens = 0;  // 0: until the model stops or the context is full
  std::vector<std::string> stops;
  bool ignore_stop_tokens = false;
  isthmus_on_full on_full = ISTHMUS_STOP_WHEN_FULL;
  size_t keep_tokens = 0;
  std::function<bool(std::string_view)> on_text;  // false ends the run
  std::function<void(const isthmus_sampled&)> on_token;
  Limits limits;
  size_t max_draft = 0;  // speculation: most tokens drafted at once; 0: off
};

/// One sequence; one thread at a time.
class Session {
 public:
  explicit Session(const Model& model)
      : handle_(detail::make<isthmus_session>(isthmus_session_create, model.get())) {}

  Tokens tokens() const {
    const Token* tokens = nullptr;
    size_t count = 0;
    detail::check(isthmus_session_tokens, get(), &tokens, &count);
    return Tokens(tokens, tokens + count);
  }
  void append(const Tokens& tokens, isthmus_purpose purpose = ISTHMUS_PROMPT, const Limits& limits = {}) {
    const isthmus_limits c = limits.c();
    detail::check(isthmus_session_append, get(), tokens.data(), tokens.size(), purpose, &c);
  }
  std::vector<float> logits() const {
    const float* row = nullptr;
    size_t count = 0;
    detail::check(isthmus_session_logits, get(), &row, &count);
    return std::vector<float>(row, row + count);
  }
  void truncate(size_t length) { detail::check(isthmus_session_truncate, get(), length); }
  Session fork() const { return Session(detail::make<isthmus_session>(isthmus_session_fork, get())); }
  /// Logits [tokens][vocab] in one row after the other, borrowed until the session changes.
  const float* try_tree(const Tokens& tokens, const std::vector<int32_t>& parents) {
    if (tokens.size() != parents.size()) {
      throw Error(ISTHMUS_INVALID_ARGUMENT, "a tree needs one parent for each token");
    }
    const float* rows = nullptr;
    detail::check(isthmus_session_try_tree, get(), tokens.data(), parents.data(), tokens.size(), &rows);
    return rows;
  }
  void accept(const std::vector<uint32_t>& path) {
    detail::check(isthmus_session_accept, get(), path.data(), path.size());
  }
  Generation generate(const Tokens& prompt, const GenerateOptions& options = {});

  isthmus_session* get() const noexcept { return handle_.get(); }

 private:
  explicit Session(detail::Handle<isthmus_session> handle) : handle_(std::move(handle)) {}
  detail::Handle<isthmus_session> handle_;
};

/// Draws tokens, with the state of the draw; one thread at a time.
class Sampler {
 public:
  explicit Sampler(const Model& model, const SamplerParams& params = {})
      : handle_(detail::make<isthmus_sampler>(isthmus_sampler_create, model.get(), &params)) {}
  /// Borrowed until the next call.
  const isthmus_sampled& sample(const Session& session) {
    const isthmus_sampled* out = nullptr;
    detail::check(isthmus_sampler_sample_session, handle_.get(), session.get(), &out);
    return *out;
  }

 private:
  detail::Handle<isthmus_sampler> handle_;
};

namespace detail {

/// The callbacks of a run, with the exception that one of them threw.
struct Calls {
  const GenerateOptions& options;
  bool ended = false;
  std::exception_ptr thrown;

  static int32_t text(void* user, const char* text, size_t length) noexcept {
    auto& self = *static_cast<Calls*>(user);
    if (!self.ended && self.options.on_text) {
      self.run([&] { return self.options.on_text(std::string_view(text, length)); });
    }
    return self.ended ? 1 : 0;
  }
  static void token(void* user, const isthmus_sampled* sampled) noexcept {
    auto& self = *static_cast<Calls*>(user);
    if (self.ended) return;
    self.run([&] {
      self.options.on_token(*sampled);
      return true;
    });
  }
  template <class Call>
  void run(Call call) noexcept {
    try {
      ended = !call();
    } catch (...) {
      ended = true;
      thrown = std::current_exception();
    }
  }
};

}  // namespace detail

inline Generation Session::generate(const Tokens& prompt, const GenerateOptions& options) {
  std::vector<const char*> stops;
  for (const std::string& stop : options.stops) stops.push_back(stop.c_str());
  detail::Calls calls{options, false, nullptr};
  isthmus_generate_options c{};
  isthmus_generate_options_init(&c, sizeof(c));
  c.sampler = &options.sampler;
  c.max_tokens = options.max_tokens;
  c.stops = stops.data();
  c.stop_count = stops.size();
  c.ignore_stop_tokens = options.ignore_stop_tokens ? 1 : 0;
  c.on_full = options.on_full;
  c.keep_tokens = options.keep_tokens;
  c.max_draft = options.max_draft;
  c.on_text = detail::Calls::text;  // always: this is how an exception of on_token ends the run
  c.on_token = options.on_token ? detail::Calls::token : nullptr;
  c.user = &calls;
  const isthmus_limits limits = options.limits.c();
  Generation out(
      detail::make<isthmus_result>(isthmus_generate, get(), prompt.data(), prompt.size(), &c, &limits));
  if (calls.thrown) std::rethrow_exception(calls.thrown);
  return out;
}

}  // namespace v0
}  // namespace isthmus

#endif  // ISTHMUS_ISTHMUS_HPP
