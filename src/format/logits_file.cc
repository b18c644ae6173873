// Byte layout and the rule for "valid": docs/formats/logits.md.
#include "format/logits_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/byte_reader.h"
#include "base/checked.h"
#include "base/crc32.h"
#include "tensor/half.h"

namespace isthmus {
namespace {

constexpr std::array<char, 8> kLogitsMagic = {'I', 'S', 'T', 'H', 'L', 'O', 'G', '1'};
constexpr uint32_t kLogitsVersion = 1;
constexpr size_t kHeaderBytes = 128;
constexpr size_t kProducerBytes = 40;
constexpr size_t kAlignment = 64;
constexpr uint32_t kByToken = 1;

size_t value_bytes(LogitsRowType type) { return type == LogitsRowType::kF32 ? 4 : 2; }

// Offsets that follow from the header; nullopt when they overflow.
struct Extents {
  size_t rows_offset = 0, row_bytes = 0, checksums_offset = 0, total = 0;
};

std::optional<Extents> extents_of(const LogitsLayout& layout) {
  const auto tokens = checked_mul<size_t>(layout.windows, layout.window_tokens);
  const auto token_bytes = tokens ? checked_mul<size_t>(*tokens, 4) : std::nullopt;
  const auto head = token_bytes ? checked_add(*token_bytes, kHeaderBytes) : std::nullopt;
  const auto offset = head ? checked_round_up(*head, kAlignment) : std::nullopt;
  const auto row_bytes = checked_mul<size_t>(layout.vocab, value_bytes(layout.type));
  const auto all_rows = row_bytes ? checked_mul(*row_bytes, layout.rows()) : std::nullopt;
  const auto checksums = offset && all_rows ? checked_add(*offset, *all_rows) : std::nullopt;
  const auto total = checksums ? checked_add<size_t>(*checksums, layout.rows() * 4) : std::nullopt;
  if (!total) return std::nullopt;
  return Extents{*offset, *row_bytes, *checksums, *total};
}

// What reader and writer both refuse; empty when the layout is sound.
std::string layout_error(const LogitsLayout& layout) {
  if (layout.vocab == 0 || layout.windows == 0 || layout.rows_per_window == 0) return "it holds nothing";
  if (static_cast<uint64_t>(layout.first_row) + layout.rows_per_window > layout.window_tokens) {
    return "its rows reach beyond the window";
  }
  return "";
}

std::string token_error(const LogitsLayout& layout) {
  for (const int32_t token : layout.tokens) {
    if (token < 0 || static_cast<uint32_t>(token) >= layout.vocab) {
      return "token " + std::to_string(token) + " is outside the vocabulary of " +
             std::to_string(layout.vocab);
    }
  }
  return "";
}

class Bytes {
 public:
  void text(std::string_view value, size_t width) {
    const size_t begin = data_.size();
    data_.resize(begin + width);
    std::memcpy(data_.data() + begin, value.data(), std::min(value.size(), width));
  }
  void u32(uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8)
      data_.push_back(static_cast<std::byte>((value >> shift) & 0xFF));
  }
  void raw(std::span<const std::byte> value) { data_.insert(data_.end(), value.begin(), value.end()); }
  void pad(size_t step) { data_.resize(round_up(data_.size(), step)); }
  std::span<const std::byte> view() const { return data_; }

 private:
  std::vector<std::byte> data_;
};

Bytes encode_head(const LogitsLayout& layout) {
  Bytes tokens;
  for (const int32_t token : layout.tokens) tokens.u32(static_cast<uint32_t>(token));
  Bytes out;
  out.text({kLogitsMagic.data(), kLogitsMagic.size()}, kLogitsMagic.size());
  for (const uint32_t value :
       {kLogitsVersion, static_cast<uint32_t>(kHeaderBytes), static_cast<uint32_t>(layout.type), layout.vocab,
        layout.windows, layout.window_tokens, layout.first_row, layout.rows_per_window,
        layout.by_token ? kByToken : 0U, 0U}) {
    out.u32(value);
  }
  out.raw(layout.model_sha256);
  out.text(layout.producer, kProducerBytes);
  out.u32(crc32(tokens.view()));
  out.u32(crc32(out.view()));
  out.raw(tokens.view());
  out.pad(kAlignment);
  return out;
}

}  // namespace

std::optional<int32_t> LogitsLayout::target(size_t row) const {
  const size_t position = first_row + row % rows_per_window + 1;
  if (position >= window_tokens) return std::nullopt;
  return window(row / rows_per_window)[position];
}

Result<LogitsFile> LogitsFile::open(const std::string& path) {
  ISTHMUS_ASSIGN_OR_RETURN(MappedFile map, MappedFile::open(path));
  const auto bytes = map.bytes();
  ISTHMUS_ASSIGN_OR_RETURN(LogitsFile out, parse(bytes, path));
  out.map_ = std::move(map);
  return out;
}

Result<LogitsFile> LogitsFile::parse(std::span<const std::byte> bytes, std::string label) {
  LogitsFile out;
  out.bytes_ = bytes;
  out.label_ = std::move(label);
  ISTHMUS_RETURN_IF_ERROR(out.parse_layout().with_context(out.label_));
  return out;
}

Status LogitsFile::parse_layout() {
  ByteReader reader(bytes_);
  const auto magic = reader.take_text(kLogitsMagic.size());
  if (!magic || *magic != std::string_view(kLogitsMagic.data(), kLogitsMagic.size()))
    return corrupt("not an ISTHLOG1 file");
  if (bytes_.size() < kHeaderBytes) return corrupt("it ends inside the header");
  std::array<uint32_t, 10> words;  // all reads below stay inside the header
  for (uint32_t& word : words) word = *reader.read<uint32_t>();
  const auto sha = *reader.take(layout_.model_sha256.size());
  const std::string_view producer = *reader.take_text(kProducerBytes);
  const uint32_t tokens_crc = *reader.read<uint32_t>();
  if (*reader.read<uint32_t>() != crc32(bytes_.first(kHeaderBytes - 4)))
    return corrupt("wrong header checksum");
  if (words[0] != kLogitsVersion || words[2] > 1) {
    return unsupported("version " + std::to_string(words[0]) + ", row type " + std::to_string(words[2]));
  }
  if (words[1] != kHeaderBytes || words[8] > kByToken || words[9] != 0)
    return corrupt("header fields out of range");
  layout_.type = static_cast<LogitsRowType>(words[2]);
  std::tie(layout_.vocab, layout_.windows, layout_.window_tokens, layout_.first_row,
           layout_.rows_per_window) = std::tie(words[3], words[4], words[5], words[6], words[7]);
  layout_.by_token = words[8] == kByToken;
  std::copy(sha.begin(), sha.end(), layout_.model_sha256.begin());
  layout_.producer = producer.substr(0, producer.find('\0'));
  if (const std::string error = layout_error(layout_); !error.empty()) return corrupt(error);
  const auto extents = extents_of(layout_);
  // Checked before the tokens are copied: a lying header costs no memory.
  if (!extents || extents->total != bytes_.size()) {
    return corrupt("it has " + std::to_string(bytes_.size()) + " bytes, not what its header says");
  }
  const auto tokens = *reader.take(layout_.windows * static_cast<uint64_t>(layout_.window_tokens) * 4);
  if (crc32(tokens) != tokens_crc) return corrupt("wrong checksum of the tokens");
  layout_.tokens.resize(tokens.size() / 4);
  std::memcpy(layout_.tokens.data(), tokens.data(), tokens.size());
  if (const std::string error = token_error(layout_); !error.empty()) return corrupt(error);
  rows_offset_ = extents->rows_offset;
  row_bytes_ = extents->row_bytes;
  return ok_status();
}

Status LogitsFile::read_row(size_t row, std::span<float> out) const {
  if (row >= layout_.rows() || out.size() != layout_.vocab) {
    return invalid_argument(label_ + ": there is no row " + std::to_string(row) + " of " +
                            std::to_string(out.size()) + " values");
  }
  const auto bytes = bytes_.subspan(rows_offset_ + row * row_bytes_, row_bytes_);
  uint32_t expected = 0;
  std::memcpy(&expected, bytes_.data() + rows_offset_ + layout_.rows() * row_bytes_ + row * 4, 4);
  if (crc32(bytes) != expected) return corrupt(label_ + ": wrong checksum of row " + std::to_string(row));
  if (layout_.type == LogitsRowType::kF32) {
    std::memcpy(out.data(), bytes.data(), row_bytes_);
    return ok_status();
  }
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, bytes.data() + 2 * i, 2);
    out[i] = f16_to_f32(half);
  }
  return ok_status();
}

Result<LogitsWriter> LogitsWriter::create(FileSystem& files, const std::string& path, LogitsLayout layout) {
  std::string error = layout_error(layout);
  if (error.empty() && layout.tokens.size() != static_cast<size_t>(layout.windows) * layout.window_tokens) {
    error = "its token count is not windows times window length";
  }
  if (error.empty()) error = token_error(layout);
  if (error.empty() && !extents_of(layout)) error = "it is too large";
  if (!error.empty()) return invalid_argument("cannot write " + path + ": " + error);
  ISTHMUS_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(files, path));
  ISTHMUS_RETURN_IF_ERROR(file.append(encode_head(layout).view()));
  return LogitsWriter(std::move(file), std::move(layout));
}

Status LogitsWriter::append_row(std::span<const float> logp) {
  if (logp.size() != layout_.vocab || checksums_.size() == layout_.rows()) {
    return invalid_argument(file_.path() + ": row " + std::to_string(checksums_.size()) + " of " +
                            std::to_string(layout_.rows()) + " with " + std::to_string(logp.size()) +
                            " values");
  }
  buffer_.resize(logp.size() * value_bytes(layout_.type));
  if (layout_.type == LogitsRowType::kF32) {
    std::memcpy(buffer_.data(), logp.data(), buffer_.size());
  } else {
    for (size_t i = 0; i < logp.size(); ++i) {
      const uint16_t half = f32_to_f16(logp[i]);
      std::memcpy(buffer_.data() + 2 * i, &half, 2);
    }
  }
  ISTHMUS_RETURN_IF_ERROR(file_.append(buffer_));
  checksums_.push_back(crc32(buffer_));
  return ok_status();
}

Status LogitsWriter::publish() {
  if (checksums_.size() != layout_.rows()) {
    return invalid_argument(file_.path() + ": only " + std::to_string(checksums_.size()) + " of " +
                            std::to_string(layout_.rows()) + " rows were written");
  }
  Bytes sums;
  for (const uint32_t sum : checksums_) sums.u32(sum);
  ISTHMUS_RETURN_IF_ERROR(file_.append(sums.view()));
  return file_.publish();
}

void log_softmax(std::span<const float> logits, std::span<float> out) {
  float top = -INFINITY;
  for (const float value : logits) top = std::max(top, value);
  double sum = 0;
  for (const float value : logits) sum += std::exp(static_cast<double>(value) - top);
  const double log_sum = std::log(sum) + top;
  for (size_t i = 0; i < logits.size(); ++i) out[i] = static_cast<float>(logits[i] - log_sum);
}

}  // namespace isthmus
