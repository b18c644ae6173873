#include "format/gguf_parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/byte_reader.h"
#include "base/checked.h"
#include "format/gguf_limits.h"

namespace isthmus {
namespace {

constexpr uint32_t kGgufMagic = 0x46554747;   // "GGUF"
constexpr uint64_t kMinKeyValueBytes = 14;    // length 8, one byte of key, type 4, one byte of value
constexpr uint64_t kMinTensorInfoBytes = 33;  // length 8, one byte of name, dims 4 + 8, type 4, offset 8

Status at_offset(const Status& status, uint64_t offset) {
  return Status(status.code(), fmt::format("{} (at offset {})", status.message(), offset));
}

Status check_count(std::string_view what, uint64_t count, uint64_t limit, uint64_t min_bytes,
                   uint64_t remaining) {
  if (count > limit)
    return resource_exhausted(fmt::format("{} {} are stated, the limit is {}", count, what, limit));
  if (count > remaining / min_bytes) {
    return corrupt(fmt::format("{} {} are stated but only {} bytes follow", count, what, remaining));
  }
  return ok_status();
}

/// Reads one file from front to back.
class Parser {
 public:
  Parser(std::span<const std::byte> bytes, uint32_t part) : bytes_(bytes), reader_(bytes), part_(part) {}

  Result<GgufPart> run() {
    ISTHMUS_RETURN_IF_ERROR(read_preamble());
    out_.entries.reserve(static_cast<size_t>(n_keys_));
    for (uint64_t i = 0; i < n_keys_; ++i) ISTHMUS_RETURN_IF_ERROR(read_entry());
    ISTHMUS_RETURN_IF_ERROR(check_keys_unique());
    ISTHMUS_RETURN_IF_ERROR(read_alignment());
    ISTHMUS_RETURN_IF_ERROR(
        check_count("tensors", n_tensors_, kGgufMaxTensors, kMinTensorInfoBytes, reader_.remaining()));
    out_.tensors.reserve(static_cast<size_t>(n_tensors_));
    for (uint64_t i = 0; i < n_tensors_; ++i) ISTHMUS_RETURN_IF_ERROR(read_tensor_info());
    ISTHMUS_RETURN_IF_ERROR(check_names_unique());
    ISTHMUS_RETURN_IF_ERROR(place_tensors());
    ISTHMUS_RETURN_IF_ERROR(check_tensors_apart());
    return std::move(out_);
  }

 private:
  Status truncated(std::string_view what) const {
    return corrupt(
        fmt::format("the file ends inside {} (at offset {} of {})", what, reader_.offset(), bytes_.size()));
  }

  Status read_preamble() {
    const auto magic = reader_.read<uint32_t>();
    if (!magic) return truncated("the magic");
    if (*magic != kGgufMagic) return corrupt("this is not a GGUF file (wrong magic)");
    const auto version = reader_.read<uint32_t>();
    if (!version) return truncated("the version");
    ISTHMUS_RETURN_IF_ERROR(check_version(*version));
    out_.version = *version;
    const auto tensors = reader_.read<uint64_t>();
    const auto keys = reader_.read<uint64_t>();
    if (!tensors || !keys) return truncated("the counts");
    n_tensors_ = *tensors;
    n_keys_ = *keys;
    ISTHMUS_RETURN_IF_ERROR(
        check_count("tensors", n_tensors_, kGgufMaxTensors, kMinTensorInfoBytes, reader_.remaining()));
    return check_count("metadata pairs", n_keys_, kGgufMaxKeys, kMinKeyValueBytes, reader_.remaining());
  }

  static Status check_version(uint32_t version) {
    if (version == 2 || version == 3) return ok_status();
    if (version != 0 && (version & 0xffffu) == 0) {
      return unsupported("this is a big-endian GGUF file; only little-endian files can be read");
    }
    return unsupported(fmt::format("GGUF version {} cannot be read; versions 2 and 3 can", version));
  }

  Status read_entry() {
    GgufEntry entry;
    entry.offset = reader_.offset();
    ISTHMUS_ASSIGN_OR_RETURN(entry.key, read_text("the key of a metadata pair", kGgufMaxKeyBytes));
    if (entry.key.empty()) return at_offset(corrupt("a metadata key is empty"), entry.offset);
    const auto status = read_value(entry);
    if (!status.ok())
      return at_offset(status.with_context("key " + quote_untrusted(entry.key)), entry.offset);
    out_.entries.push_back(entry);
    return ok_status();
  }

  Status read_value(GgufEntry& entry) {
    ISTHMUS_ASSIGN_OR_RETURN(entry.type, read_type());
    entry.element = entry.type;
    if (entry.type == GgufType::kArray) {
      ISTHMUS_ASSIGN_OR_RETURN(entry.element, read_type());
      if (entry.element == GgufType::kArray) return unsupported("arrays of arrays cannot be read");
      const auto count = reader_.read<uint64_t>();
      if (!count) return truncated("an array's length");
      entry.count = *count;
      const bool text = entry.element == GgufType::kString;
      const uint64_t min_bytes = text ? sizeof(uint64_t) : gguf_scalar_bytes(entry.element);
      ISTHMUS_RETURN_IF_ERROR(
          check_count("array elements", entry.count, kGgufMaxArrayElements, min_bytes, reader_.remaining()));
    }
    return entry.element == GgufType::kString ? read_strings(entry) : read_scalars(entry);
  }

  Result<GgufType> read_type() {
    const auto id = reader_.read<uint32_t>();
    if (!id) return truncated("a value's type");
    if (*id > static_cast<uint32_t>(GgufType::kF64))
      return corrupt(fmt::format("unknown value type {}", *id));
    return static_cast<GgufType>(*id);
  }

  Status read_strings(GgufEntry& entry) {
    const size_t begin = reader_.offset();
    for (uint64_t i = 0; i < entry.count; ++i) {
      const auto length = reader_.read<uint64_t>();
      if (!length) return truncated("a string's length");
      if (*length > kGgufMaxStringBytes) return too_long("a string", *length, kGgufMaxStringBytes);
      if (!reader_.skip(*length)) return overrun("a string", *length);
    }
    entry.payload = bytes_.subspan(begin, reader_.offset() - begin);
    return ok_status();
  }

  Status read_scalars(GgufEntry& entry) {
    // No overflow: the count was held against the bytes that follow.
    const auto payload = reader_.take(entry.count * gguf_scalar_bytes(entry.element));
    if (!payload) return truncated("a value");
    entry.payload = *payload;
    if (entry.element != GgufType::kBool) return ok_status();
    const bool valid = std::ranges::all_of(entry.payload, [](std::byte b) { return b <= std::byte{1}; });
    return valid ? ok_status() : corrupt("a bool is neither 0 nor 1");
  }

  Result<std::string_view> read_text(std::string_view what, uint64_t limit) {
    const auto length = reader_.read<uint64_t>();
    if (!length) return truncated(what);
    if (*length > limit) return at_offset(too_long(what, *length, limit), reader_.offset());
    const auto text = reader_.take_text(*length);
    if (!text) return at_offset(overrun(what, *length), reader_.offset());
    return *text;
  }

  Status too_long(std::string_view what, uint64_t length, uint64_t limit) const {
    // A length that the file cannot hold is a lie, not a large value.
    if (length > reader_.remaining()) return overrun(what, length);
    return resource_exhausted(fmt::format("{} has {} bytes, the limit is {}", what, length, limit));
  }

  Status overrun(std::string_view what, uint64_t length) const {
    return corrupt(fmt::format("{} states {} bytes but only {} follow", what, length, reader_.remaining()));
  }

  Status check_keys_unique() const {
    std::vector<std::string_view> keys;
    keys.reserve(out_.entries.size());
    for (const auto& entry : out_.entries) keys.push_back(entry.key);
    std::ranges::sort(keys);
    const auto twin = std::ranges::adjacent_find(keys);
    if (twin == keys.end()) return ok_status();
    return corrupt(fmt::format("the key {} appears twice", quote_untrusted(*twin)));
  }

  Status read_alignment() {
    const auto at = std::ranges::find(out_.entries, kGgufAlignmentKey, &GgufEntry::key);
    if (at == out_.entries.end()) return ok_status();
    if (at->type != GgufType::kU32) {
      return corrupt(fmt::format("{} is of type {}, not u32", kGgufAlignmentKey, gguf_type_name(at->type)));
    }
    alignment_ = ByteReader(at->payload).read<uint32_t>().value();
    if (std::has_single_bit(alignment_) && alignment_ <= kGgufMaxAlignment) return ok_status();
    return corrupt(fmt::format("{} is {}; it must be a power of two up to {}", kGgufAlignmentKey, alignment_,
                               kGgufMaxAlignment));
  }

  Status read_tensor_info() {
    const uint64_t offset = reader_.offset();
    ISTHMUS_ASSIGN_OR_RETURN(const auto name, read_text("a tensor's name", kGgufMaxNameBytes));
    if (name.empty()) return at_offset(corrupt("a tensor has an empty name"), offset);
    GgufTensor tensor;
    tensor.name = name;
    tensor.part = part_;
    const auto status = read_tensor_fields(tensor);
    if (!status.ok()) return at_offset(status.with_context("tensor " + quote_untrusted(name)), offset);
    out_.tensors.push_back(std::move(tensor));
    return ok_status();
  }

  Status read_tensor_fields(GgufTensor& tensor) {
    const auto n_dims = reader_.read<uint32_t>();
    if (!n_dims) return truncated("its number of dimensions");
    if (*n_dims == 0 || *n_dims > kGgufMaxDims) {
      return corrupt(fmt::format("it has {} dimensions; 1 to {} are possible", *n_dims, kGgufMaxDims));
    }
    tensor.n_dims = *n_dims;
    for (uint32_t i = 0; i < *n_dims; ++i) {
      const auto dim = reader_.read<uint64_t>();
      if (!dim) return truncated("its dimensions");
      if (*dim == 0) return corrupt(fmt::format("its dimension {} is 0", i));
      tensor.dims[i] = *dim;
    }
    const auto type = reader_.read<uint32_t>();
    const auto offset = reader_.read<uint64_t>();
    if (!type || !offset) return truncated("its type and offset");
    const auto* info = find_dtype(*type);
    if (info == nullptr) return unsupported(fmt::format("its type {} is not known", *type));
    tensor.type = info->type;
    tensor.file_offset = *offset;  // from the start of the data; place_tensors() adds that
    return ok_status();
  }

  Status check_names_unique() const {
    std::vector<std::string_view> names;
    names.reserve(out_.tensors.size());
    for (const auto& tensor : out_.tensors) names.push_back(tensor.name);
    std::ranges::sort(names);
    const auto twin = std::ranges::adjacent_find(names);
    if (twin == names.end()) return ok_status();
    return corrupt(fmt::format("tensor {} appears twice", quote_untrusted(*twin)));
  }

  Status place_tensors() {
    if (out_.tensors.empty()) return ok_status();
    const auto start = checked_round_up<uint64_t>(reader_.offset(), alignment_);
    if (!start || *start > bytes_.size()) return truncated("the padding before the tensor data");
    for (auto& tensor : out_.tensors) {
      const auto status = place_tensor(tensor, *start);
      if (!status.ok()) return status.with_context("tensor " + quote_untrusted(tensor.name));
    }
    return ok_status();
  }

  Status place_tensor(GgufTensor& tensor, uint64_t data_start) const {
    const auto size = tensor_bytes(tensor);
    if (!size) {
      const auto& info = dtype_info(tensor.type);
      if (tensor.cols() % info.block_elems != 0) {
        return corrupt(fmt::format("its rows of {} values are not whole blocks of {} ({})", tensor.cols(),
                                   info.block_elems, info.name));
      }
      return corrupt(fmt::format("its dimensions {} are too large", fmt::join(tensor.dims, " x ")));
    }
    if (tensor.file_offset % alignment_ != 0) {
      return corrupt(fmt::format("its offset {} is not a multiple of {}", tensor.file_offset, alignment_));
    }
    const auto begin = checked_add<uint64_t>(data_start, tensor.file_offset);
    const auto end = begin ? checked_add<uint64_t>(*begin, *size) : std::nullopt;
    if (!end || *end > bytes_.size()) {
      return corrupt(fmt::format("its {} bytes at data offset {} reach past the end of the file of {} bytes",
                                 *size, tensor.file_offset, bytes_.size()));
    }
    tensor.file_offset = *begin;
    tensor.data = bytes_.subspan(static_cast<size_t>(*begin), static_cast<size_t>(*size));
    return ok_status();
  }

  static std::optional<uint64_t> tensor_bytes(const GgufTensor& tensor) {
    auto size = row_bytes(tensor.type, tensor.dims[0]);
    auto elements = std::optional<uint64_t>(tensor.dims[0]);
    for (size_t i = 1; i < tensor.dims.size(); ++i) {
      if (size) size = checked_mul(*size, tensor.dims[i]);
      if (elements) elements = checked_mul(*elements, tensor.dims[i]);
    }
    // rows() multiplies dims[1..3] unchecked: the element count bounds that product.
    return elements ? size : std::nullopt;
  }

  Status check_tensors_apart() const {
    std::vector<const GgufTensor*> by_offset;
    by_offset.reserve(out_.tensors.size());
    for (const auto& tensor : out_.tensors) by_offset.push_back(&tensor);
    std::ranges::sort(by_offset, {}, &GgufTensor::file_offset);
    for (size_t i = 1; i < by_offset.size(); ++i) {
      const auto& left = *by_offset[i - 1];
      const auto& right = *by_offset[i];
      if (left.file_offset + left.data.size() > right.file_offset) {
        return corrupt(fmt::format("tensors {} and {} overlap (at offset {})", quote_untrusted(left.name),
                                   quote_untrusted(right.name), right.file_offset));
      }
    }
    return ok_status();
  }

  std::span<const std::byte> bytes_;
  ByteReader reader_;
  uint32_t part_;
  uint64_t n_tensors_ = 0;
  uint64_t n_keys_ = 0;
  uint64_t alignment_ = kGgufDefaultAlignment;
  GgufPart out_;
};

}  // namespace

Result<GgufPart> parse_gguf_part(std::span<const std::byte> bytes, uint32_t part) {
  return Parser(bytes, part).run();
}

size_t gguf_scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

std::string_view gguf_type_name(GgufType type) {
  constexpr std::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

std::string quote_untrusted(std::string_view text) {
  constexpr size_t kShown = 64;
  std::string out = "'";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte >= 0x20 && byte < 0x7f && c != '\'' && c != '\\';
    out += plain ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return out + (text.size() > kShown ? "…'" : "'");
}

}  // namespace isthmus
