// Calibrations: any text is refused with a reason, or comes back the same when it is written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "calibrate/calibration.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed = isthmus::parse_calibration({reinterpret_cast<const char*>(data), size});
  if (!parsed.ok()) return 0;
  const std::string text = isthmus::write_calibration(*parsed);
  const auto again = isthmus::parse_calibration(text);
  if (!again.ok() || isthmus::write_calibration(*again) != text) std::abort();
  if (parsed->kv_bits) (void)isthmus::coded_formats(parsed->kv_bits->codec, {}, 4);
  return 0;
}
