#include "format/gguf_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/checked.h"
#include "format/gguf_parse.h"

namespace isthmus {
namespace {

constexpr uint32_t kGgufVersionWritten = 3;

/// Appends little-endian values to a vector.
class Encoder {
 public:
  template <class T>
  void number(T value) {
    append(std::as_bytes(std::span(&value, 1)));
  }
  void text(std::string_view value) {
    number(static_cast<uint64_t>(value.size()));
    append(std::as_bytes(std::span(value)));
  }
  void append(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    const size_t at = out_.size();
    out_.resize(at + bytes.size());
    std::memcpy(out_.data() + at, bytes.data(), bytes.size());
  }
  void pad(uint64_t alignment) {
    out_.resize(static_cast<size_t>(round_up<uint64_t>(out_.size(), alignment)));
  }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  std::vector<std::byte> out_;
};

static_assert(std::endian::native == std::endian::little, "GGUF is written as the memory has it");

Status check_text(std::string_view text) {
  if (text.size() <= kGgufMaxStringBytes) return ok_status();
  return resource_exhausted(
      fmt::format("a string has {} bytes, the limit is {}", text.size(), kGgufMaxStringBytes));
}

Status check_name(std::string_view what, std::string_view name, uint64_t limit) {
  if (name.empty()) return invalid_argument(fmt::format("{} is empty", what));
  if (name.size() <= limit) return ok_status();
  return resource_exhausted(fmt::format("{} has {} bytes, the limit is {}", what, name.size(), limit));
}

/// Bytes of a tensor, or why there cannot be one.
Result<uint64_t> size_of_tensor(DType type, std::span<const uint64_t> dims) {
  if (dims.empty() || dims.size() > kGgufMaxDims) {
    return invalid_argument(
        fmt::format("it has {} dimensions; 1 to {} are possible", dims.size(), kGgufMaxDims));
  }
  if (std::ranges::find(dims, 0u) != dims.end()) return invalid_argument("a dimension is 0");
  auto size = row_bytes(type, dims[0]);
  auto elements = std::optional<uint64_t>(dims[0]);
  for (const uint64_t dim : dims.subspan(1)) {
    if (size) size = checked_mul(*size, dim);
    if (elements) elements = checked_mul(*elements, dim);
  }
  if (size && elements) return *size;
  return invalid_argument(
      fmt::format("its dimensions {} do not suit {}", fmt::join(dims, " x "), dtype_info(type).name));
}

}  // namespace

Status GgufHeader::set_raw(std::string_view key, GgufType type, GgufType element, uint64_t count,
                           std::span<const std::byte> payload) {
  if (key == kGgufAlignmentKey) return invalid_argument("general.alignment is set by set_alignment()");
  if (count > kGgufMaxArrayElements) {
    return resource_exhausted(fmt::format("key {} has {} array elements, the limit is {}",
                                          quote_untrusted(key), count, kGgufMaxArrayElements));
  }
  return store(key, Pair{std::string(key), type, element, count, {payload.begin(), payload.end()}});
}

Status GgufHeader::store(std::string_view key, Pair pair) {
  ISTHMUS_RETURN_IF_ERROR(check_name("a metadata key", key, kGgufMaxKeyBytes));
  const auto at = std::ranges::find(pairs_, key, &Pair::key);
  if (at != pairs_.end()) {
    *at = std::move(pair);
    return ok_status();
  }
  if (pairs_.size() >= kGgufMaxKeys) {
    return resource_exhausted(fmt::format("a file has at most {} metadata pairs", kGgufMaxKeys));
  }
  pairs_.push_back(std::move(pair));
  return ok_status();
}

Status GgufHeader::set(std::string_view key, std::string_view text) {
  ISTHMUS_RETURN_IF_ERROR(check_text(text));
  Encoder encoder;
  encoder.text(text);
  return set_raw(key, GgufType::kString, GgufType::kString, 1, encoder.take());
}

Status GgufHeader::set_strings(std::string_view key, std::span<const std::string_view> texts) {
  Encoder encoder;
  for (const auto text : texts) {
    ISTHMUS_RETURN_IF_ERROR(check_text(text));
    encoder.text(text);
  }
  return set_raw(key, GgufType::kArray, GgufType::kString, texts.size(), encoder.take());
}

Status GgufHeader::copy(const GgufFile& file, std::string_view key) {
  if (key == kGgufAlignmentKey) {
    ISTHMUS_ASSIGN_OR_RETURN(const auto alignment, file.get_uint(key));
    return set_alignment(static_cast<uint32_t>(alignment));  // the reader has bounded it
  }
  GgufType element{};
  ISTHMUS_ASSIGN_OR_RETURN(const auto type, file.type_of(key, &element));
  ISTHMUS_ASSIGN_OR_RETURN(const auto count, file.count_of(key));
  ISTHMUS_ASSIGN_OR_RETURN(const auto payload, file.raw(key));
  return set_raw(key, type, element, count, payload);
}

void GgufHeader::remove(std::string_view key) {
  if (key == kGgufAlignmentKey) return;
  std::erase_if(pairs_, [&](const Pair& pair) { return pair.key == key; });
}

Status GgufHeader::set_alignment(uint32_t alignment) {
  if (!std::has_single_bit(alignment) || alignment > kGgufMaxAlignment) {
    return invalid_argument(
        fmt::format("an alignment of {} is not a power of two up to {}", alignment, kGgufMaxAlignment));
  }
  if (!tensors_.empty())
    return failed_precondition("the alignment must be set before the first tensor is added");
  alignment_ = alignment;
  const auto payload = std::as_bytes(std::span(&alignment, 1));
  return store(kGgufAlignmentKey, Pair{std::string(kGgufAlignmentKey),
                                       GgufType::kU32,
                                       GgufType::kU32,
                                       1,
                                       {payload.begin(), payload.end()}});
}

Status GgufHeader::add_tensor(std::string_view name, DType type, std::span<const uint64_t> dims) {
  ISTHMUS_RETURN_IF_ERROR(check_name("a tensor's name", name, kGgufMaxNameBytes));
  if (std::ranges::find(tensors_, name, &Tensor::name) != tensors_.end()) {
    return invalid_argument(fmt::format("tensor {} is there already", quote_untrusted(name)));
  }
  if (tensors_.size() >= kGgufMaxTensors) {
    return resource_exhausted(fmt::format("a file has at most {} tensors", kGgufMaxTensors));
  }
  const auto size = size_of_tensor(type, dims);
  if (!size.ok()) return size.status().with_context("tensor " + quote_untrusted(name));
  const auto offset = checked_round_up(data_end_, alignment_);
  const auto end = offset ? checked_add(*offset, *size) : std::nullopt;
  if (!end) return invalid_argument("the tensors are too large together");
  tensors_.push_back({std::string(name), type, {dims.begin(), dims.end()}, *size, *offset});
  data_end_ = *end;
  return ok_status();
}

std::vector<std::byte> GgufHeader::encode() const {
  Encoder out;
  out.append(std::as_bytes(std::span(std::string_view("GGUF"))));
  out.number(kGgufVersionWritten);
  out.number(static_cast<uint64_t>(tensors_.size()));
  out.number(static_cast<uint64_t>(pairs_.size()));
  for (const auto& pair : pairs_) {
    out.text(pair.key);
    out.number(static_cast<uint32_t>(pair.type));
    if (pair.type == GgufType::kArray) {
      out.number(static_cast<uint32_t>(pair.element));
      out.number(pair.count);
    }
    out.append(pair.payload);
  }
  for (const auto& tensor : tensors_) {
    out.text(tensor.name);
    out.number(static_cast<uint32_t>(tensor.dims.size()));
    for (const uint64_t dim : tensor.dims) out.number(dim);
    out.number(static_cast<uint32_t>(tensor.type));
    out.number(tensor.offset);
  }
  out.pad(alignment_);
  return out.take();
}

uint64_t GgufHeader::file_bytes() const { return encode().size() + round_up(data_end_, alignment_); }

Result<GgufWriter> GgufWriter::create(FileSystem& files, const std::string& path, GgufHeader header) {
  ISTHMUS_ASSIGN_OR_RETURN(auto file, AtomicFile::create(files, path));
  ISTHMUS_RETURN_IF_ERROR(file.append(header.encode()));
  return GgufWriter(std::move(header), std::move(file));
}

Status GgufWriter::append(std::span<const std::byte> bytes) {
  if (bytes.empty()) return ok_status();
  if (tensor_ == header_.tensor_count()) return invalid_argument("all tensors are written already");
  const uint64_t left = header_.tensor_bytes(tensor_) - written_;
  if (bytes.size() > left) {
    return invalid_argument(fmt::format("tensor {} takes {} bytes more, {} were given",
                                        quote_untrusted(header_.tensor_name(tensor_)), left, bytes.size()));
  }
  ISTHMUS_RETURN_IF_ERROR(file_.append(bytes));
  written_ += bytes.size();
  return written_ == header_.tensor_bytes(tensor_) ? pad() : ok_status();
}

Status GgufWriter::pad() {
  // The file is a multiple of the alignment before every tensor and at its end.
  const std::vector<std::byte> zeros(static_cast<size_t>(round_up(written_, header_.alignment()) - written_));
  ++tensor_;
  written_ = 0;
  return zeros.empty() ? ok_status() : file_.append(zeros);
}

Status GgufWriter::publish() {
  if (tensor_ != header_.tensor_count()) {
    return failed_precondition(fmt::format("tensor {} lacks {} bytes",
                                           quote_untrusted(header_.tensor_name(tensor_)),
                                           header_.tensor_bytes(tensor_) - written_));
  }
  return file_.publish();
}

}  // namespace isthmus
