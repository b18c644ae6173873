// Fuzz target: any bytes as a GGUF file. What is accepted is read in full: every key by every getter, the
// first and last row of every tensor dequantised, the header written again and compared with what was read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "format/gguf.h"
#include "format/gguf_writer.h"
#include "tensor/quant.h"

namespace isthmus {
namespace {

/// A broken promise of the reader: stops the fuzzer here.
void require(bool held) {
  if (!held) std::abort();
}

size_t touch(std::string_view text) {
  size_t sum = 0;
  for (const char c : text) sum += static_cast<unsigned char>(c);
  return sum;
}

size_t read_metadata(const GgufFile& file) {
  size_t sum = 0;
  for (const auto& key : file.keys()) {
    require(file.has(key));
    require(file.type_of(key).ok() && file.count_of(key).ok());
    if (const auto v = file.get_uint(key); v.ok()) sum += static_cast<size_t>(*v);
    if (const auto v = file.get_int(key); v.ok()) sum += static_cast<size_t>(*v);
    if (const auto v = file.get_float(key); v.ok()) sum += *v > 0.0;
    if (const auto v = file.get_bool(key); v.ok()) sum += *v;
    if (const auto v = file.get_string(key); v.ok()) sum += touch(*v);
    if (const auto v = file.get_ints(key); v.ok()) sum += v->size();
    if (const auto v = file.get_floats(key); v.ok()) sum += v->size();
    if (const auto v = file.get_strings(key); v.ok()) {
      for (const auto text : *v) sum += touch(text);
    }
  }
  return sum;
}

void read_tensors(const GgufFile& file, std::span<const std::byte> bytes) {
  for (const auto& tensor : file.tensors()) {
    const auto row = row_bytes(tensor.type, tensor.cols());
    require(row.has_value() && tensor.data.size() == *row * tensor.rows());
    require(tensor.data.data() >= bytes.data());
    require(tensor.data.data() + tensor.data.size() <= bytes.data() + bytes.size());
    require(file.find(tensor.name) == &tensor);
    std::vector<float> values(static_cast<size_t>(tensor.cols()));
    for (const uint64_t at : {uint64_t{0}, (tensor.rows() - 1) * *row}) {
      const auto status = dequantize_row(tensor.type, tensor.data.data() + at, values.size(), values.data());
      require(status.ok() == dtype_info(tensor.type).computable);
    }
  }
}

/// What was read can be written, and reads the same.
void write_again(const GgufFile& file) {
  GgufHeader header;
  for (const auto& key : file.keys()) require(header.copy(file, key).ok());
  const auto encoded = header.encode();
  const auto again = GgufFile::parse(encoded, "again");
  require(again.ok() && again->keys() == file.keys());
  for (const auto& key : file.keys()) {
    const auto before = file.raw(key).value();
    const auto after = again->raw(key).value();
    require(std::equal(before.begin(), before.end(), after.begin(), after.end()));
  }
}

}  // namespace
}  // namespace isthmus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace isthmus;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = GgufFile::parse(bytes, "fuzz");
  if (!file.ok()) return file.status().message().empty() ? (std::abort(), 0) : 0;
  [[maybe_unused]] static volatile size_t sink;  // keeps the reads
  sink = read_metadata(*file);
  read_tensors(*file, bytes);
  write_again(*file);
  return 0;
}
