// The metadata half of GgufFile: finding a key and reading its value with the type that the caller wants.
#include <fmt/format.h>

#include <algorithm>

#include "format/gguf_impl.h"
#include "format/gguf_value.h"

namespace isthmus {
namespace {

const GgufEntry* find_entry(const std::vector<GgufEntry>& entries, const std::vector<uint32_t>& by_key,
                            std::string_view key) {
  const auto key_of = [&](uint32_t i) { return entries[i].key; };
  const auto at = std::ranges::lower_bound(by_key, key, {}, key_of);
  if (at == by_key.end() || key_of(*at) != key) return nullptr;
  return &entries[*at];
}

std::string kind_of(const GgufEntry& entry) {
  if (entry.type != GgufType::kArray) return std::string(gguf_type_name(entry.type));
  return fmt::format("array of {}", gguf_type_name(entry.element));
}

Status wrong_kind(const std::string& file, const GgufEntry& entry, std::string_view wanted) {
  return corrupt(fmt::format("{}: key {} (at offset {}) is of type {}, not {}", file,
                             quote_untrusted(entry.key), entry.offset, kind_of(entry), wanted));
}

Status does_not_fit(const std::string& file, const GgufEntry& entry, std::string_view wanted) {
  return corrupt(fmt::format("{}: key {} (at offset {}) has a {} that does not fit {}", file,
                             quote_untrusted(entry.key), entry.offset, gguf_type_name(entry.element),
                             wanted));
}

bool is_number(GgufType type) { return gguf_scalar_bytes(type) != 0 && type != GgufType::kBool; }
bool is_real(GgufType type) { return type == GgufType::kF32 || type == GgufType::kF64; }
bool is_integer(GgufType type) { return is_number(type) && !is_real(type); }

std::string_view text_of(ByteReader& reader) {
  // The parser has walked these lengths already.
  return reader.take_text(reader.read<uint64_t>().value_or(0)).value_or(std::string_view());
}

template <class T, class ReadOne>
std::optional<std::vector<T>> read_elements(const GgufEntry& entry, ReadOne read_one) {
  const size_t step = gguf_scalar_bytes(entry.element);
  std::vector<T> out(static_cast<size_t>(entry.count));
  for (size_t i = 0; i < out.size(); ++i) {
    const auto value = read_one(entry.element, entry.payload.subspan(i * step, step));
    if (!value) return std::nullopt;
    out[i] = *value;
  }
  return out;
}

/// `get` when the key is there, the fallback when it is not.
template <class T, class Get>
Result<T> or_fallback(const GgufFile& file, std::string_view key, T fallback, Get get) {
  if (!file.has(key)) return fallback;
  return (file.*get)(key);
}

}  // namespace

Result<const GgufEntry*> GgufFile::Impl::entry(std::string_view key) const {
  const auto* found = find_entry(entries, entries_by_key, key);
  if (found != nullptr) return found;
  return not_found(fmt::format("{}: there is no metadata key {}", paths.front(), quote_untrusted(key)));
}

bool GgufFile::has(std::string_view key) const {
  return find_entry(impl_->entries, impl_->entries_by_key, key) != nullptr;
}

std::vector<std::string> GgufFile::keys() const {
  std::vector<std::string> out;
  out.reserve(impl_->entries.size());
  for (const auto& entry : impl_->entries) out.emplace_back(entry.key);
  return out;
}

Result<GgufType> GgufFile::type_of(std::string_view key, GgufType* element) const {
  ISTHMUS_ASSIGN_OR_RETURN(const auto* entry, impl_->entry(key));
  if (element != nullptr) *element = entry->element;
  return entry->type;
}

Result<uint64_t> GgufFile::count_of(std::string_view key) const {
  ISTHMUS_ASSIGN_OR_RETURN(const auto* entry, impl_->entry(key));
  return entry->count;
}

Result<std::span<const std::byte>> GgufFile::raw(std::string_view key) const {
  ISTHMUS_ASSIGN_OR_RETURN(const auto* entry, impl_->entry(key));
  return entry->payload;
}

Result<uint64_t> GgufFile::get_uint(std::string_view key) const {
  ISTHMUS_ASSIGN_OR_RETURN(const auto* entry, impl_->entry(key));
  if (!is_integer(entry->type)) return wrong_kind(impl_->paths.front(), *entry, "an integer");
  const auto value = gguf_integer<uint64_t>(entry->type, entry->payload);
  if (!value) return does_not_fit(impl_->paths.front(), *entry, "u64");
  return *value;
}

Result<int64_t> GgufFile::get_int(std::string_view key) const {
  ISTHMUS_ASSIGN_OR_RETURN(const auto* entry, impl_->entry(key));
  if (!is_integer(entry->type)) return wrong_kind(impl_->paths.front(), *entry, "an integer");
  const auto value = gguf_integer<int64_t>(entry->type, entry->payload);
  if (!value) return does_not_fit(impl_->paths.front(), *entry, "i64");
  return *value;
}

Result<double> GgufFile::get_float(std::string_view key) const {
  ISTHMUS_ASSIGN_OR_RETURN(const auto* entry, impl_->entry(key));
  const auto value = gguf_real<double>(entry->type, entry->payload);
  if (!value) return wrong_kind(impl_->paths.front(), *entry, "a number");
  return *value;
}

Result<bool> GgufFile::get_bool(std::string_view key) const {
  ISTHMUS_ASSIGN_OR_RETURN(const auto* entry, impl_->entry(key));
  if (entry->type != GgufType::kBool) return wrong_kind(impl_->paths.front(), *entry, "bool");
  return entry->payload.front() != std::byte{0};
}

Result<std::string_view> GgufFile::get_string(std::string_view key) const {
  ISTHMUS_ASSIGN_OR_RETURN(const auto* entry, impl_->entry(key));
  if (entry->type != GgufType::kString) return wrong_kind(impl_->paths.front(), *entry, "string");
  ByteReader reader(entry->payload);
  return text_of(reader);
}

Result<std::vector<std::string_view>> GgufFile::get_strings(std::string_view key) const {
  ISTHMUS_ASSIGN_OR_RETURN(const auto* entry, impl_->entry(key));
  if (entry->type != GgufType::kArray || entry->element != GgufType::kString) {
    return wrong_kind(impl_->paths.front(), *entry, "array of string");
  }
  std::vector<std::string_view> out(static_cast<size_t>(entry->count));
  ByteReader reader(entry->payload);
  for (auto& text : out) text = text_of(reader);
  return out;
}

Result<std::vector<int64_t>> GgufFile::get_ints(std::string_view key) const {
  ISTHMUS_ASSIGN_OR_RETURN(const auto* entry, impl_->entry(key));
  if (entry->type != GgufType::kArray || !is_integer(entry->element)) {
    return wrong_kind(impl_->paths.front(), *entry, "array of integers");
  }
  auto values = read_elements<int64_t>(*entry, gguf_integer<int64_t>);
  if (!values) return does_not_fit(impl_->paths.front(), *entry, "i64");
  return std::move(*values);
}

Result<std::vector<float>> GgufFile::get_floats(std::string_view key) const {
  ISTHMUS_ASSIGN_OR_RETURN(const auto* entry, impl_->entry(key));
  if (entry->type != GgufType::kArray || !is_number(entry->element)) {
    return wrong_kind(impl_->paths.front(), *entry, "array of numbers");
  }
  return read_elements<float>(*entry, gguf_real<float>).value();
}

Result<uint64_t> GgufFile::get_uint_or(std::string_view key, uint64_t fallback) const {
  return or_fallback(*this, key, fallback, &GgufFile::get_uint);
}

Result<double> GgufFile::get_float_or(std::string_view key, double fallback) const {
  return or_fallback(*this, key, fallback, &GgufFile::get_float);
}

Result<bool> GgufFile::get_bool_or(std::string_view key, bool fallback) const {
  return or_fallback(*this, key, fallback, &GgufFile::get_bool);
}

Result<std::string_view> GgufFile::get_string_or(std::string_view key, std::string_view fallback) const {
  return or_fallback(*this, key, fallback, &GgufFile::get_string);
}

}  // namespace isthmus
