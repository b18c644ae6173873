// Records of how weights are walked: parse any bytes; what was understood survives its text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/stream_choice.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto records = isthmus::parse_stream_records({reinterpret_cast<const char*>(data), size});
  const auto again = isthmus::parse_stream_records(isthmus::format_stream_records(records));
  for (size_t i = 0; i < again.size(); ++i) {
    if (!isthmus::is_stream_candidate(again[i].plan)) std::abort();
  }
  return 0;
}
