// Reference distributions (ISTHLOG1): parse any bytes, then read every row.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "format/logits_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = isthmus::LogitsFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file.ok()) return 0;
  const isthmus::LogitsLayout& layout = file->layout();
  std::vector<float> row(layout.vocab);
  for (size_t i = 0; i < layout.rows(); ++i) {
    (void)file->read_row(i, row).ok();
    (void)layout.target(i);
  }
  return 0;
}
