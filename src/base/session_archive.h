// Where the texts of sessions are kept, by name: what the engine knows of the files of store/.
//
// A save is whole or not there at all, and durable when it returns. Safe from any thread. Errors: kNotFound,
// kCorrupt (not such a text: nothing of it is given), kUnsupported (another version), kInvalidArgument (a bad
// name), kResourceExhausted (no space, or too large), kIo.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace isthmus {

inline constexpr size_t kMaxSessionName = 128;
inline constexpr size_t kMaxSessionTokens = size_t{1} << 22;

/// How 32 tokens of a session's KV are kept.
struct SessionChunk {
  int bits = 16;         // 16: as written
  uint8_t computed = 0;  // the arithmetic classes that wrote them (ComputeSet)
  friend bool operator==(const SessionChunk&, const SessionChunk&) = default;
};

struct SessionText {
  std::string name;
  std::string model;       // digest of its files, 64 hex digits; empty: of no file
  std::string kv;          // identity of its records (KvSpace::identity), 64 hex digits; empty: it has none
  std::string label;       // the model's name, for people
  int64_t created_ns = 0;  // since the epoch
  int64_t used_ns = 0;
  std::vector<int32_t> tokens;       // whose KV is kept
  std::vector<SessionChunk> chunks;  // of the whole blocks of 32 tokens, and of the rest, if there is one
  std::string messages;              // the conversation, a JSON array; empty: none
  std::string rendered;              // what the conversation's ids are of: `tokens` and, behind them, `rest`
  std::vector<int32_t> rest;         // ids that were not read yet
  friend bool operator==(const SessionText&, const SessionText&) = default;
};

/// Letters, digits, '-', '_' and '.', a letter or digit first, at most kMaxSessionName.
inline bool is_session_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxSessionName) return false;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool alphanumeric = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!alphanumeric && (i == 0 || (c != '-' && c != '_' && c != '.'))) return false;
  }
  return true;
}

class SessionArchive {
 public:
  virtual ~SessionArchive() = default;
  virtual Status save(const SessionText& text) = 0;
  virtual Result<SessionText> load(const std::string& name) = 0;
  /// OK when there is none.
  virtual Status remove(const std::string& name) = 0;
};

}  // namespace isthmus
