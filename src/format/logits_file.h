// Reference distributions on disk (docs/formats/logits.md, "ISTHLOG1"): windows of tokens and, for some
// positions of each, the log-probabilities of the next token over the whole vocabulary.
//
// The reader maps the file and checks header, tokens and extents at once, each row's checksum when it is
// read; files are untrusted. The writer takes rows in order and publishes the file atomically when all are
// there. A LogitsFile may be read from any thread; a LogitsWriter belongs to one. Errors: kCorrupt names the
// file and what is wrong with it, kUnsupported a version or row type of the future, kInvalidArgument a misuse
// of the writer, and what src/os reports.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "os/file.h"
#include "os/mmap.h"

namespace isthmus {

enum class LogitsRowType : uint32_t { kF32 = 0, kF16 = 1 };

/// What a file holds, rows apart. Rows are numbered through all windows.
struct LogitsLayout {
  uint32_t vocab = 0;
  uint32_t windows = 0;
  uint32_t window_tokens = 0;
  uint32_t first_row = 0;        // position in a window of the window's first row
  uint32_t rows_per_window = 0;  // first_row + rows_per_window <= window_tokens
  LogitsRowType type = LogitsRowType::kF32;
  bool by_token = false;                     // computed one token a step
  std::array<std::byte, 32> model_sha256{};  // zeros: unknown
  std::string producer;                      // at most 40 bytes are kept
  std::vector<int32_t> tokens;               // [windows][window_tokens]

  size_t rows() const { return static_cast<size_t>(windows) * rows_per_window; }
  std::span<const int32_t> window(size_t w) const {
    return std::span(tokens).subspan(w * window_tokens, window_tokens);
  }
  /// The token that a row predicts; nullopt after the last token of a window.
  std::optional<int32_t> target(size_t row) const;
};

class LogitsFile {
 public:
  static Result<LogitsFile> open(const std::string& path);
  /// Over bytes in memory, which must outlive the file; `label` names them in errors.
  static Result<LogitsFile> parse(std::span<const std::byte> bytes, std::string label);

  const LogitsLayout& layout() const { return layout_; }
  /// Natural log-probabilities of row `row` < layout().rows() into `out` [vocab].
  Status read_row(size_t row, std::span<float> out) const;

 private:
  LogitsFile() = default;
  Status parse_layout();

  std::optional<MappedFile> map_;
  std::span<const std::byte> bytes_;
  std::string label_;
  LogitsLayout layout_;
  size_t rows_offset_ = 0;
  size_t row_bytes_ = 0;
};

class LogitsWriter {
 public:
  /// Checks the layout and writes everything that precedes the rows.
  static Result<LogitsWriter> create(FileSystem& files, const std::string& path, LogitsLayout layout);
  /// The next row: natural log-probabilities [vocab].
  Status append_row(std::span<const float> logp);
  /// kInvalidArgument unless all rows were appended.
  Status publish();
  const LogitsLayout& layout() const { return layout_; }

 private:
  LogitsWriter(AtomicFile file, LogitsLayout layout) : file_(std::move(file)), layout_(std::move(layout)) {}

  AtomicFile file_;
  LogitsLayout layout_;
  std::vector<uint32_t> checksums_;
  std::vector<std::byte> buffer_;
};

/// out = logits - log(sum(exp(logits))), summed in double; in place when they are the same.
void log_softmax(std::span<const float> logits, std::span<float> out);

}  // namespace isthmus
